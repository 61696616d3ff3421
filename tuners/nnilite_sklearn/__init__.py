"""Tuners that model the objective with scikit-learn and scipy, which are imported when one is made."""

from nnilite_sklearn._curvefitting import CurvefittingAssessor
from nnilite_sklearn._dngo import DNGOTuner
from nnilite_sklearn._gp import GPTuner
from nnilite_sklearn._metis import MetisTuner
from nnilite_sklearn._smac import SMACTuner

__all__ = ["CurvefittingAssessor", "DNGOTuner", "GPTuner", "MetisTuner", "SMACTuner"]
