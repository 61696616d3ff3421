"""Fields that the sections of several platforms have, with their descriptions, and checks of their values.

@dataclass(frozen=True, kw_only=True)
class MyConfig:
    image: Annotated[str, "an image with Python 3.8 or later"]
    nni_manager_ip: ManagerIp = None

Every section may have `trialGpuNumber`; only a Config whose own rules depend on it has a field for it. `gpus_of` and
`Job.gpus` know the number.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any

from nnilite.errors import ConfigError, Place
from nnilite.records import count_nodes
from nnilite.service import IgnoredOption, ServiceContext, Settings
from nnilite.units import NonNegativeInt

__all__ = [
    "GPU_OPTION",
    "GPU_PLACE",
    "EnvironmentVariables",
    "ManagerIp",
    "ReuseMode",
    "TrialGpuNumber",
    "check_variables",
    "field_place",
    "gpus_are_unused",
    "gpus_of",
    "needs_assigned_gpus",
    "nodes_of",
    "nodes_place",
]

TrialGpuNumber = Annotated[NonNegativeInt | None, "overrides the one at the top level"]
ManagerIp = Annotated[str | None, "the address at which trials reach the manager, unless `callback` is log"]
ReuseMode = Annotated[bool, "accepted, as in NNI; has no effect here"]
EnvironmentVariables = Annotated[dict[str, str], "environment variables of trials"]

GPU_OPTION = "trialGpuNumber"
GPU_PLACE = Place(field=GPU_OPTION)
"""The place of the number of GPUs, for errors."""

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OURS = "NNILITE_"


def _always(config: object, settings: Settings) -> bool:
    return True


def field_place(name: str) -> Place:
    """Return the place of a field for an error, as the YAML spells it.

    >>> field_place("machine_list").field
    'machineList'
    """
    first, *rest = name.split("_")
    return Place(field=first + "".join(part.capitalize() for part in rest))


def gpus_of(config: Any, context: ServiceContext) -> int | None:
    """Return the GPUs of a trial: the section's, else the experiment's; None if neither says anything."""
    for name in ("trial_gpu_number", "gpu_number"):
        given = getattr(config, name, None)
        if given is not None:
            return int(given)
    wanted = context.defaults.get(GPU_OPTION)
    return wanted if isinstance(wanted, int) else None


def nodes_of(context: ServiceContext) -> int:
    """Return the number of nodes of a trial, at most."""
    return count_nodes(context.defaults.get("distributed")).most


def nodes_place(context: ServiceContext) -> Place:
    """Return the place of that number, for errors."""
    distributed = context.defaults.get("distributed")
    is_range = isinstance(distributed, Mapping) and isinstance(distributed["nodes"], Mapping)
    return Place(field="distributed.nodes.max" if is_range else "distributed.nodes")


def gpus_are_unused(why: str, case: str = "", holds: Callable[[Any, Settings], bool] = _always) -> IgnoredOption:
    """Return what services declare where something else decides on the GPUs of a trial. See `IgnoredOption`."""
    return IgnoredOption(GPU_OPTION, why, case, holds)


def needs_assigned_gpus(option: str, case: str = "", holds: Callable[[Any, Settings], bool] = _always) -> IgnoredOption:
    """Return what services declare of an option on the GPUs that they assign, for a Config with `trial_gpu_number`.

    `case` is added to the words that say when the option has no effect, and `holds` to the condition.
    """
    return IgnoredOption(
        option,
        f"trials see all GPUs, or none; set {GPU_OPTION} to have GPUs assigned",
        f"unless `{GPU_OPTION}` is above 0{case}",
        lambda config, settings: not config.trial_gpu_number and holds(config, settings),
    )


def check_variables(names: Iterable[str], field: str = "environment_variables") -> None:
    """Check the variables in a field. Raises: ConfigError for what cannot be a variable of trials."""
    for name in names:
        if not _VARIABLE.fullmatch(name) or name.startswith(_OURS):
            raise ConfigError(f"{name!r} is not a valid name of an environment variable", field_place(field))
