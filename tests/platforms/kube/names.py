"""The names by which pods find each other, which the DNS of a cluster resolves. All pods of the stand-in are here.

A pod with a subdomain is HOSTNAME.SUBDOMAIN where a headless service of that name selects it. A Job names its numbered
pods by their number (pkg/controller/job/indexed_job_utils.go), JobSet does the same, and the training-operator makes a
service for each pod, of the pod's name.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

HERE = "127.0.0.1"
_OPERATOR = "training.kubeflow.org/job-name"
_JOB_SET = "jobset.sigs.k8s.io/jobset-name"


def resolve(value: str, pod: Any, services: Sequence[Any]) -> str:
    """A variable, with an address in the place of the name of another pod of the same job."""
    return HERE if _is_neighbour(value, pod, services) else value


def _is_neighbour(name: str, pod: Any, services: Sequence[Any]) -> bool:
    labels, host, domain = pod["metadata"].get("labels") or {}, *name.partition(".")[::2]
    if labels.get(_OPERATOR):
        return not domain and bool(re.fullmatch(rf"{re.escape(labels[_OPERATOR])}-[a-z]+-\d+", host))
    if labels.get(_JOB_SET):
        owner = labels[_JOB_SET]
        return domain == owner and bool(re.fullmatch(rf"{re.escape(owner)}-[a-z]+-\d+-\d+", host))
    found = [one for one in services if one["metadata"]["name"] == domain == pod["spec"].get("subdomain")]
    selected = [one for one in found if one["spec"]["selector"].items() <= labels.items()]
    headless = [one for one in selected if one["spec"].get("clusterIP") == "None"]
    return bool(headless) and bool(re.fullmatch(rf"{re.escape(labels.get('job-name', ''))}-\d+", host))
