"""Checks the arguments of `Search` and of its `run` by their types: a sentence says what to write."""

from __future__ import annotations

import os
from collections.abc import Mapping
from numbers import Real
from typing import Any

from nnilite._states import TrialState
from nnilite.assessor import Assessor
from nnilite.errors import ConfigError, Conflict, SpaceError
from nnilite.tuner import Tuner


def check_search_arguments(
    tuner: Any, optimize: Any, assessor: Any, storage: Any, constraints: Any, result_constraints: Any
) -> None:
    """Check arguments of `Search`. Raises: ConfigError."""
    _check_algorithm("tuner", tuner, Tuner, "'TPE'")
    _check_algorithm("assessor", assessor, Assessor, "'Medianstop'")
    if not isinstance(optimize, (str, Mapping)):
        raise ConfigError(
            f"optimize: must be 'maximize', 'minimize' or, for several objectives, a dict such as "
            f"{{'accuracy': 'maximize', 'size': 'minimize'}}, not {optimize!r:.100}"
        )
    if isinstance(optimize, str) and optimize not in ("maximize", "minimize"):
        meant = [word for word in ("maximize", "minimize") if optimize.lower()[:3] == word[:3]]
        hint = f"; did you mean {meant[0]!r}?" if meant else ""
        raise ConfigError(f"optimize: must be 'maximize' or 'minimize', not {optimize!r:.100}{hint}")
    if not isinstance(storage, (str, os.PathLike, type(None))) or isinstance(os.fspath(storage or ""), bytes):
        raise ConfigError(f"storage: must be the path of a folder, such as 'searches/first', not {storage!r:.100}")
    for word, texts in (("constraints", constraints), ("result_constraints", result_constraints)):
        if isinstance(texts, str):
            raise ConfigError(f"{word}: must be a list of texts: write [{texts!r:.100}]")
        if isinstance(texts, bytes) or not hasattr(texts, "__iter__"):
            raise ConfigError(f"{word}: must be a list of texts, such as ['x + y <= 1'], not {texts!r:.100}")
        if not all(isinstance(text, str) for text in (texts if isinstance(texts, (list, tuple)) else ())):
            raise ConfigError(f"{word}: each must be a text, such as 'x + y <= 1'; it is {texts!r:.100}")


def check_space(space: Any) -> None:
    """Refuse the name of a file in place of a search space. Raises: SpaceError."""
    if isinstance(space, (str, os.PathLike)):
        name = os.fspath(space)
        is_yaml = str(name).lower().endswith((".yaml", ".yml"))
        reads = "yaml.safe_load" if is_yaml else "json.loads"
        raise SpaceError(
            f"a search space is a dict of parameters, not the name of a file; read the file: "
            f"Search({reads}(pathlib.Path({name!r}).read_text()))"
        )


def check_run_arguments(counts: Mapping[str, Any], callbacks: Any) -> None:
    """Check arguments of `Search.run`. Raises: Conflict."""
    for name, count in counts.items():
        if count is not None and not isinstance(count, Real):
            raise Conflict(f"{name} must be a whole number, not {count!r:.100}.")
    numbers = [count for count in counts.values() if count is not None]
    if any(number < 1 for number in numbers):
        raise Conflict(f"trials, concurrency and total must be at least 1, not {' and '.join(map(str, numbers))}.")
    if callable(callbacks):
        raise Conflict("callbacks must be a list: write callbacks=[...] around the function.")


def read_state(given: Any) -> TrialState:
    """Return the state in which `Search.tell` ends a trial: a state, or its name. Raises: ConfigError."""
    name = str(getattr(given, "name", given))  # optuna's states have names, too
    if name in _ENDS:
        return TrialState[name]
    meant = _STATES_ELSEWHERE.get(name.upper(), name.upper())
    hint = f"; did you mean {meant!r}?" if meant in _ENDS else ""
    raise ConfigError(f"state: must be one of {', '.join(_ENDS)}, not {given!r:.100}{hint}")


_ENDS = [state.value for state in TrialState if state.ended]
_STATES_ELSEWHERE = {
    **dict.fromkeys(("COMPLETE", "COMPLETED", "FINISHED", "OK", "TERMINATED", "SUCCESS"), "SUCCEEDED"),
    **dict.fromkeys(("FAIL", "ERROR", "CRASHED"), "FAILED"),
    **dict.fromkeys(("PRUNED", "STOPPED"), "EARLY_STOPPED"),
}
"""What Optuna, Ax, hyperopt, Ray Tune and W&B call the ends of trials."""


def _check_algorithm(word: str, given: Any, kind: type, example: str) -> None:
    if given is None or isinstance(given, (str, kind)):
        return
    name = given.get("name") if isinstance(given, Mapping) else None
    if isinstance(name, str):
        cure = f"give its name alone, {word}={name!r}"
        cure += ", and its classArgs as further arguments" if word == "tuner" else ""
    elif isinstance(given, type):
        cure = f"give an object of the class: {word}={given.__name__}()"
    else:
        cure = f"give the name of an installed one, such as {word}={example}, or an object of a class of {word}s"
    raise ConfigError(f"{word}: {given!r:.100} is not a{'n' if word == 'assessor' else ''} {word}; {cure}")
