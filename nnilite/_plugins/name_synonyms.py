"""What other libraries, and their users, call the tuners, assessors and training services that are here."""

from __future__ import annotations

import re

_TUNERS = {
    "GP": "bayes bayesian bayesopt bayesoptimization bayesianoptimization bayesoptsearch bo gaussianprocess skopt",
    "TPE": "optuna optunasearch hyperopt hyperoptsearch multivariatetpe tpesearch",
    "Random": "randomsearch randomizedsearch basicvariantgenerator",
    "GridSearch": "grid bruteforce exhaustive",
    "QMC": "sobol halton quasirandom quasimontecarlo lhs latinhypercube",
    "CMAES": "cma cmaessampler",
    "NSGA2": "nsgaii nsga",
    "ASHA": "ashascheduler asynchyperband asynchyperbandscheduler",
    "Hyperband": "hyperbandscheduler",
    "BOHB": "hyperbandforbohb tunebohb bohbsearch",
    "PBT": "populationbased populationbasedtraining pb2",
    "Evolution": "genetic geneticalgorithm evolutionary ga",
    "Anneal": "annealing simulatedannealing",
}
_ASSESSORS = {
    "Medianstop": "median medianpruner medianstopping medianstoppingrule medianstoprule",
    "SuccessiveHalving": "successivehalvingpruner sha",
    "Percentile": "percentilepruner",
    "Patient": "patientpruner earlystopping patience",
    "Threshold": "thresholdpruner",
    "Wilcoxon": "wilcoxonpruner",
    "Curvefitting": "curveextrapolation",
}
_SERVICES = {
    "remote": "ssh openssh sshd machines",
    "kubernetes": "k8s kube kubectl gke eks",
    "slurm": "sbatch srun",
    "batch": "sge uge gridengine pbs openpbs torque qsub lsf bsub condor htcondor",
    "aml": "azureml azuremachinelearning",
    "kubeflow": "pytorchjob tfjob katib",
    "local": "localhost thismachine",
}
_TABLES = {"tuner": _TUNERS, "assessor": _ASSESSORS, "training service": _SERVICES}
_SWAPPED = {"tuner": ("assessor",), "assessor": ("tuner",)}


def find_meant(kind: str, name: str) -> tuple[str, str] | None:
    """Return the kind and the name of the plugin here that a name of another library stands for; None for other names.

    The kind is "tuner", "assessor" or "training service". A tuner and an assessor are looked for as one another, too.
    """
    word = re.sub(r"[^a-z0-9]", "", name.lower())
    words = {word, re.sub(r"(sampler|tuner|assessor|advisor|search)$", "", word)}
    for other in (kind, *_SWAPPED.get(kind, ())):
        for meant, names in _TABLES.get(other, {}).items():
            if words & {meant.lower(), *names.split()}:
                return other, meant
    return None
