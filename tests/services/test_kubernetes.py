"""The service of plain Jobs: the contract of all services, on a cluster that runs pods as processes here."""

from __future__ import annotations

import pytest

from nnilite_kubernetes import KubernetesConfig, KubernetesService
from platforms.kube.bench import ClusterContract, Platform
from platforms.kube.cluster import IMAGE

pytestmark = pytest.mark.process


@pytest.fixture
def platform():
    return Platform(KubernetesService, KubernetesConfig, {"docker_image": IMAGE})


class TestKubernetesService(ClusterContract):
    every_case = True
