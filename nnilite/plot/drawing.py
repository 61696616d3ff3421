"""The figures of experiments and searches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from nnilite.errors import Conflict, NotFound, PluginError
from nnilite.plot import optuna_study

if TYPE_CHECKING:
    from optuna.study import Study
    from optuna.trial import FrozenTrial
    from plotly.graph_objects import Figure


class HasStudy(Protocol):
    """An `Experiment`, a `Search` or a `SearchResult`."""

    def to_optuna(self) -> Study:
        """Return all trials, as a study."""


Source: TypeAlias = "HasStudy | Study"


def history(source: Source, objective: str | None = None) -> Figure:
    """Draw the values of all trials in their order, and the best so far."""
    return _draw("plot_optimization_history", source, objective)


def importance(source: Source, objective: str | None = None, parameters: Sequence[str] | None = None) -> Figure:
    """Draw how much each parameter matters for the objective."""
    return _draw("plot_param_importances", source, objective, parameters, several=True)


def slices(source: Source, objective: str | None = None, parameters: Sequence[str] | None = None) -> Figure:
    """Draw the objective over each parameter."""
    return _draw("plot_slice", source, objective, parameters)


def contour(source: Source, objective: str | None = None, parameters: Sequence[str] | None = None) -> Figure:
    """Draw the objective over each pair of parameters."""
    return _draw("plot_contour", source, objective, parameters, several=True)


def parallel_coordinates(
    source: Source, objective: str | None = None, parameters: Sequence[str] | None = None
) -> Figure:
    """Draw one line for each trial, across its parameters and the objective."""
    return _draw("plot_parallel_coordinate", source, objective, parameters)


def rank(source: Source, objective: str | None = None, parameters: Sequence[str] | None = None) -> Figure:
    """Draw pairs of parameters, coloured by the rank of the objective."""
    return _draw("plot_rank", source, objective, parameters, several=True)


def edf(*sources: Source, objective: str | None = None) -> Figure:
    """Draw which share of the trials reached which value; a line for each source."""
    if not sources:
        raise Conflict("edf needs an experiment, a search result or a study.")
    return _draw("plot_edf", sources[0], objective, more=sources[1:])


def front(source: Source) -> Figure:
    """Draw the trials in two or three objectives, and those that no other one beats.

    Raises: Conflict for another number.
    """
    study = _study(source)
    if len(study.directions) not in (2, 3):
        raise Conflict(f"a front is drawn for two or three objectives, and here {_amount(len(study.directions))}.")
    _completed(study)
    return _call("plot_pareto_front", study, target_names=study.metric_names)


def intermediate_values(source: Source) -> Figure:
    """Draw the intermediate results of each trial, step by step; with several objectives, of the first."""
    study = _study(source)
    if not any(trial.intermediate_values for trial in study.get_trials(deepcopy=False)):
        raise Conflict("no trial has reported an intermediate result that is a number.")
    return _call("plot_intermediate_values", study)


def timeline(source: Source) -> Figure:
    """Draw when each trial ran, and how it ended."""
    study = _study(source)
    if not study.get_trials(deepcopy=False):
        raise Conflict("there are no trials yet.")
    return _call("plot_timeline", study)


def _draw(
    plot: str,
    source: Source,
    objective: str | None,
    parameters: Sequence[str] | None = None,
    *,
    several: bool = False,
    more: Sequence[Source] = (),
) -> Figure:
    study = _study(source)
    trials = _completed(study)
    names = study.metric_names or ["default"]
    if objective is not None and objective not in names:
        raise NotFound(f"there is no objective {objective!r}; there is {', '.join(names)}.")
    at = names.index(objective) if objective is not None else 0
    known = sorted({name for trial in trials for name in trial.params})
    _check_parameters(parameters, known)
    if several and plot != "plot_param_importances" and len(parameters or known) < 2:
        raise Conflict(f"this is drawn for two parameters or more, and there is {', '.join(known) or 'none'}.")
    given: dict[str, Any] = {"target_name": "value" if names[at] == "default" else names[at]}
    if plot != "plot_edf" and plot != "plot_optimization_history":
        given["params"] = None if parameters is None else list(parameters)
    # With a target, optuna would not know which direction is better: each objective is a study of its own.
    drawn = [optuna_study.of_one_objective(one, at) for one in (study, *map(_study, more))]
    return _call(plot, drawn if more else drawn[0], **given)


def _check_parameters(given: Sequence[str] | None, known: Sequence[str]) -> None:
    for name in given or ():
        if name not in known:
            raise NotFound(f"no trial with a result has a parameter {name!r}; there is {', '.join(known)}.")


def _completed(study: Study) -> list[FrozenTrial]:
    from optuna.trial import TrialState

    found = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    if not found:
        raise Conflict("no trial has succeeded yet, so there is nothing to draw.")
    return found


def _study(source: Source) -> Study:
    optuna_study.import_quietly()
    from optuna.study import Study

    if isinstance(source, Study):
        return source
    if hasattr(source, "to_optuna"):
        return source.to_optuna()
    raise Conflict(f"{source!r:.100} cannot be drawn; give an Experiment, a SearchResult or a study of optuna.")


def _call(plot: str, study: Any, **given: Any) -> Figure:
    import warnings

    from optuna import visualization
    from optuna.exceptions import ExperimentalWarning

    if not visualization.is_available():
        raise PluginError("nnilite.plot needs plotly. Install it with: pip install 'nnilite[plot]'")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)
        return getattr(visualization, plot)(study, **given)


def _amount(count: int) -> str:
    return "there is one" if count == 1 else f"there are {count}"
