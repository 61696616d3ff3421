"""What is known of an experiment: the facts that stay, and its present state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from nnilite._answers.queries import ServiceState
from nnilite.records import ExperimentLimits, ExperimentState, Json, Trial, TrialState


@dataclass(frozen=True)
class ExperimentFacts:
    """The facts that do not change while a manager runs."""

    id: str
    directory: Path
    config: Mapping[str, Json]  # its secrets are hidden
    platforms: tuple[str, ...]
    created: float
    maximize: bool
    space: Json
    objectives: Mapping[str, str]
    port: int = 0
    url: str = ""
    pid: int = 0
    services: tuple[ServiceState, ...] = ()
    without_effect: tuple[str, ...] = ()  # a sentence for each option that was set and has none
    can_preload: bool = False  # whether trials could start with preloaded modules, and do not
    searched: frozenset[str] = frozenset()  # names in the first search space, if the tuner is the user's own
    name: str = ""  # the one that a person gave it later; "" leaves that of the config

    @property
    def has_prices(self) -> bool:
        return any(service.cost is not None for service in self.services)


@dataclass(frozen=True)
class ExperimentProgress:
    """The present state of the experiment."""

    state: ExperimentState
    reason: str
    duration_s: float
    ended: float | None
    limits: ExperimentLimits
    counts: Mapping[TrialState, int]
    best: Trial | None
    next_sequence: int
    spent: Mapping[str, float] = field(default_factory=dict)  # by service
