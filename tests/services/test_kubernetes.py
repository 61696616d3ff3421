"""The service of plain Jobs: the contract of all services, on a cluster that runs pods as processes here."""

from __future__ import annotations

import pytest

from nnilite.testing import ServiceContract
from nnilite_kubernetes import KubernetesConfig, KubernetesService
from platforms.kube.bench import KubeBench
from platforms.kube.cluster import StandIn


class TestKubernetesService(ServiceContract):
    pushes = True
    has_logs = False  # what trials print comes with their events

    @pytest.fixture
    def cluster(self, tmp_path):
        with StandIn(tmp_path / "cluster") as cluster:
            yield cluster

    @pytest.fixture
    def make_service(self, cluster):
        config = KubernetesConfig(docker_image="python:3.11-slim", kubeconfig=cluster.kubeconfig())
        return lambda context: KubernetesService("kubernetes", config, context)

    @pytest.fixture
    def bench(self, tmp_path, make_service):
        with KubeBench(tmp_path, make_service) as bench:
            yield bench
