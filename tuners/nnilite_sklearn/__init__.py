"""Tuners that model the objective with scikit-learn and scipy, which are imported when one is made.

_gp            Bayesian optimisation with a Gaussian process
_metis         Metis, which also runs the least known and the most doubtful points
_smac          SMAC, with a random forest as the model
_dngo          DNGO, with a neural network and a Bayesian regression on its features
_curvefitting  stops a trial whose learning curve will not reach the best result
_surrogate     what tuners with a model share: fit it, then run the point that promises most
_gaussian      a Gaussian process with one length scale for each parameter
"""

from nnilite_sklearn._curvefitting import CurvefittingAssessor
from nnilite_sklearn._dngo import DNGOTuner
from nnilite_sklearn._gp import GPTuner
from nnilite_sklearn._metis import MetisTuner
from nnilite_sklearn._smac import SMACTuner

__all__ = ["CurvefittingAssessor", "DNGOTuner", "GPTuner", "MetisTuner", "SMACTuner"]
