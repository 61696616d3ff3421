"""On a real Ray cluster of two nodes on this machine: what kills, restarts and Ray's own rules do to trials."""

from __future__ import annotations

import pytest
import requests

from nnilite.errors import ConfigError, ServiceError
from nnilite.service import JobState
from nnilite.testing import eventually
from nnilite.testing.probes import runs
from platforms.ray_cluster.bench import RayBench, have_patience
from platforms.ray_cluster.cluster import SECOND, TOKEN
from platforms.ray_cluster.shapes import answers

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("ray"), pytest.mark.timeout(300)]


@pytest.fixture
def open_real(tmp_path, real_ray, monkeypatch):
    """Opens a bench on the real cluster, whose section has these fields."""
    have_patience(monkeypatch, end_pending_s=0.5)
    opened: list[RayBench] = []

    def make(common=None, **fields) -> RayBench:
        given = {"token": TOKEN, "entrypoint_num_cpus": 0.1, **fields}
        opened.append(RayBench(tmp_path, real_ray.url, common, **given))
        opened[-1].limit_s = 90
        return opened[-1].__enter__()

    yield make
    for bench in opened:
        bench.__exit__()


def test_the_stand_in_answers_as_the_real_one_does(real_ray, head):
    def ask(path, method="GET", **more):
        headers = {"Authorization": f"Bearer {TOKEN}"}
        return requests.request(method, head.url + path, headers=headers, timeout=60, **more)

    head.token = TOKEN
    own, real = answers(ask, head.url), answers(real_ray.ask, real_ray.url)
    head.broken.clear()
    assert {name: (own[name], found) for name, found in real.items() if own[name] != found} == {}


def test_a_node_that_is_killed_loses_its_trial_with_a_reason_and_the_trial_ends(open_real, real_ray):
    real_ray.start_second()
    bench = open_real(entrypoint_resources={SECOND: 1})
    program = "import nnilite, os, time; nnilite.report_intermediate_result(os.getpid()); time.sleep(600)"
    name = bench.python(program)
    bench.eventually(lambda: bench.received(name).values)
    real_ray.kill_second()
    status = bench.wait(name, JobState.LOST)
    assert status.reason.startswith("Ray lost the job: The actor")
    eventually(lambda: not runs(bench.received(name).values[0]))
    waits = bench.run("true")
    bench.eventually(lambda: "no node of the cluster has 1 second_node" in bench.status(waits).reason)


def test_a_head_node_that_is_gone_and_comes_back_anew_has_lost_its_jobs(open_real, real_ray, monkeypatch):
    have_patience(monkeypatch, call_s=1.0)
    bench = open_real(request_timeout=5)
    name = bench.run("sleep 600")
    bench.wait(name, JobState.RUNNING)
    real_ray.kill_all()
    refusal = bench.refusal(bench.service.poll([bench.handles[name]]))
    assert isinstance(refusal, ServiceError)
    assert "cannot be reached" in str(refusal)
    real_ray.start()
    assert "restarted" in bench.wait(name, JobState.LOST).reason
    assert bench.finish(bench.run("exit 3")).exits[0]["code"] == 3


def test_a_job_that_is_canceled_while_it_waits_leaves_nothing_on_ray(open_real, real_ray):
    bench = open_real(entrypoint_num_gpus=3)
    name = bench.run("true")
    bench.eventually(lambda: "no node of the cluster has 3 GPU (the largest has 0)" in bench.status(name).reason)
    bench.call(bench.service.cancel(bench.handles[name]))
    assert bench.wait(name).state is JobState.CANCELED
    bench.eventually(lambda: bench.refusal(bench.service.remove(bench.handles[name])) is None)
    assert real_ray.ask(f"/api/jobs/{name}").status_code == 404


def test_a_wrong_token_is_told(open_real):
    with pytest.raises(ConfigError, match="Ray does not accept this token"):
        open_real(token="wrong-wrong-wrong")


def test_a_runtime_environment_that_ray_refuses_fails_the_trial_in_words(open_real):
    bench = open_real(runtime_env={"pip": ["a"], "conda": ["b"]})
    status = bench.wait(bench.run("true"), JobState.FAILED)
    assert "cannot be specified at the same time" in status.reason


def test_reports_and_output_come_by_the_log(open_real):
    bench = open_real({"report": "stdout", "callback": None})
    bench.put_code(**{"mod.py": "VALUE = 7"})
    program = "import mod, nnilite\nprint('seen')\nfor n in (1, mod.VALUE): nnilite.report_intermediate_result(n)"
    received = bench.finish(bench.python(program))
    assert (received.values, received.output["stdout"], received.requests) == ([1, 7], b"seen\n", 0)


def test_a_trial_can_use_ray_itself(open_real):
    bench = open_real()
    bench.put_code(**{"mod.py": "VALUE = 7"})
    program = """
import ray, nnilite
ray.init(runtime_env={"working_dir": "."}, logging_level="ERROR")
@ray.remote(num_cpus=0.1)
def square(x):
    import mod
    return x * x + mod.VALUE
nnilite.report_final_result(ray.get(square.remote(3)))
"""
    assert bench.finish(bench.python(program)).values == [16]
