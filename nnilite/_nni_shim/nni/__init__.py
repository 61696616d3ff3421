"""`import nni` for trials and tuners that were written for NNI: the same calls, on nnilite.

What trial code, custom tuners and advisors use of NNI is here. The rest (model compression, NAS, ...) is not: with
NNILITE_REAL_NNI=1 in the trial's environment the real `nni` package, which must be installed, is imported
instead. It reports to the same file.

trial       what trial code calls
tuner       the base class of tuners
assessor    the base class of assessors
utils       what NNI's trial code and tuners use of that module
runtime     what advisors, tuners and trials use of that package
common      of it, hpo_utils
parameter_expressions  one value of each type of parameter
recoverable, typehint  names that annotations and bases use
experiment  launching experiments from Python
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__version__ = "3.0+nnilite"

__all__ = [
    "NoMoreTrialError",
    "__version__",
    "get_current_parameter",
    "get_experiment_id",
    "get_next_parameter",
    "get_sequence_id",
    "get_trial_id",
    "log_artifact",
    "report_final_result",
    "report_intermediate_result",
    "set_attribute",
]

_MODULES = (
    "algorithms",
    "assessor",
    "common",
    "experiment",
    "parameter_expressions",
    "runtime",
    "trial",
    "tuner",
    "utils",
)
_ELSEWHERE = {
    "enable_global_logging": "nni.runtime.log",
    "silence_stdout": "nni.runtime.log",
    "ClassArgsValidator": "nni.utils",
    "Experiment": "nnilite",
    "dump": "nni.common.serializer",
    "load": "nni.common.serializer",
    "trace": "nni.common.serializer",
    "NoMoreTrialError": "nnilite",
}
"""What is only there where the whole package is, as it is where tuners run."""


_OF_ANNOTATIONS = """choice function_choice lognormal loguniform mutable_layer mutable_layers normal
qlognormal qloguniform qnormal quniform randint uniform variable"""
"""What NNI 1 made of annotations."""

_REAL = """algorithms assessor common compression contrib feature_engineering get_default_framework
mutable nas recoverable retiarii runtime set_default_framework training_update trial tuner typehint utils"""
"""What the real package has, or had in its version 2, and this one has not or not wholly."""


def _replace_by_installed_nni() -> None:
    """Replace this module by the installed `nni`, while this one is being imported."""
    import importlib.machinery
    import importlib.util

    others = [entry for entry in sys.path if not _is_this(os.path.join(entry, "nni", "__init__.py"))]
    spec = importlib.machinery.PathFinder.find_spec("nni", others)
    if spec is None or spec.loader is None:
        raise ImportError("NNILITE_REAL_NNI is set, but the real nni is not installed here: pip install nni")
    module = importlib.util.module_from_spec(spec)
    sys.modules["nni"] = module
    spec.loader.exec_module(module)


def _is_this(path: str) -> bool:
    """Return whether a file is this one or a copy.

    Below `python -m nnilite` a trial has two on its path.
    """
    try:
        with open(path, "rb") as other, open(__file__, "rb") as own:
            return other.read() == own.read()
    except OSError:
        return False


class _Elsewhere:
    """The last finder: modules of NNI that need the whole nnilite are there; others, and names, get a sentence.

    The modules have an empty `__path__`, so that Python asks for the names that `from` finds in none of them, too.
    """

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> Any:
        if not name.startswith("nni."):
            return None
        from importlib.machinery import PathFinder

        import nnilite

        folders = [os.path.join(entry, "_nni_modules", *name.split(".")[1:-1]) for entry in nnilite.__path__]
        found = PathFinder.find_spec(name, folders)
        if found is None:
            # Without `name=`: `from nni import this` would otherwise replace the sentence by one of its own.
            raise ModuleNotFoundError(_not_here(name))
        return found


def _not_here(name: str) -> str:
    return f"{name} is not among the parts of NNI that nnilite offers. {_cure(name)}"


def _cure(name: str) -> str:
    """Return the cure, which depends on the name and on what this program is: a tuner's process, a trial, any other."""
    import difflib

    first = name.split(".")[1]
    if {"experiment", "best", "run", "start", "stop", "view"}.intersection(first.split("_")):
        return "Did you mean nni.experiment.Experiment, which has methods for that?"
    if first in _OF_ANNOTATIONS.split():
        return (
            "It stands for an annotation of NNI 1. Describe the parameter in the search space, and read it with "
            "nni.get_next_parameter(). For a whole program with annotations, `nnictl config expand` does that."
        )
    near = name.count(".") == 1 and difflib.get_close_matches(first, [*__all__, *_ELSEWHERE], 1, 0.63)
    if near:
        return f"Did you mean {near[0]}?"
    moved = _place_since_nni_2(first)
    if moved:
        return f"NNI 2 has moved it: import it from {moved}.{first}."
    if name.startswith(("nni.tools", "nni.experiment")):
        return "Run the command `nnictl`, or use nnilite.Experiment, which has a method for each of its commands."
    if first not in _REAL.split():
        return "NNI 3 does not have it either."
    if "nnilite._tuner_host" in sys.modules:
        return (
            "In a tuner, derive from nni.tuner.Tuner or a class of nni.algorithms.hpo, and take what else you need "
            "from the package that it comes from."
        )
    if os.environ.get("NNI_TRIAL_JOB_ID") or os.environ.get("NNILITE_METRICS"):
        return (
            "To have it from the real package, install that and set NNILITE_REAL_NNI=1 in the environment of the trial."
        )
    return "In a script, install the real package and set NNILITE_REAL_NNI=1, so that it is imported instead."


def _place_since_nni_2(module: str) -> str:
    """Return the package that a module of NNI 1 is in since; "" if it was none. NNI 2 has it nowhere else."""
    if module.endswith(("_tuner", "_assessor", "_advisor")):
        return "nni.algorithms.hpo"
    return "nni.runtime" if module in ("env_vars", "msg_dispatcher_base", "protocol") else ""


def __getattr__(name: str) -> Any:
    import importlib

    if name in _MODULES:
        return importlib.import_module(f"nni.{name}")
    if name in _ELSEWHERE:
        return getattr(importlib.import_module(_ELSEWHERE[name]), name)
    raise AttributeError(_not_here(f"nni.{name}"))


if os.environ.get("NNILITE_REAL_NNI"):
    _replace_by_installed_nni()
else:
    from nnilite import (
        get_current_parameter,
        get_experiment_id,
        get_next_parameter,
        get_sequence_id,
        get_trial_id,
        log_artifact,
        report_final_result,
        report_intermediate_result,
        set_attribute,
    )

    get_next_parameters = get_parameters = get_next_parameter  # names of NNI 0
    sys.meta_path.append(_Elsewhere)
