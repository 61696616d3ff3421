"""The section `trainingService: {platform: simulated}`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from nnilite.errors import ConfigError
from nnilite.service import IgnoredOption
from nnilite.services.section_fields import gpus_are_unused
from nnilite.units import Duration, FilePath, PositiveInt, PositiveNumber


@dataclass(frozen=True)
class SimulatedConfig:
    """Where the curves of trials come from, and in which world they pass."""

    objective: Annotated[
        str | None, "`file.py:function` in the code directory: parameters in, a number or a list of numbers out"
    ] = None
    curves: Annotated[FilePath | None, "recorded curves: a JSON list of numbers on each line, one line for a trial"] = (
        None
    )
    trace: Annotated[
        Literal["steady", "spot"], "prices and interruptions that come with nnilite: on demand, or as on spot nodes"
    ] = "steady"
    trace_file: Annotated[FilePath | None, "your own, as CSV with hour, price and interruption, in place of trace"] = (
        None
    )
    step_time: Annotated[Duration, "simulated time between two intermediate results"] = 60
    start_time: Annotated[Duration, "simulated time from the start of an attempt to its first step"] = 60
    speed_up: Annotated[PositiveNumber, "simulated seconds in one second"] = 600.0
    slots: Annotated[PositiveInt | None, "how many attempts run at once; default: no limit"] = None
    checkpoint_every: Annotated[
        PositiveInt | None,
        "number of steps after which an attempt saves; default: a further attempt starts from the beginning",
    ] = None
    workers: Annotated[PositiveInt, "machines of a trial, each at the price of a slot"] = 1
    min_workers: Annotated[
        PositiveInt | None, "the fewest machines with which a trial continues, more slowly; default: all of them"
    ] = None
    replace_time: Annotated[Duration, "simulated time until another machine is there for a lost one"] = 600
    # No command is run.
    trial_command: Annotated[str, "has no effect here"] = ""

    def __post_init__(self) -> None:
        if self.min_workers is not None and self.min_workers > self.workers:
            raise ConfigError(f"minWorkers: {self.min_workers} is more than workers ({self.workers}); raise workers")
        if self.trace_file is not None and self.trace == "spot":
            raise ConfigError("trace: spot and traceFile are both given; leave one of them out")
        if (self.objective is None) == (self.curves is None):
            raise ConfigError("needs either objective (file.py:function) or curves (a file)")
        if self.objective is not None and not all(self.objective.rpartition(":")[::2]):
            raise ConfigError(f"objective: {self.objective!r} is not of the form file.py:function")


_NO_COMMAND = "no command is run in simulated time"
IGNORED = (
    IgnoredOption("trialCommand", _NO_COMMAND),
    IgnoredOption(
        "trialCodeDirectory",
        "the results come from curves",
        "with `curves`",
        lambda config, settings: config.curves is not None,
    ),
    IgnoredOption("codeLimits", "nothing is packed"),
    gpus_are_unused(_NO_COMMAND),
    *(IgnoredOption(option, _NO_COMMAND) for option in ("nniManagerIp", "sharedStorage")),
    *(IgnoredOption(option, _NO_COMMAND) for option in ("checkpoint.keep", "checkpoint.maxSize", "gracePeriod")),
    IgnoredOption("retryOn", f"{_NO_COMMAND}, so there are no exit codes"),
    IgnoredOption("maxOutputSize", _NO_COMMAND),
)
"""What has no effect where nothing runs."""
