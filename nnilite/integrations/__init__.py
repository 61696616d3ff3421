"""Callbacks with which trainers report to nnilite, and a search with the interface of scikit-learn.

Each name imports its library when it is first used.

    from nnilite.integrations import XGBoostCallback
    xgboost.train(parameters, data, evals=[(valid, "valid")], callbacks=[XGBoostCallback("valid-logloss")])

A callback reports a metric once an epoch or evaluation, stops the trainer when `nnilite.should_stop()`, and reports the
final result when the training has ended by itself. All of them take the same arguments:

    metric   the name of the number, as the trainer writes it; a wrong one is answered with those that there are
    final    which of the reported numbers is the final result: "last", "max" or "min"
    report   the function `report` of `Search.run`: it gets the numbers, and the result is what your function returns

A callback belongs to one training. Its errors end the training: ValueError if there is no such metric.

_reporting  what all callbacks do
_sklearn    NniliteSearchCV
_xgboost, _lightgbm, _catboost, _lightning, _transformers, _keras   the callbacks of these
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

from nnilite.errors import no_attribute

if TYPE_CHECKING:
    from nnilite.integrations._catboost import CatBoostCallback as CatBoostCallback
    from nnilite.integrations._keras import KerasCallback as KerasCallback
    from nnilite.integrations._lightgbm import LightGBMCallback as LightGBMCallback
    from nnilite.integrations._lightning import LightningCallback as LightningCallback
    from nnilite.integrations._sklearn import NniliteSearchCV as NniliteSearchCV
    from nnilite.integrations._transformers import TransformersCallback as TransformersCallback
    from nnilite.integrations._xgboost import XGBoostCallback as XGBoostCallback

__all__ = [
    "CatBoostCallback",
    "KerasCallback",
    "LightGBMCallback",
    "LightningCallback",
    "NniliteSearchCV",
    "TransformersCallback",
    "XGBoostCallback",
]

_MODULES = {
    "CatBoostCallback": ("_catboost", "catboost"),
    "KerasCallback": ("_keras", "keras"),
    "LightGBMCallback": ("_lightgbm", "lightgbm"),
    "LightningCallback": ("_lightning", "lightning"),
    "NniliteSearchCV": ("_sklearn", "scikit-learn"),
    "TransformersCallback": ("_transformers", "transformers"),
    "XGBoostCallback": ("_xgboost", "xgboost"),
}


_ELSEWHERE = {
    "CatBoostPruningCallback": "CatBoostCallback",
    "KerasPruningCallback": "KerasCallback",
    "TFKerasPruningCallback": "KerasCallback",
    "LightGBMPruningCallback": "LightGBMCallback",
    "PyTorchLightningPruningCallback": "LightningCallback",
    "XGBoostPruningCallback": "XGBoostCallback",
    "OptunaSearchCV": "NniliteSearchCV",
}
"""What optuna calls them."""


if not TYPE_CHECKING:  # to type checkers, a module with this function has every name

    def __getattr__(name: str) -> Any:
        if name not in _MODULES:
            raise no_attribute(f"module {__name__!r}", sys.modules[__name__], name, _ELSEWHERE)
        module, package = _MODULES[name]
        try:
            found = getattr(importlib.import_module(f"{__name__}.{module}"), name)
        except ImportError as error:
            raise ImportError(
                f"{name} needs {package}, which cannot be imported ({error}): pip install {package}"
            ) from error
        globals()[name] = found
        return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
