"""Population-based training: members train from checkpoints, and poor ones continue from the state of good ones.

A member is a chain of trials. Each trial gets, besides the parameters, `load_checkpoint_dir`, which holds the state to
continue from (empty for the first one), and `save_checkpoint_dir`, where it must leave its own state. The path of the
latter ends in `<epoch>/<member>`, so that the population can be rebuilt from recorded parameters.
"""

from __future__ import annotations

import logging
import math
import random
import tempfile
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

from nnilite.errors import NoMoreTrialError
from nnilite.space import Flat, Parameter
from nnilite.tuning.class_args import number, whole_number
from nnilite.tuning.learning import LearningTuner, Point, PointState
from nnilite.tuning.positions import neighbour

if TYPE_CHECKING:
    from nnilite.records import Json

log = logging.getLogger(__name__)

LOAD, SAVE = "load_checkpoint_dir", "save_checkpoint_dir"


@dataclass
class _PopulationMember:
    epoch: int  # epoch of its latest trial
    flat: Flat  # this and the rest as of its latest trial that succeeded
    directory: str
    loss: float | None = None
    running: bool = True


class PBTTuner(LearningTuner):
    """NNI's PBT (Jaderberg et al., 2017, "Population Based Training of Neural Networks"). All space types.

    The member that is furthest behind runs first. If it is among the poorest, it takes the parameters and the
    checkpoint of one of the best, and its parameters are changed a little. It does not wait for the others. A member
    that diverged (its result is not a number), or that failed before its first checkpoint, continues as one of the
    poorest; after any other failure it tries again from its own checkpoint.

    Args:
        optimize_mode: "maximize" or "minimize".
        all_checkpoint_dir: folder for the checkpoints, reachable by all trials; None: the experiment's own.
        population_size: number of members; also the most trials at a time.
        factor: parameters are multiplied by 1 + factor or 1 - factor.
        resample_probability: chance that a parameter is drawn from its whole range instead.
        fraction: which part of the members counts as the poorest, and as the best.
        seed: any whole number; None for a different search each time.

    Raises: ConfigError
    """

    distinct = False
    extra_keys = frozenset((LOAD, SAVE))

    def __init__(
        self,
        optimize_mode: str = "maximize",
        all_checkpoint_dir: str | None = None,
        population_size: int = 10,
        factor: float = 0.2,
        resample_probability: float = 0.25,
        fraction: float = 0.2,
        seed: int | None = None,
    ) -> None:
        super().__init__(optimize_mode, seed)
        self._size = whole_number("population_size", population_size, low=1)
        self._factor = number("factor", factor, 0.0, 1.0)
        self._resample = number("resample_probability", resample_probability, 0.0, 1.0)
        self._fraction = number("fraction", fraction, 0.0, 0.5)
        self._given = all_checkpoint_dir or self.get_checkpoint_path()

    def _restart(self) -> None:
        self._members: dict[int, _PopulationMember] = {}
        epochs = [place[0] for point in self.points if (place := _place(point)) is not None]
        # Leave a new folder, so that new members do not find checkpoints of an earlier space.
        self._begin = max(epochs, default=-1) + 1
        self._seeds: list[Point] = []  # imported or custom results, with which members begin

    def _suggest(self, parameter_id: int, rng: random.Random) -> Json:
        if len(self._members) < self._size:
            index = next(k for k in range(self._size) if k not in self._members)
            return self._trial(self._first(rng), self._begin, index, None)
        idle = [(member.epoch, index) for index, member in self._members.items() if not member.running]
        if not idle:
            raise NoMoreTrialError(f"all {self._size} members of the population are running")
        index = min(idle)[1]
        member = self._members[index]
        source, flat = member, member.flat
        if self._is_poor(member):
            source = self._model(member, rng)
            flat = self._explore(source.flat, rng)
        return self._trial(flat, member.epoch + 1, index, source.directory)

    def _first(self, rng: random.Random) -> Flat:
        ranked = sorted(self._seeds, key=lambda point: point.loss or 0.0)
        if len(self._members) < len(ranked):
            return ranked[len(self._members)].flat or {}
        return {p.path: p.sample(rng) for p in self.space.parameters}

    @cached_property
    def _directory(self) -> PurePath:
        return PurePath(self._given or tempfile.mkdtemp(prefix="nnilite-pbt-"))

    def _trial(self, flat: Flat, epoch: int, index: int, load: str | None) -> Json:
        save = str(self._directory / str(epoch) / str(index))
        return {**self.space.build(flat), LOAD: load or save, SAVE: save}

    def _rank_members(self) -> list[_PopulationMember]:
        known = [member for member in self._members.values() if member.loss is not None]
        return sorted(known, key=lambda member: member.loss or 0.0)

    def _is_poor(self, member: _PopulationMember) -> bool:
        ranking = self._rank_members()
        if member.loss is None:
            return True
        count = math.ceil(self._fraction * len(ranking))
        return len(ranking) > 1 and any(member is poor for poor in ranking[len(ranking) - count :])

    def _model(self, member: _PopulationMember, rng: random.Random) -> _PopulationMember:
        """Return one of the best members, or the member itself if none has a result yet."""
        ranking = self._rank_members()
        best = ranking[: max(1, math.ceil(self._fraction * len(ranking)))]
        return rng.choice(best) if best else member

    def _explore(self, flat: Flat, rng: random.Random) -> Flat:
        child = {p.path: p.sample(rng) for p in self.space.parameters} | flat
        for parameter in self.space.active(child):
            child[parameter.path] = self._changed(parameter, child[parameter.path], rng)
        return child

    def _changed(self, parameter: Parameter, raw: int | float, rng: random.Random) -> int | float:
        if rng.random() < self._resample:
            return parameter.sample(rng)
        if parameter.count is not None:
            return neighbour(parameter, raw, self._factor / 2.0, rng)
        return parameter.legal(raw * (1.0 + rng.choice((self._factor, -self._factor))))

    def _opened(self, point: Point) -> None:
        place = _place(point)
        if place is None or point.flat is None:
            return
        epoch, index = place
        member = self._members.get(index)
        if member is None:
            self._members[index] = _PopulationMember(epoch, point.flat, str(point.parameters[LOAD]))
        else:
            member.epoch, member.running = epoch, True
        _make(point.parameters[SAVE])

    def _closed(self, point: Point) -> None:
        place = _place(point)
        if place is None or point.flat is None:
            if point.state is PointState.DONE:
                self._seeds.append(point)
            return
        member = self._members[place[1]]
        if member.epoch != place[0]:
            return  # an earlier trial of this member reported late
        member.running = False
        if point.state is PointState.DONE:
            member.flat, member.directory, member.loss = point.flat, str(point.parameters[SAVE]), point.loss
        elif point.state is PointState.POOR:
            member.loss = None  # The member has diverged. It might do so again from its own checkpoint.


def _place(point: Point) -> tuple[int, int] | None:
    """Return the epoch and the member of a trial that this tuner proposed."""
    save = point.parameters.get(SAVE) if isinstance(point.parameters, dict) else None
    parts = PurePath(str(save)).parts[-2:]
    if point.parameter_id is None or len(parts) < 2 or not all(part.isdecimal() for part in parts):
        return None
    return int(parts[0]), int(parts[1])


def _make(directory: str) -> None:
    try:
        Path(directory).mkdir(parents=True, exist_ok=True)
    except OSError as error:  # The folder belongs to the workers and may not be reachable from here.
        log.info("the checkpoint folder %s cannot be made on this machine: %s", directory, error)
