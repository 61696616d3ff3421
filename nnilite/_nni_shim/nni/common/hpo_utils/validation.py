"""`nni.common.hpo_utils.validation`: the check of a search space."""

from __future__ import annotations

import logging

__path__ = []  # type: ignore[var-annotated]  # see `nni._Elsewhere`

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["validate_search_space"]


def validate_search_space(search_space: Any, support_types: Any = None, raise_exception: bool = False) -> bool:
    """Return whether a search space is sound by nnilite's and NNI's stricter rules, and of the supported types.

    Raises: ValueError that says what is wrong, if `raise_exception`; else that is logged.
    """
    wrong = _wrong(search_space, support_types)
    if wrong and raise_exception:
        raise ValueError(wrong)
    if wrong:
        logging.getLogger(__name__).error("%s", wrong)
    return not wrong


def _wrong(search_space: Any, support_types: Any) -> str:
    from nnilite.errors import SpaceError
    from nnilite.space import SearchSpace

    try:
        SearchSpace.parse(search_space)
    except SpaceError as error:
        return str(error)
    types = {name: part["_type"] for name, part in search_space.items()}
    odd = [f"{name}: {kind}" for name, kind in types.items() if support_types is not None and kind not in support_types]
    if odd:
        return f"the tuner does not support {', '.join(odd)}"
    faults = (f"{name}: {_stricter(part['_type'], part['_value'])}" for name, part in search_space.items())
    return next((line for line in faults if not line.endswith(": ")), "")


def _stricter(kind: str, values: Any) -> str:
    """Return what NNI's tuners do not accept, though nnilite's do; empty if there is nothing."""
    if kind == "choice":
        named = bool(values) and isinstance(values[0], dict) and "_name" in values[0]
        plain = named or all(isinstance(option, (int, float, str)) for option in values)
        return "" if plain else "the options of a choice must be numbers or strings here"
    if kind == "randint" and not all(isinstance(value, int) for value in values[:2]):
        return "the ends of a randint must be whole numbers here"
    if not kind.endswith("normal") and values[0] >= values[1]:
        return "the lower end must be below the upper one here"
    return ""
