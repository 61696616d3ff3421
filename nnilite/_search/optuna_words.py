"""The words of optuna's users, and the words here."""

from __future__ import annotations

from collections.abc import Iterable

_OF_SEARCH = {
    "direction": "optimize='minimize'",
    "directions": "optimize={'loss': 'minimize', 'size': 'minimize'}",
    "sampler": "tuner='TPE'",
    "pruner": "assessor='Medianstop'",
    "study_name": "storage='searches/NAME', whose last part is the name",
    "load_if_exists": "storage='searches/NAME' alone, which continues a search that is there",
    "goal": "optimize='minimize'",
    "mode": "optimize='minimize'",
}
_OF_RUN = {
    "n_trials": "trials=",
    "n_jobs": "concurrency=",
    "timeout": "timeout_s=",
    "show_progress_bar": "progress=True",
    "catch": "nothing: an exception fails its trial, and the search continues",
    "gc_after_trial": "nothing",
    "func": "the function as first argument",
}


def refuse_in_search(given: Iterable[str]) -> None:
    """Check the names of arguments of `Search`. Raises: TypeError with the word here for one of optuna's."""
    _refuse("Search", given, _OF_SEARCH, known=False)


def refuse_in_run(given: Iterable[str]) -> None:
    """Refuse arguments that `Search.run` does not have. Raises: TypeError, if there are any."""
    _refuse("Search.run", given, _OF_RUN, known=True)


def _refuse(where: str, given: Iterable[str], words: dict[str, str], *, known: bool) -> None:
    for name in given:
        if name in words:
            raise TypeError(f"{where} has no argument {name!r}; write {words[name]}.")
        if known:
            raise TypeError(f"{where} has no argument {name!r}.")
