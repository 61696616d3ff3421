"""What optuna draws, of experiments and searches.

    from nnilite import plot

    plot.history(experiment)                       # in a notebook the figure shows itself
    plot.importance(result, objective="accuracy").write_html("importance.html")

Each function accepts any object with `to_optuna()` (an `Experiment`, a `SearchResult`) or a study of optuna, and
returns a figure of plotly. `parameters` are names as in the study: those of the search space, inside a nested choice
with dots, as `model.cnn.layers`. `objective` names one of several; without it, the first one is drawn.

Raises, each: PluginError if plotly is missing, NotFound for an unknown objective or parameter, Conflict if there is
nothing to draw yet.

drawing       the figures
optuna_study  an experiment or a search as a study of optuna
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from nnilite.errors import no_attribute
from nnilite.plot.drawing import (
    contour,
    edf,
    front,
    history,
    importance,
    intermediate_values,
    parallel_coordinates,
    rank,
    slices,
    timeline,
)

__all__ = [
    "contour",
    "edf",
    "front",
    "history",
    "importance",
    "intermediate_values",
    "parallel_coordinates",
    "rank",
    "slices",
    "timeline",
]


def __dir__() -> list[str]:
    """List what is for users: notebooks and shells offer it after a dot."""
    return __all__


_OF_OPTUNA = {
    "plot_contour": "contour",
    "plot_edf": "edf",
    "plot_intermediate_values": "intermediate_values",
    "plot_optimization_history": "history",
    "plot_parallel_coordinate": "parallel_coordinates",
    "plot_param_importances": "importance",
    "plot_pareto_front": "front",
    "plot_rank": "rank",
    "plot_slice": "slices",
    "plot_timeline": "timeline",
}


if not TYPE_CHECKING:  # to type checkers, a module with this function has every name

    def __getattr__(name: str) -> Any:
        raise no_attribute("module 'nnilite.plot'", sys.modules[__name__], name, _OF_OPTUNA)
