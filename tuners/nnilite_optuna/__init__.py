"""NNI's tuners on optuna's samplers, and optuna's own. optuna is imported when a tuner gets its search space.

_auto             Auto, which chooses among the others
_bayes            what it does while results are few: the point of the largest expected improvement
_fronts           the same for several objectives: the point of the largest expected gain of hypervolume
_design           the points that both begin with
_posterior        what is known of the objective, and the process that follows from it
_success          where trials fail
_feasible         where results satisfy the constraints on them
_matern           a Gaussian process on numpy
_tpe              TPE
_caching_tpe      optuna's TPE without what it repeats for each proposal
_cmaes            CMA-ES
_qmc              points that cover the space more evenly than chance would
_nsga2            NSGA-II, for several objectives
_budgets          Hyperband, BOHB and ASHA: many trials with a small budget, few with the full one
_brackets         their schedules: who runs next, with which budget
_step_rules       optuna's pruners as assessors
_wilcoxon         the one of them that compares whole curves
_study            an optuna study in memory, and the tuner that drives one
_axes             from search-space parameters to optuna's distributions and back
"""

from nnilite_optuna._auto import AutoTuner
from nnilite_optuna._budgets import ASHATuner, BOHBTuner, HyperbandTuner
from nnilite_optuna._cmaes import CMAESTuner
from nnilite_optuna._nsga2 import NSGA2Tuner
from nnilite_optuna._qmc import QMCTuner
from nnilite_optuna._step_rules import (
    PatientAssessor,
    PercentileAssessor,
    SuccessiveHalvingAssessor,
    ThresholdAssessor,
)
from nnilite_optuna._tpe import TPETuner
from nnilite_optuna._wilcoxon import WilcoxonAssessor

__all__ = [
    "ASHATuner",
    "AutoTuner",
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
