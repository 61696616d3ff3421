"""What a search is, as the config of an experiment: written to its folder, and compared with what is there."""

from __future__ import annotations

import inspect
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from nnilite._plugins import lookup
from nnilite.assessor import Assessor
from nnilite.errors import ConfigError, Conflict
from nnilite.records import Json
from nnilite.tuner import Tuner
from nnilite.tuning.class_args import construct
from nnilite.tuning.constrained_tuner import constrain

if TYPE_CHECKING:
    from pathlib import Path

    from nnilite.config import AlgorithmConfig, CheckedConfig, ExperimentConfig

_NO_COMMAND = "true  # the trials of a search are calls of a Python function"


@dataclass(frozen=True)
class Plan:
    """The arguments of `Search`. `tuner` is "" where none is named."""

    space: Mapping[str, Any]
    tuner: str | Tuner
    optimize: str | Mapping[str, str]
    seed: int | None = None
    assessor: str | Assessor | None = None
    tuner_args: Mapping[str, Any] = field(default_factory=dict)
    constraints: tuple[str, ...] = ()
    result_constraints: tuple[str, ...] = ()

    def make_tuner(self) -> Tuner:
        """Make the tuner, without its space. Raises: ConfigError, PluginError, Conflict."""
        return constrain(self._made_tuner(), self.constraints, self.result_constraints)

    def _made_tuner(self) -> Tuner:
        if isinstance(self.tuner, Tuner):
            if self.tuner_args or self.seed is not None:
                raise Conflict("seed and tuner arguments are for a tuner given by name; give them to your own tuner.")
            return self.tuner
        cls = lookup.tuner_class(self.tuner)
        if not isinstance(self.optimize, str):
            if "objectives" not in _known(cls, objectives=1):
                raise ConfigError(
                    f"optimize: the tuner {self.tuner} has one objective, so write optimize='minimize' or 'maximize', "
                    "and let the function return the number; Auto, the default, takes a dict"
                )
            given = {"objectives": dict(self.optimize), **_known(cls, seed=self.seed)}
        else:
            given = _known(cls, optimize_mode=self.optimize, seed=self.seed)
        return construct(cls, {**given, **self.tuner_args})

    def make_assessor(self) -> Assessor | None:
        """Make the assessor, if there is one. Raises: ConfigError, PluginError."""
        if self.assessor is None or isinstance(self.assessor, Assessor):
            return self.assessor
        cls = lookup.assessor_class(self.assessor)
        return construct(cls, _known(cls, optimize_mode=self.optimize))

    def config(self, folder: Path, name: str) -> CheckedConfig:
        """Make the config of a new experiment with this name, with a seed that all processes of the search share.

        Raises: ConfigError.
        """
        from nnilite.config import ExperimentConfig

        config = ExperimentConfig("local")
        config.experiment_name = name
        config.experiment_working_directory = folder.parent
        config.trial_code_directory = folder
        config.trial_command = _NO_COMMAND
        config.trial_concurrency = 1
        self._fill(config)
        return config.checked(paths=False)

    def fill(self, config: ExperimentConfig) -> None:
        """Give a config what this plan says. What only the config says remains. Raises: ConfigError, Conflict."""
        for word, one in (("tuner", self.tuner), ("assessor", self.assessor)):
            if one is not None and not isinstance(one, str):
                raise Conflict(
                    f"the {word} is an object of this process, and a manager needs one of its own: give a name, or a "
                    f"config whose {word} has className and classArgs."
                )
        config.search_space_file = None
        if not hasattr(config.tuner, "class_args"):
            raise ConfigError(f"tuner: must be a dict such as {{'name': 'TPE'}}, not {config.tuner!r:.100}")
        named = config.tuner
        is_default = not (named.name or named.class_name)
        if self.tuner != "" or (is_default and not named.class_args):
            self.choose_tuner()._fill(config)
            return
        # A tuner of the user's own may call anything its objectives.
        goals = self._goal() if named.class_name else {"optimize_mode": None, "objectives": None, **self._goal()}
        for word, here in goals.items():
            there = named.class_args.get(word, here)
            if there != here:
                raise Conflict(
                    f"the config's tuner has {word} {there!r}, but the search has optimize={self.optimize!r}; "
                    "say the same."
                )
        ours = self.choose_tuner()._make_class_args() if is_default else self._goal()
        name = lookup.DEFAULT_TUNER if is_default else named.name
        config.tuner = replace(named, name=name, class_args={**(ours if name else {}), **named.class_args})
        self._fill_others(config)

    def _fill(self, config: ExperimentConfig) -> None:
        config.tuner = _algorithm(self.tuner)
        config.tuner.class_args = self._make_class_args()
        self._fill_others(config)

    def _fill_others(self, config: ExperimentConfig) -> None:
        config.search_space = dict(self.space)
        if self.constraints:
            config.constraints = list(self.constraints)
        if self.result_constraints:
            config.result_constraints = list(self.result_constraints)
        if self.assessor is not None:
            config.assessor = assessor = _algorithm(self.assessor)
            if isinstance(self.assessor, str) and isinstance(self.optimize, str):
                cls = lookup.assessor_class(self.assessor)
                assessor.class_args = _known(cls, optimize_mode=self.optimize)

    def choose_tuner(self) -> Plan:
        """Return this plan with the default tuner, if none is named."""
        return self if self.tuner != "" else replace(self, tuner=lookup.DEFAULT_TUNER)

    def try_out(self) -> Plan:
        """Return this plan once its tuner and assessor could be made: one that cannot begin would block its folder.

        Raises: ConfigError, PluginError, SpaceError.
        """
        if isinstance(self.tuner, str):
            self.make_tuner().update_search_space(dict(self.space))
        if isinstance(self.assessor, str):
            self.make_assessor()
        return self

    def agreed(self, stored: CheckedConfig, folder: Path) -> Plan:
        """Return this plan with the tuner and the seed of the stored search, where it names none.

        Raises: Conflict if that is another search, ConfigError
        """
        named = stored.tuner.name
        plan = replace(self, tuner=named) if self.tuner == "" and named is not None else self.choose_tuner()
        seed = plan._compare(stored, folder)
        return replace(plan, seed=seed) if plan.seed is None and isinstance(plan.tuner, str) else plan

    def _compare(self, stored: CheckedConfig, folder: Path) -> int | None:
        """Compare the plan with the stored config. Return the stored seed."""
        given = self.config(folder, folder.name)
        kept, wanted = dict(stored.tuner.class_args), dict(given.tuner.class_args)
        seed = kept.get("seed")
        if self.seed is None:
            kept.pop("seed", None)
            wanted.pop("seed", None)
        pairs = {
            "search space": (stored.search_space, given.search_space),
            "list of constraints": (stored.constraints, given.constraints),
            "list of result constraints": (stored.result_constraints, given.result_constraints),
            "tuner": (_name(stored.tuner), _name(given.tuner)),
            "assessor": (_name(stored.assessor), _name(given.assessor)),
            "objective, seed or tuner arguments": (kept, wanted),
        }
        for word, (there, here) in pairs.items():
            if _plain(there) != _plain(here):
                raise Conflict(
                    f"{folder} has a search with another {word} ({there!r:.150}, not {here!r:.150}); "
                    "give the same, or another folder."
                )
        return seed if isinstance(seed, int) else None

    def _make_class_args(self) -> dict[str, Json]:
        goal = self._goal()
        if isinstance(self.tuner, Tuner):
            return goal
        seed = int.from_bytes(os.urandom(4), "big") if self.seed is None else self.seed
        return {**goal, **_known(lookup.tuner_class(self.tuner), seed=seed), **self.tuner_args}

    def _goal(self) -> dict[str, Json]:
        if isinstance(self.optimize, str):
            return {"optimize_mode": self.optimize}
        return {"objectives": dict(self.optimize)}


def _algorithm(one: str | Tuner | Assessor) -> AlgorithmConfig:
    from pathlib import Path

    from nnilite.config import AlgorithmConfig

    if isinstance(one, str):
        return AlgorithmConfig(name=one)
    cls = type(one)
    module = sys.modules.get(cls.__module__)
    file = getattr(module, "__file__", None)
    folder = Path(file).absolute().parent if file else None
    return AlgorithmConfig(class_name=f"{cls.__module__}.{cls.__name__}", code_directory=folder)


def _name(algorithm: AlgorithmConfig | None) -> str | None:
    return None if algorithm is None else algorithm.name or algorithm.class_name


def _plain(value: Any) -> Json:
    return json.loads(json.dumps(value, sort_keys=True, default=repr))


def _known(cls: type, **arguments: Any) -> dict[str, Any]:
    """Return the arguments that the constructor accepts."""
    parameters = inspect.signature(cls).parameters
    return {name: value for name, value in arguments.items() if name in parameters}
