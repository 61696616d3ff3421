"""The words of users of optuna, Ray Tune, hyperopt and scikit-learn, and the words here."""

from __future__ import annotations

from collections.abc import Iterable

_OF_SEARCH = {
    "direction": "optimize='minimize'",
    "directions": "optimize={'loss': 'minimize', 'size': 'minimize'}",
    "sampler": "tuner='TPE'",
    "search_alg": "tuner='TPE'",
    "pruner": "assessor='Medianstop'",
    "scheduler": "assessor='Medianstop', or tuner='ASHA'",
    "study_name": "storage='searches/NAME', whose last part is the name",
    "load_if_exists": "storage='searches/NAME' alone, which continues a search that is there",
    "goal": "optimize='minimize'",
    "mode": "optimize='minimize'",
    "random_state": "seed=",
    "points_to_evaluate": "search.enqueue(parameters) for each of them",
    "n_trials": "trials= in `Search.run`",
    "num_samples": "trials= in `Search.run`",
    "max_evals": "trials= in `Search.run`",
}
_OF_RUN = {
    "n_trials": "trials=",
    "num_samples": "trials=",
    "max_evals": "trials=",
    "n_jobs": "concurrency=",
    "max_concurrent_trials": "concurrency=",
    **dict.fromkeys(("workers", "num_workers", "n_workers", "max_workers", "parallelism"), "concurrency="),
    "timeout": "timeout_s=",
    "time_budget_s": "timeout_s=",
    "show_progress_bar": "progress=True",
    "verbose": "progress=True",
    "catch": "nothing: an exception fails its trial, and the search continues",
    "gc_after_trial": "nothing",
    "func": "the function as first argument",
    "resume": "storage='searches/NAME' in `Search`, which continues a search that is there",
    "goal": "a callback that calls search.stop() once a result is good enough",
}
_IN_SEARCH = ("tuner", "optimize", "seed", "assessor", "storage", "constraints", "result_constraints", "direction")

OF_SEARCHES = {
    "optimize": "run(function, trials=...)",
    "fit": "run(function, trials=...)",
    "best": "result().best",
    "best_params": "result().best.parameters",
    "best_value": "result().best.value",
    "best_trial": "result().best",
    "best_trials": "result().front",
    "trials": "result().trials",
    "get_trials": "result().trials",
    "trials_dataframe": "result().to_dataframe()",
    "enqueue_trial": "enqueue(parameters)",
    "get_best_trial": "result().best",
    "get_best_result": "result().best",
    "best_result": "result().best",
    "best_config": "result().best.parameters",
    "get_best_parameters": "result().best.parameters",
    "get_best_hyperparameters": "result().best.parameters",
    "get_dataframe": "result().to_dataframe()",
    "get_next_trial": "ask()",
    "get_next_trials": "ask()",
    "suggest": "ask()",
    "complete_trial": "tell(trial, value)",
    "observe": "tell(trial, value)",
    "attach_trial": "add_trial(parameters, value)",
    "register": "add_trial(parameters, value)",
    "set_user_attr": "set_attribute(trial, name, value), of a trial",
    "save": "Search(space, storage='searches/NAME')",
}
"""What to write for attributes of a study or a tuner."""
OF_RESULTS = {
    "best_params": "best.parameters",
    "best_config": "best.parameters",
    "best_value": "best.value",
    "best_trial": "best",
    "best_result": "best",
    "get_best_result": "best",
    "best_trials": "front",
    "trials_dataframe": "to_dataframe()",
    **dict.fromkeys(("get_dataframe", "dataframe", "df", "to_pandas", "results_df"), "to_dataframe()"),
    "x": "best.parameters",
    "fun": "best.value",
    "to_csv": "to_dataframe().to_csv(path)",
    "importance": "nnilite.plot.importance(result)",
}
"""What to write for attributes of a study that has ended, or of a grid of results."""


def refuse_in_search(given: Iterable[str]) -> None:
    """Check the names of arguments of `Search`. Raises: TypeError with the word here for one of another library."""
    _refuse("Search", given, _OF_SEARCH, known=False)


def refuse_in_run(given: Iterable[str]) -> None:
    """Refuse arguments that `Search.run` does not have. Raises: TypeError, if there are any."""
    _refuse("Search.run", given, _OF_RUN, known=True)


def _refuse(where: str, given: Iterable[str], words: dict[str, str], *, known: bool) -> None:
    for name in given:
        if name in words:
            raise TypeError(f"{where} has no argument {name!r}; write {words[name]}.")
        if known and name in _IN_SEARCH:
            raise TypeError(f"{where} has no argument {name!r}; give it to `Search`.")
        if known:
            raise TypeError(f"{where} has no argument {name!r}.")
