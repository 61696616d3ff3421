"""Who gets which trial, and what a trial that waits says."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from nnilite._cli.nnictl import run
from nnilite.service import JobState
from nnilite.testing import eventually
from nnilite.testing.probes import quoted

pytestmark = [pytest.mark.real]


def reason(bench, name: str) -> str:
    status = bench.status(name)
    assert status.state is JobState.WAITING, status
    return status.reason


def end(bench, name: str) -> None:
    """What the manager does when it has all of a trial."""
    bench.finish(name)
    bench.call(bench.service.remove(bench.handles.pop(name)))


def test_without_a_worker_trials_say_how_to_start_one(shared_server, prefix, open_bench):
    bench = open_bench(shared_server, worker_labels=["gpu=a100"])
    name = bench.run("true")
    wanted = f"nnictl worker --redis {shared_server.url} --prefix {prefix} --labels gpu=a100"
    assert reason(bench, name) == f"1st in the queue; no worker has joined: start one with `{wanted}`"


def test_trials_are_taken_in_the_order_in_which_they_came(shared_server, open_bench, start_worker):
    bench = open_bench(shared_server)
    names = [bench.run(f"echo {number} >> {quoted(bench.mark())}") for number in range(8)]
    assert [reason(bench, name).split(" in")[0] for name in names[:4]] == ["1st", "2nd", "3rd", "4th"]
    start_worker(shared_server.url, "--processors", "1")
    for name in names:
        assert bench.wait(name).state is JobState.SUCCEEDED
    assert bench.lines() == [str(number) for number in range(8)]


def test_four_workers_never_take_the_same_trial(shared_server, open_bench, start_worker):
    bench = open_bench(shared_server)
    names = [bench.run(f"echo {number} >> {quoted(bench.mark())}") for number in range(16)]
    for _ in range(4):
        start_worker(shared_server.url)
    for name in names:
        bench.wait(name, limit_s=60)
    assert sorted(map(int, bench.lines())) == list(range(16))


def test_a_worker_runs_no_more_trials_than_it_has_processors(shared_server, open_bench, start_worker):
    worker = start_worker(shared_server.url, "--processors", "2")
    bench = open_bench(shared_server)
    names = [bench.run("sleep 60") for _ in range(4)]
    for name in names[:2]:
        bench.wait(name, JobState.RUNNING)
    eventually(lambda: reason(bench, names[3]) == "2nd in the queue; 1 worker, all 2 processors busy")
    [host] = bench.service.hosts()
    assert (host.name, host.state, host.running) == (worker.name, "up", 2)
    assert (host.details["processors"], host.details["busy"], host.details["queue"]) == (2, 2, 2)


def test_trials_run_only_on_workers_with_their_labels(shared_server, open_bench, start_worker):
    plain = start_worker(shared_server.url, "--processors", "4")
    bench = open_bench(shared_server, worker_labels=["gpu=a100"])
    name = bench.run('echo "$NNI_SYS_DIR" >> ' + quoted(bench.mark()))
    eventually(lambda: reason(bench, name) == "1st in the queue; none of 1 worker has the label gpu=a100")
    able = start_worker(shared_server.url, "--labels", "big,gpu=a100")
    bench.wait(name)
    assert str(able.folder).splitlines()[-1] in bench.lines()[-1]
    assert not list(plain.folder.glob("*/trials"))


def test_a_trial_may_ask_for_labels_by_its_parameters(shared_server, open_bench, start_worker):
    start_worker(shared_server.url)
    bench = open_bench(shared_server)
    wanting, other = bench.run("true", parameters={"_machineLabels": ["x86"]}), bench.run("true")
    assert bench.wait(other).state is JobState.SUCCEEDED
    assert "none of 1 worker has the label x86" in reason(bench, wanting)


def test_an_experiment_may_take_fewer_processors_of_a_worker_than_there_are(shared_server, open_bench, start_worker):
    start_worker(shared_server.url, "--processors", "4")
    bench = open_bench(shared_server, worker_processors=1)
    first, second = bench.run("sleep 60"), bench.run("sleep 60")
    bench.wait(first, JobState.RUNNING)
    eventually(lambda: reason(bench, second).endswith("can take a trial; workerProcessors is 1"))


def test_two_experiments_share_queue_and_worker(shared_server, open_bench, start_worker):
    first, second = open_bench(shared_server), open_bench(shared_server)
    held = first.run("true"), second.run("true"), first.run("true")
    assert reason(second, held[1]).startswith("2nd in the queue")
    start_worker(shared_server.url, "--processors", "1")
    assert {first.wait(held[0]).state, second.wait(held[1]).state, first.wait(held[2]).state} == {JobState.SUCCEEDED}


def test_a_trial_that_is_canceled_in_the_queue_never_starts(shared_server, open_bench, start_worker):
    bench = open_bench(shared_server)
    canceled, other = bench.run(f"echo no >> {quoted(bench.mark())}"), bench.run(f"echo yes >> {quoted(bench.mark())}")
    bench.call(bench.service.cancel(bench.handles[canceled]))
    assert bench.status(canceled).state is JobState.CANCELED
    assert reason(bench, other).startswith("1st")
    start_worker(shared_server.url)
    bench.wait(other)
    assert bench.lines() == ["yes"]


def test_a_trial_gets_no_password_of_its_worker(shared_server, open_bench, start_worker):
    start_worker(shared_server.url, NNILITE_REDIS_PASSWORD="")
    bench = open_bench(shared_server)
    bench.finish(bench.run(f"env > {quoted(bench.mark())}"))
    assert not [line for line in bench.lines() if "NNILITE_REDIS_PASSWORD" in line]


def test_the_dry_run_tells_the_queue_and_what_is_asked_of_workers(shared_server, prefix, open_bench):
    bench = open_bench(shared_server, worker_labels=["gpu=a100"])
    job = bench.job("true", gpus=2)
    said = bench.service.describe(job)
    assert said["worker"] == {"labels": ["gpu=a100"], "gpus": 2}
    assert said["redis"] == {"server": f"127.0.0.1:{shared_server.port}", "key": f"{prefix}:job:{job.name}"}
    assert said["spec"]["token"] == "********"


def test_nothing_of_an_ended_experiment_stays_anywhere(shared_server, prefix, open_bench, start_worker):
    worker = start_worker(shared_server.url)
    bench = open_bench(shared_server, keep="nothing")
    for _ in range(3):
        end(bench, bench.run("echo out; echo file > result.txt"))
    bench.close()
    eventually(lambda: not [folder for folder, _, _ in os.walk(worker.folder) if "trials" in Path(folder).parts])
    with shared_server.client() as client:
        eventually(lambda: not client.keys(f"{prefix}:job:*"))
        left = {key.decode().removeprefix(f"{prefix}:").split(":")[0] for key in client.keys(f"{prefix}:*")}
        assert not {"manager", "jobs"} & left
        assert all(client.ttl(key) > 0 for key in client.keys(f"{prefix}:*") if b":worker:" not in key)
    bench.open()


def test_what_a_trial_has_written_stays_on_the_worker_if_it_is_to_be_kept(shared_server, open_bench, start_worker):
    worker = start_worker(shared_server.url)
    bench = open_bench(shared_server)
    name = bench.run('echo weights > "$NNI_OUTPUT_DIR/model.bin"')
    end(bench, name)
    bench.close()
    [folder] = [path.parent for path in worker.folder.rglob("model.bin")]
    eventually(lambda: not {"spec.json", "job.json", "code", ".nni"} & {path.name for path in folder.iterdir()})
    bench.open()


def test_the_list_of_workers_is_shown_by_the_command(shared_server, prefix, start_worker, capfd):
    worker = start_worker(shared_server.url, "--processors", "3", "--labels", "gpu=a100")
    words = ["worker", "list", "--redis", shared_server.url, "--prefix", prefix]
    # A worker says that it joins right before it is in the list.
    eventually(lambda: run(words) == 0 and worker.name in capfd.readouterr().out)
    run([*words, "--json"])
    [found] = json.loads(capfd.readouterr().out)
    assert found["details"]["processors"] == 3
    assert "gpu=a100" in found["details"]["labels"]


def bury(server, prefix, ago_s):
    """Add a worker to the pool that died some time ago, as it leaves its traces there."""
    with server.client() as client:
        at = client.time()[0] - ago_s
        facts = json.dumps({"host": "attic", "processors": 2})
        client.hset(f"{prefix}:worker:dead", mapping={"beat": "x-1", "facts": facts, "at": at})
        client.sadd(f"{prefix}:workers", "dead")


@pytest.mark.parametrize(("ago_s", "state"), [(3600, "unhealthy"), (60, "up")])
def test_a_worker_that_died_is_known_to_be_silent_from_the_first_look(
    open_bench, shared_server, prefix, capfd, ago_s, state
):
    bury(shared_server, prefix, ago_s)
    run(["worker", "list", "--redis", shared_server.url, "--prefix", prefix, "--json"])
    [listed] = json.loads(capfd.readouterr().out)
    assert (listed["state"], listed["reason"].startswith("silent for 1")) == (state, True)
    bench = open_bench(shared_server)
    bench.call(bench.service.poll([bench.handles[bench.run("true")]]))
    assert [host.state for host in bench.service.hosts()] == [state]


def test_a_beat_has_the_time_of_the_server(shared_server, prefix, start_worker):
    worker = start_worker(shared_server.url)
    with shared_server.client() as client:
        at = eventually(lambda: client.hget(f"{prefix}:worker:{worker.name}", "at"))
        assert 0 <= client.time()[0] - int(at) < 60
