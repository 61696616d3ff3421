"""`nni.algorithms.hpo`: NNI's modules, with its names of our tuners and assessors, for classes derived from them.

    from nni.algorithms.hpo.tpe_tuner import TpeTuner

The modules are made when they are imported. They need the whole nnilite, where tuners run.
"""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any

_TUNERS = {
    "tpe_tuner": ("TPE", "TpeTuner", "TPETuner"),
    "random_tuner": ("Random", "RandomTuner"),
    "gridsearch_tuner": ("GridSearch", "GridSearchTuner"),
    "batch_tuner": ("Batch", "BatchTuner"),
    "evolution_tuner": ("Evolution", "EvolutionTuner"),
    "hyperopt_tuner": ("Hyperopt", "HyperoptTuner"),
    "gp_tuner": ("GP", "GPTuner"),
    "metis_tuner": ("Metis", "MetisTuner"),
    "pbt_tuner": ("PBT", "PBTTuner"),
    "dngo_tuner": ("DNGO", "DNGOTuner"),
    "smac_tuner": ("SMAC", "SMACTuner"),
    "hyperband_advisor": ("Hyperband", "Hyperband"),
    "bohb_advisor": ("BOHB", "BOHB"),
}
"""By NNI's module: the name under which the tuner is installed here, and the names of its class."""
_ASSESSORS = {
    "medianstop_assessor": ("Medianstop", "MedianstopAssessor"),
    "curvefitting_assessor": ("Curvefitting", "CurvefittingAssessor"),
}
_LEFT_OUT = ("ppo_tuner", "regularized_evolution_tuner", "networkmorphism_tuner")


class _Modules:
    """Finds and loads the modules above; those of a package, such as `gp_tuner.gp_tuner`, too."""

    @classmethod
    def find_spec(cls, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if not name.startswith(__name__ + "."):
            return None
        last = name.rpartition(".")[2]
        if last in _LEFT_OUT:
            raise ModuleNotFoundError(f"{name}: this tuner of NNI searches architectures and is not here")
        return ModuleSpec(name, cls, is_package=True) if last in _TUNERS or last in _ASSESSORS else None  # type: ignore[arg-type]

    @staticmethod
    def create_module(spec: ModuleSpec) -> None:
        return None

    @staticmethod
    def exec_module(module: ModuleType) -> None:
        name = module.__name__.rpartition(".")[2]
        installed, *classes = _TUNERS.get(name) or _ASSESSORS[name]
        found = _installed(installed, name in _TUNERS)
        for known in classes:
            setattr(module, known, found)
        if installed == "TPE":
            module.__dict__["TpeArguments"] = _tpe_arguments()
        from nni.utils import ClassArgsValidator  # type: ignore[import-not-found]  # it is on the path by then

        validator = installed.capitalize() if installed == "TPE" else installed
        setattr(module, validator + "ClassArgsValidator", ClassArgsValidator)


def __getattr__(name: str) -> type:
    """Find a class without its module, which NNI asks for and people leave out."""
    for tuner, table in ((True, _TUNERS), (False, _ASSESSORS)):
        for installed, *classes in table.values():
            if name in classes:
                return _installed(installed, tuner)
    raise AttributeError(f"nni.algorithms.hpo has no {name!r}")


def _tpe_arguments() -> type:
    """Return NNI's class of the `tpe_args`, with its defaults."""
    from collections import namedtuple

    defaults = {"constant_liar_type": "best", "n_startup_jobs": 20, "n_ei_candidates": 24}
    defaults.update(linear_forgetting=25, prior_weight=1.0, gamma=0.25)
    return namedtuple("TpeArguments", defaults, defaults=defaults.values())


def _installed(name: str, tuner: bool) -> type:
    try:
        from nnilite._plugins import lookup
    except ImportError as error:
        raise ImportError("nni.algorithms.hpo needs the whole nnilite, which is where tuners run") from error
    if name == "Hyperopt":
        from nnilite._nni_modules.hyperopt import HyperoptTuner

        return HyperoptTuner
    return lookup.tuner_class(name) if tuner else lookup.assessor_class(name)


sys.meta_path.insert(0, _Modules)
