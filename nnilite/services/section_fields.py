"""Fields that the sections of several platforms have, with their descriptions, and checks of what stands in them.

@dataclass(frozen=True, kw_only=True)
class MyConfig:
    image: Annotated[str, "an image with Python 3.8 or later"]
    nni_manager_ip: ManagerIp = None
    trial_gpu_number: TrialGpuNumber = None
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Annotated, Any

from nnilite.errors import ConfigError, Place
from nnilite.service import ServiceContext
from nnilite.units import NonNegativeInt

__all__ = ["EnvironmentVariables", "ManagerIp", "TrialGpuNumber", "check_variables", "field_place", "gpus_of"]

TrialGpuNumber = Annotated[NonNegativeInt | None, "overrides the top level's"]
ManagerIp = Annotated[str | None, "where trials reach the manager, unless `callback` is log"]
EnvironmentVariables = Annotated[dict[str, str], "of trials"]

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OURS = "NNILITE_"


def field_place(name: str) -> Place:
    """Return the place of a field for an error, as the YAML spells it.

    >>> field_place("trial_gpu_number").field
    'trialGpuNumber'
    """
    first, *rest = name.split("_")
    return Place(field=first + "".join(part.capitalize() for part in rest))


def gpus_of(config: Any, context: ServiceContext) -> int | None:
    """Return the GPUs of a trial: the section's, else the experiment's; None if neither says anything."""
    for name in ("trial_gpu_number", "gpu_number"):
        given = getattr(config, name, None)
        if given is not None:
            return int(given)
    wanted = context.defaults.get("trialGpuNumber")
    return wanted if isinstance(wanted, int) else None


def check_variables(names: Iterable[str]) -> None:
    """Check `environmentVariables`. Raises: ConfigError for what cannot be a variable of trials."""
    for name in names:
        if not _VARIABLE.fullmatch(name) or name.startswith(_OURS):
            raise ConfigError(
                f"{name!r} cannot be the name of a variable of trials", field_place("environment_variables")
            )
