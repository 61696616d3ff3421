"""NNI's tuners on optuna's samplers, and optuna's own. optuna is imported when a tuner gets its search space."""

from nnilite_optuna._budgets import ASHATuner, BOHBTuner, HyperbandTuner
from nnilite_optuna._cmaes import CMAESTuner
from nnilite_optuna._nsga2 import NSGA2Tuner
from nnilite_optuna._pruners import (
    PatientAssessor,
    PercentileAssessor,
    SuccessiveHalvingAssessor,
    ThresholdAssessor,
    WilcoxonAssessor,
)
from nnilite_optuna._qmc import QMCTuner
from nnilite_optuna._tpe import TPETuner

__all__ = [
    "ASHATuner",
    "BOHBTuner",
    "CMAESTuner",
    "HyperbandTuner",
    "NSGA2Tuner",
    "PatientAssessor",
    "PercentileAssessor",
    "QMCTuner",
    "SuccessiveHalvingAssessor",
    "TPETuner",
    "ThresholdAssessor",
    "WilcoxonAssessor",
]
