"""What proposes trials, and says after each epoch whether they go on: nnilite's tuners and assessors, and optuna's.

They are imported from their packages and not found by name, so that they run in a checkout that is not installed.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from benchmarks.learning_tables import EPOCHS, LearningTable

CHECKPOINTS = "/checkpoints"  # of no file system: a simulated trial goes on from the epochs that it names


@dataclass
class SimulatedTrial:
    """It begins with the epoch `done`, which an earlier one of the same parameters has reached, and has `until`."""

    number: int
    row: int
    until: int
    done: int = 0
    parameters: dict[str, Any] = field(default_factory=dict)
    losses: list[float] = field(default_factory=list)

    @property
    def best(self) -> float:
        return min(self.losses)


class Source(Protocol):
    def begin(self) -> SimulatedTrial | None: ...  # None: nothing can run until something ends
    def goes_on(self, trial: SimulatedTrial) -> bool: ...  # after each epoch
    def end(self, trial: SimulatedTrial, stopped: bool) -> None: ...


def find(name: str) -> Any:
    module, _, kind = name.partition(":")
    return getattr(importlib.import_module(module), kind)


class OurTrials:
    """A tuner, perhaps one that gives budgets, and perhaps an assessor."""

    def __init__(
        self, table: LearningTable, seed: int, tuner: str, assessor: str = "", budgets: dict[str, Any] | None = None
    ) -> None:
        self._table = table
        self._tuner = find(tuner)(optimize_mode="minimize", seed=seed, **(budgets or {}))
        self._tuner.update_search_space(table.space)
        self._assessor = (
            find(assessor)(optimize_mode="minimize", **ASSESSOR_ARGS.get(assessor, {})) if assessor else None
        )
        self._saved: dict[str | None, int] = {}  # epochs by folder
        self._next = 0

    def begin(self) -> SimulatedTrial | None:
        from nnilite.errors import NoMoreTrialError

        try:
            parameters = self._tuner.generate_parameters(self._next)
        except NoMoreTrialError:
            return None
        done = self._saved.get(parameters.get("load_checkpoint_dir"), 0)
        until = int(parameters.get("TRIAL_BUDGET", EPOCHS))
        trial = SimulatedTrial(self._next, self._table.row(parameters), until, done, parameters)
        trial.losses = self._table.losses[trial.row, :done].tolist()
        self._next += 1
        return trial

    def goes_on(self, trial: SimulatedTrial) -> bool:
        if self._assessor is None:
            return True
        return self._assessor.assess_trial(str(trial.number), list(trial.losses)) in (True, _good())

    def end(self, trial: SimulatedTrial, stopped: bool) -> None:
        if "save_checkpoint_dir" in trial.parameters:
            self._saved[trial.parameters["save_checkpoint_dir"]] = len(trial.losses)
        # As in an experiment: a trial that was stopped has its latest result.
        value = trial.losses[-1] if stopped else trial.best
        self._tuner.receive_trial_result(trial.number, trial.parameters, value)
        self._tuner.trial_end(trial.number, not stopped)
        if self._assessor is not None:
            self._assessor.trial_end(str(trial.number), not stopped)


def _good() -> Any:
    from nnilite.assessor import AssessResult

    return AssessResult.Good


class OptunaTrials:
    """A study of optuna with a pruner."""

    def __init__(self, table: LearningTable, seed: int, sampler: Any, pruner: Any) -> None:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._table = table
        self._study = optuna.create_study(sampler=sampler, pruner=pruner)
        self._trials: dict[int, Any] = {}
        self._axes = {
            name: optuna.distributions.CategoricalDistribution(values)
            if isinstance(values[0], str)
            else optuna.distributions.IntDistribution(0, len(values) - 1)
            for name, values in table.values.items()
        }

    def begin(self) -> SimulatedTrial | None:
        trial = self._study.ask(self._axes)
        self._trials[trial.number] = trial
        return SimulatedTrial(trial.number, self._table.row(trial.params), EPOCHS)

    def goes_on(self, trial: SimulatedTrial) -> bool:
        known = self._trials[trial.number]
        known.report(trial.losses[-1], len(trial.losses))
        return not known.should_prune()

    def end(self, trial: SimulatedTrial, stopped: bool) -> None:
        from optuna.trial import TrialState

        known = self._trials.pop(trial.number)
        if stopped:
            self._study.tell(known, state=TrialState.PRUNED)
        else:
            self._study.tell(known, trial.best)


def _optuna(sampler: str, pruner: str, **arguments: Any) -> Callable[[LearningTable, int, int], Source]:
    def make(table: LearningTable, seed: int, at_once: int) -> Source:
        import optuna

        more = {"constant_liar": True} if sampler == "TPESampler" and at_once > 1 else {}
        chosen = getattr(optuna.samplers, sampler)(seed=seed, **more)
        return OptunaTrials(table, seed, chosen, getattr(optuna.pruners, pruner)(**arguments))

    return make


def _ours(tuner: str, assessor: str = "", **budgets: Any) -> Callable[[LearningTable, int, int], Source]:
    return lambda table, seed, at_once: OurTrials(table, seed, tuner, assessor, budgets)


_RANDOM, _TPE, _AUTO = "nnilite_basic:RandomTuner", "nnilite_optuna:TPETuner", "nnilite_optuna:AutoTuner"
_MEDIAN, _OWN = "nnilite_basic:MedianstopAssessor", "nnilite_basic:AutoAssessor"
_HALVING, _CURVES = "nnilite_optuna:SuccessiveHalvingAssessor", "nnilite_sklearn:CurvefittingAssessor"
_PERCENTILE = "nnilite_optuna:PercentileAssessor"
ASSESSOR_ARGS = {_CURVES: {"epoch_num": EPOCHS, "gap": 9}}  # fits of curves after each epoch would take hours
METHODS: dict[str, Callable[[LearningTable, int, int], Source]] = {
    "nnilite Random": _ours(_RANDOM),
    "nnilite Random, Auto": _ours(_RANDOM, _OWN),
    "nnilite TPE": _ours(_TPE),
    "nnilite TPE, Auto": _ours(_TPE, _OWN),
    "nnilite TPE, Medianstop": _ours(_TPE, _MEDIAN),
    "nnilite TPE, Percentile": _ours(_TPE, _PERCENTILE),
    "nnilite TPE, SuccessiveHalving": _ours(_TPE, _HALVING),
    "nnilite TPE, Curvefitting": _ours(_TPE, _CURVES),
    "nnilite Auto": _ours(_AUTO),
    "nnilite Auto, Auto": _ours(_AUTO, _OWN),
    "nnilite Auto, SuccessiveHalving": _ours(_AUTO, _HALVING),
    "nnilite ASHA": _ours("nnilite_optuna:ASHATuner", max_budget=EPOCHS, all_checkpoint_dir=CHECKPOINTS),
    "nnilite ASHA, without checkpoints": _ours("nnilite_optuna:ASHATuner", max_budget=EPOCHS),
    "nnilite Hyperband": _ours("nnilite_optuna:HyperbandTuner", R=EPOCHS),
    "nnilite Hyperband, with checkpoints": _ours(
        "nnilite_optuna:HyperbandTuner", R=EPOCHS, all_checkpoint_dir=CHECKPOINTS
    ),
    "nnilite BOHB": _ours("nnilite_optuna:BOHBTuner", max_budget=EPOCHS),
    "nnilite BOHB, with checkpoints": _ours(
        "nnilite_optuna:BOHBTuner", max_budget=EPOCHS, all_checkpoint_dir=CHECKPOINTS
    ),
    "optuna TPE": _optuna("TPESampler", "NopPruner"),
    "optuna TPE, Median": _optuna("TPESampler", "MedianPruner"),
    "optuna TPE, Hyperband": _optuna("TPESampler", "HyperbandPruner", max_resource=EPOCHS),
    "optuna TPE, SuccessiveHalving": _optuna("TPESampler", "SuccessiveHalvingPruner"),
}
