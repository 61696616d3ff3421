"""Trials on a real cluster with real operators: that of the kubeconfig in NNILITE_TEST_KUBECONFIG.

Trials report through their logs, so that pods need not reach this machine. NNILITE_TEST_NAMESPACE and
NNILITE_TEST_IMAGE (with Python 3.8 or later) may be set too.
"""

from __future__ import annotations

import os

import pytest

from nnilite.errors import ConfigError
from nnilite.service import JobState
from nnilite.testing import eventually
from nnilite_kubernetes import (
    AdlConfig,
    AdlService,
    FrameworkControllerConfig,
    FrameworkControllerService,
    KubeflowConfig,
    KubeflowService,
    KubernetesConfig,
    KubernetesService,
)
from nnilite_kubernetes._api import SECRETS, connect
from nnilite_kubernetes._config import RoleConfig
from nnilite_kubernetes._frameworkcontroller import TaskRoleConfig
from nnilite_kubernetes._manifest import selector
from platforms.kube.bench import KubeBench

KUBECONFIG = os.environ.get("NNILITE_TEST_KUBECONFIG")
IMAGE = os.environ.get("NNILITE_TEST_IMAGE", "python:3.11-slim")
NAMESPACE = os.environ.get("NNILITE_TEST_NAMESPACE", "default")
LIMIT_S = 240.0
REPORT = "python3 -c 'import nnilite; nnilite.report_intermediate_result(1); nnilite.report_final_result(2)'; exit {}"
ROLE = RoleConfig(docker_image=IMAGE)
KINDS = {
    "Job": (KubernetesService, KubernetesConfig, {"docker_image": IMAGE}),
    "TFJob": (KubeflowService, KubeflowConfig, {"operator": "tf-operator", "worker": ROLE}),
    "PyTorchJob": (KubeflowService, KubeflowConfig, {"operator": "pytorch-operator", "master": ROLE}),
    "Framework": (
        FrameworkControllerService,
        FrameworkControllerConfig,
        {"task_roles": [TaskRoleConfig(name="worker", docker_image=IMAGE)]},
    ),
    "AdaptDLJob": (AdlService, AdlConfig, {"docker_image": IMAGE}),
}

pytestmark = [
    pytest.mark.real,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not KUBECONFIG, reason="NNILITE_TEST_KUBECONFIG names no cluster"),
]


@pytest.fixture(params=KINDS)
def bench(request, tmp_path):
    service, kind, fields = KINDS[request.param]
    config = kind(kubeconfig=KUBECONFIG, namespace=NAMESPACE, **fields)
    bench = KubeBench(tmp_path, lambda context: service("kube", config, context))
    try:
        bench.__enter__()
    except ConfigError as error:
        pytest.skip(str(error))
    yield bench
    for handle in bench.handles.values():
        bench.call(bench.service.remove(handle))
    bench.__exit__()


def submitted(bench, command):
    return bench.submit(bench.job(command, report="stdout"))


@pytest.mark.parametrize(("code", "state"), [(0, JobState.SUCCEEDED), (7, JobState.FAILED)])
def test_a_trial_reports_and_its_exit_code_is_told(bench, code, state):
    name = submitted(bench, REPORT.format(code))
    status = bench.wait(name, limit_s=LIMIT_S)
    assert (status.state, status.exit_code) == (state, code)
    eventually(lambda: bench.report(name).exits)
    assert bench.received(name).values == [1, 2]


def test_a_canceled_trial_leaves_nothing(bench):
    name = submitted(bench, "sleep 600")
    bench.wait(name, JobState.RUNNING, limit_s=LIMIT_S)
    bench.call(bench.service.cancel(bench.handles[name]))
    assert bench.wait(name, limit_s=LIMIT_S).state is JobState.CANCELED
    bench.call(bench.service.remove(bench.handles.pop(name)))
    cluster = connect(KUBECONFIG, None)
    of_ours = selector(bench.context().experiment)
    eventually(lambda: not cluster.select(SECRETS, NAMESPACE, labelSelector=of_ours).get("items"), LIMIT_S)
    cluster.close()
