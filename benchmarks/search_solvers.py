"""Who searches: nnilite's tuners, plain optuna with the same samplers, and NNI 3.0's own tuners.

A solver is made for one run: `ask()` gives parameters, `tell(parameters, value)` the loss of the last ones. Those of
nnilite and optuna also take many at once: `asked` is the number of the last ones, and `tell` and `give_up` take it.
"""

from __future__ import annotations

import json
import subprocess
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, Protocol

from nnilite._plugins import lookup
from nnilite.errors import NoMoreTrialError, SpaceError
from nnilite.space import Parameter, ParameterKind, SearchSpace
from nnilite.tuning.class_args import construct

OURS = ("TPE", "Anneal", "Evolution", "CMAES", "QMC", "Random")
OURS_WITH_MODEL = ("GP", "Metis", "SMAC", "DNGO")
PLAIN = ("TPE", "CMA-ES")
PLAIN_WITH_MODEL = ("GP",)
NNI = ("TPE", "Evolution")


class Solver(Protocol):
    def ask(self) -> dict[str, Any] | None: ...
    def tell(self, parameters: dict[str, Any], value: float) -> None: ...
    def close(self) -> None: ...


class CrowdedSolver(Solver, Protocol):
    """Takes results in any order."""

    @property
    def asked(self) -> int: ...
    def tell(self, parameters: dict[str, Any], value: float, asked: int | None = None) -> None: ...
    def give_up(self, asked: int) -> None: ...


class Ours:
    """A tuner of nnilite. Raises: SpaceError if it cannot take the space."""

    def __init__(self, name: str, space: dict[str, Any], seed: int) -> None:
        self._tuner: Any = construct(lookup.tuner_class(name), {"optimize_mode": "minimize", "seed": seed})
        self._tuner.update_search_space(space)
        self._count = 0

    def ask(self) -> dict[str, Any] | None:
        self._count += 1
        try:
            return dict(self._tuner.generate_parameters(self._count - 1))
        except NoMoreTrialError:
            return None

    @property
    def asked(self) -> int:
        return self._count - 1

    def tell(self, parameters: dict[str, Any], value: float, asked: int | None = None) -> None:
        asked = self.asked if asked is None else asked
        self._tuner.receive_trial_result(asked, parameters, value)
        self._tuner.trial_end(asked, True)

    def give_up(self, asked: int) -> None:
        self._tuner.trial_end(asked, False)

    def close(self) -> None:
        self._tuner._on_exit()


class Plain:
    """An optuna study as its users write it: suggest_* in the order of the space."""

    def __init__(self, name: str, space: dict[str, Any], seed: int) -> None:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._space = SearchSpace.parse(space)
        nested = any(p.parent is not None for p in self._space.parameters)
        choices = any(p.kind is ParameterKind.CHOICE for p in self._space.parameters)
        if name == "CMA-ES" and (nested or choices):
            raise SpaceError("CMA-ES is for numbers")
        if name == "GP" and nested:
            raise SpaceError("optuna's GP draws nested parameters at random")
        samplers: dict[str, Callable[[], Any]] = {
            "default": lambda: optuna.samplers.TPESampler(seed=seed),
            "liar": lambda: optuna.samplers.TPESampler(seed=seed, constant_liar=True),
            "TPE": lambda: optuna.samplers.TPESampler(seed=seed, multivariate=True, group=nested),
            "CMA-ES": lambda: optuna.samplers.CmaEsSampler(seed=seed),
            "GP": lambda: optuna.samplers.GPSampler(seed=seed),
            # OptunaHub's AutoSampler, up to 250 results: its GP for numbers alone, else TPE for several workers
            "AutoSampler": (
                (lambda: optuna.samplers.TPESampler(seed=seed, multivariate=True, constant_liar=True))
                if nested or choices
                else (lambda: optuna.samplers.GPSampler(seed=seed))
            ),
        }
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._study = optuna.create_study(sampler=samplers[name]())

    def ask(self) -> dict[str, Any] | None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._trial = self._study.ask()
            flat: dict[Any, Any] = {}
            for p in self._space.parameters:
                if p.parent is None or flat.get(p.parent[0]) == p.parent[1]:
                    flat[p.path] = self._suggest(p)
        return self._space.build(flat)

    def _suggest(self, p: Parameter) -> Any:
        name = ".".join(map(str, p.path))
        if p.kind is ParameterKind.CHOICE:
            return self._trial.suggest_categorical(name, list(range(len(p.values))))
        if p.kind is ParameterKind.RANDINT:
            return self._trial.suggest_int(name, int(p.low or 0), int(p.high or 0) - 1)
        if p.mu is not None and p.sigma is not None:  # optuna has no normal type: three standard deviations
            return self._trial.suggest_float(name, p.mu - 3 * p.sigma, p.mu + 3 * p.sigma)
        step = p.q if p.q is not None and not p.log else None
        return self._trial.suggest_float(name, p.low, p.high, log=p.log, step=step)

    @property
    def asked(self) -> int:
        return int(self._trial.number)

    def tell(self, parameters: dict[str, Any], value: float, asked: int | None = None) -> None:
        self._study.tell(self.asked if asked is None else asked, value)

    def give_up(self, asked: int) -> None:
        import optuna

        self._study.tell(asked, state=optuna.trial.TrialState.FAIL)

    def close(self) -> None:
        pass


@cache
def _nni_process(python: Path) -> subprocess.Popen[str]:
    """One for all runs of a worker: to import NNI takes seconds. It ends with the worker, which closes its stdin."""
    script = Path(__file__).with_name("search_nni.py")
    pipe = subprocess.PIPE
    return subprocess.Popen([str(python), str(script)], stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True)


class Nni:
    """One of NNI's own tuners, in a process of the Python that has NNI."""

    def __init__(self, python: Path, name: str, space: dict[str, Any], seed: int) -> None:
        self._process = _nni_process(python)
        self._count = 0
        self._say({"tuner": name, "seed": seed, "space": space})

    def _say(self, request: dict[str, Any]) -> Any:
        if self._process.stdin is None or self._process.stdout is None:
            raise RuntimeError("NNI's process has no pipes")
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("NNI's tuner died")
        return json.loads(line)

    def ask(self) -> dict[str, Any] | None:
        self._count += 1
        found = self._say({"ask": self._count - 1})
        return found if isinstance(found, dict) else None

    def tell(self, parameters: dict[str, Any], value: float) -> None:
        self._say({"tell": self._count - 1, "parameters": parameters, "value": value})

    def close(self) -> None:
        pass


def make_crowded(label: str, space: dict[str, Any], seed: int) -> CrowdedSolver:
    """As `make`, for several trials at once. Raises: ValueError for NNI's tuners."""
    family, name = label.split(" ", 1)
    if family == "NNI":
        raise ValueError(f"{label}: NNI's tuners are not tried with several trials at once")
    return Ours(name, space, seed) if family == "nnilite" else Plain(name, space, seed)


def make(label: str, space: dict[str, Any], seed: int, nni_python: Path | None) -> Solver:
    """`nnilite TPE`, `optuna TPE` or `NNI TPE`. Raises: SpaceError if it cannot take the space."""
    family, name = label.split(" ", 1)
    if family == "nnilite":
        return Ours(name, space, seed)
    if family == "optuna":
        return Plain(name, space, seed)
    if nni_python is None:
        raise RuntimeError("there is no Python with NNI")
    return Nni(nni_python, name, space, seed)
