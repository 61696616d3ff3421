"""Frameworks: the contract of all services, task roles, completion policies, templates."""

from __future__ import annotations

import json
import subprocess

import pytest

from nnilite.errors import ConfigError
from nnilite.service import JobState
from nnilite.testing import eventually
from nnilite_kubernetes import FrameworkControllerConfig, FrameworkControllerService
from nnilite_kubernetes._frameworkcontroller import TaskRoleConfig
from platforms.kube.bench import ClusterContract, Platform
from platforms.kube.client import FRAMEWORKS
from platforms.kube.cluster import IMAGE
from platforms.kube.other_operators import install_frameworkcontroller

pytestmark = pytest.mark.process

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
    return TaskRoleConfig(**{"name": name, "docker_image": IMAGE, **fields})


@pytest.fixture
def platform():
    return Platform(FrameworkControllerService, FrameworkControllerConfig, {}, install_frameworkcontroller())


class TestFramework(ClusterContract):
    ends_alone = False  # logs go with the pods, so keepers stay until the manager is back
    fields = {"task_roles": [role()]}


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
    [framework] = cluster.all(FRAMEWORKS)
    pod = framework["spec"]["taskRoles"][0]["task"]["pod"]
    assert pod["spec"]["nodeSelector"] == {"disk": "ssd"}
    assert pod["spec"]["restartPolicy"] == "Never"
    assert pod["metadata"]["labels"]["nnilite/trial"]


@pytest.mark.process
@pytest.mark.parametrize(
    ("words", "printed"),
    [
        (["printf", "%s|", "a b", "$HOME", "it's"], "a b|$HOME|it's|"),
        (["/bin/sh", "-c", "printf one && printf two"], "onetwo"),
        (["sh", "-c", "printf one && printf two"], "onetwo"),
        (["sh", "-c", 'printf "$1"', "sh", "a"], "a"),
    ],
)
def test_the_command_of_a_template_has_the_words_that_kubernetes_would_run(words, printed, tmp_path):
    path = tmp_path / "framework.yaml"
    container = {"image": "i", "command": words[:1], "args": words[1:]}
    task = {"pod": {"spec": {"containers": [container]}}}
    path.write_text(json.dumps({"spec": {"taskRoles": [{"name": "worker", "task": task}]}}))
    [found] = FrameworkControllerConfig(config_path=path).given
    assert subprocess.run(["sh", "-c", found.command], capture_output=True, text=True, timeout=60).stdout == printed


def test_a_template_that_is_none_is_refused(tmp_path):
    path = tmp_path / "framework.yaml"
    path.write_text("spec: {taskRoles: [{name: worker}]}")
    with pytest.raises(ConfigError, match="is not a Framework"):
        FrameworkControllerConfig(config_path=path)


def test_names_that_the_controller_refuses_are_refused_before():
    with pytest.raises(ConfigError, match="lower-case letters and digits"):
        role("my-worker")
