"""Tuners and assessors that need nothing but the standard library.

_random      random search
_gridsearch  grid search, in rounds that grow finer
_batch       the parameter sets that the user wrote down, in their order
_evolution   naive evolution
_anneal      simulated annealing
_pbt         population-based training
_medianstop  stops a trial that is worse than the median of the others
_autostop    stops a trial that would end behind the best, and says why
"""

from nnilite_basic._anneal import AnnealTuner
from nnilite_basic._autostop import AutoAssessor
from nnilite_basic._batch import BatchTuner
from nnilite_basic._evolution import EvolutionTuner
from nnilite_basic._gridsearch import GridSearchTuner
from nnilite_basic._medianstop import MedianstopAssessor
from nnilite_basic._pbt import PBTTuner
from nnilite_basic._random import RandomTuner

__all__ = [
    "AnnealTuner",
    "AutoAssessor",
    "BatchTuner",
    "EvolutionTuner",
    "GridSearchTuner",
    "MedianstopAssessor",
    "PBTTuner",
    "RandomTuner",
]
