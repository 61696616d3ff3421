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
