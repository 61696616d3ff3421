"""Frameworks: the contract of all services, task roles, completion policies, templates."""

from __future__ import annotations

import pytest

from nnilite.errors import ConfigError
from nnilite.service import JobState
from nnilite.testing import ServiceContract, eventually
from nnilite_kubernetes import FrameworkControllerConfig, FrameworkControllerService
from nnilite_kubernetes._frameworkcontroller import TaskRoleConfig
from platforms.kube.bench import KubeBench
from platforms.kube.cluster import StandIn
from platforms.kube.other_operators import FRAMEWORKS, install_frameworkcontroller

_TEMPLATE = """
apiVersion: frameworkcontroller.microsoft.com/v1
kind: Framework
spec:
  taskRoles:
  - name: worker
    taskNumber: 1
    task:
      pod:
        spec:
          restartPolicy: OnFailure
          nodeSelector: {disk: ssd}
          containers: [{name: main, image: "python:3.11", command: [sh, -c, "echo it; exit 7"], workingDir: /}]
"""


def role(name="worker", **fields):
    return TaskRoleConfig(**{"name": name, "docker_image": "python:3.11-slim", **fields})


@pytest.fixture
def cluster(tmp_path):
    with StandIn(tmp_path / "cluster", install_frameworkcontroller()) as cluster:
        yield cluster


@pytest.fixture
def open_bench(tmp_path, cluster):
    opened = []

    def make(**fields):
        config = FrameworkControllerConfig(kubeconfig=cluster.kubeconfig(), **fields)
        bench = KubeBench(tmp_path, lambda context: FrameworkControllerService("frameworkcontroller", config, context))
        opened.append(bench)
        return bench.__enter__()

    yield make
    for bench in opened:
        bench.__exit__()


@pytest.mark.long  # minutes; the contract of a plain Job is in the everyday suite
class TestFramework(ServiceContract):
    pushes = True
    has_logs = False

    @pytest.fixture
    def make_service(self, cluster):
        config = FrameworkControllerConfig(kubeconfig=cluster.kubeconfig(), task_roles=[role()])
        return lambda context: FrameworkControllerService("frameworkcontroller", config, context)

    @pytest.fixture
    def bench(self, tmp_path, make_service):
        with KubeBench(tmp_path, make_service) as bench:
            yield bench

    def test_metrics_survive_a_manager_that_is_away(self, bench):
        """Logs go with the pods here, so the keeper stays, and its job runs, until the manager is back."""
        name = bench.python("import time, nnilite; nnilite.report_final_result(3); time.sleep(0.5)")
        bench.wait(name, JobState.RUNNING)
        bench.receiver.stop()
        bench.receiver.start()
        assert bench.finish(name).values == [3]


def test_task_roles_run_side_by_side_behind_the_barrier_and_the_first_reports(cluster, open_bench):
    command = 'test "$FB_X_IPS" = 127.0.0.1 && test "$FB_CHIEF_PORT" = 4001'
    roles = [role("worker", command=command), role("chief", task_number=2, command="sleep 60")]
    bench = open_bench(task_roles=roles)
    name = bench.run("")
    assert bench.finish(name).exits[0]["code"] == 0
    assert bench.wait(name).state is JobState.SUCCEEDED
    eventually(lambda: not cluster.pods())


def test_a_log_is_read_before_the_controller_deletes_it(open_bench):
    bench = open_bench(task_roles=[role()])
    job = bench.job("python3 -c 'import nnilite; nnilite.report_final_result(7)'", report="stdout")
    name = bench.submit(job)
    assert bench.finish(name).values == [7]
    assert bench.received(name).requests == 0


def test_a_task_that_fails_ends_the_trial(open_bench):
    bench = open_bench(task_roles=[role("worker", command="sleep 60"), role("ps", command="exit 5")], barrier=False)
    status = bench.wait(bench.run(""))
    assert (status.state, status.exit_code) == (JobState.FAILED, 5)


def test_a_template_is_what_trials_are_made_of(cluster, open_bench, tmp_path):
    path = tmp_path / "framework.yaml"
    path.write_text(_TEMPLATE)
    bench = open_bench(config_path=path)
    name = bench.run("")
    assert bench.wait(name).exit_code == 7
    [framework] = cluster.store.all(FRAMEWORKS)
    pod = framework["spec"]["taskRoles"][0]["task"]["pod"]
    assert pod["spec"]["nodeSelector"] == {"disk": "ssd"}
    assert pod["spec"]["restartPolicy"] == "Never"
    assert pod["metadata"]["labels"]["nnilite/trial"]


def test_a_template_that_is_none_is_refused(tmp_path):
    path = tmp_path / "framework.yaml"
    path.write_text("spec: {taskRoles: [{name: worker}]}")
    with pytest.raises(ConfigError, match="is no Framework"):
        FrameworkControllerConfig(config_path=path)


def test_names_that_the_controller_refuses_are_refused_before():
    with pytest.raises(ConfigError, match="small letters and digits"):
        role("my-worker")
