"""`nni.common.hpo_utils`: what custom tuners use of it. It needs the whole nnilite, where tuners run."""

from __future__ import annotations

import logging

from ..utils import OptimizeMode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["OptimizeMode", "validate_search_space"]


def validate_search_space(search_space: Any, support_types: Any = None, raise_exception: bool = False) -> bool:
    """Whether a search space is sound, and of the supported types.

    Raises: ValueError that says what is wrong, if `raise_exception`; else that is logged.
    """
    from nnilite.errors import SpaceError
    from nnilite.space import SearchSpace

    wrong = ""
    try:
        SearchSpace.parse(search_space)
    except SpaceError as error:
        wrong = str(error)
    types = {name: part.get("_type") for name, part in search_space.items()} if not wrong else {}
    odd = [f"{name}: {kind}" for name, kind in types.items() if support_types is not None and kind not in support_types]
    if odd:
        wrong = f"the tuner does not support {', '.join(odd)}"
    if wrong and raise_exception:
        raise ValueError(wrong)
    if wrong:
        logging.getLogger(__name__).error("%s", wrong)
    return not wrong
