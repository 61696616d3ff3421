"""Servers and workers that die, stop and fall silent: nothing is lost, and no trial runs twice at a time."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from nnilite._cli.nnictl import CONFLICT
from nnilite.records import Output
from nnilite.service import JobState
from nnilite.testing import eventually
from nnilite.testing.probes import python, quoted, runs
from nnilite_redis._scripts import TAKE
from waiting import pause

pytestmark = [pytest.mark.real, pytest.mark.timeout(180)]

PERIOD_S = 4
COUNT = """
import nnilite, os, pathlib, sys, time
go, beats = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
step = 0
while not go.exists():
    nnilite.report_intermediate_result(step)
    step += 1
    with beats.open("a") as file:
        file.write(f"{os.getpid()}\\n")
    time.sleep(0.1)
nnilite.report_final_result(step)
"""


def count(bench, **more) -> str:
    """Run a trial that reports and beats until the file `go` is there; its name, once it has begun."""
    name = begin(bench, **more)
    eventually(lambda: len(bench.received(name).values) > 2)
    return name


def begin(bench, **more) -> str:
    command = f"{python(COUNT)} {quoted(bench.mark('go'))} {quoted(bench.mark('beats'))}"
    return bench.run(command, grace_s=1, **more)


def finish(bench, name: str) -> list:
    """Let the trial end well; its values."""
    bench.mark("go").touch()
    received = bench.finish(name)
    assert received.exits[0]["code"] == 0
    return received.values


def whole(values: list) -> bool:
    """Whether each metric came once, and in order."""
    return values == [*range(len(values) - 1), len(values) - 1]


def beats(bench) -> int:
    return len(bench.lines("beats"))


def stands_still(bench) -> bool:
    """Whether the trial does nothing for some of its beats."""
    before, until = beats(bench), time.monotonic() + 0.6
    eventually(lambda: beats(bench) != before or time.monotonic() > until)
    return beats(bench) == before


def test_a_server_that_is_killed_and_comes_back_loses_nothing(own_server, open_bench, start_worker):
    start_worker(own_server.url, "--processors", "1")
    bench = open_bench(own_server)
    running, waiting = count(bench), bench.run(f"echo once >> {quoted(bench.mark())}")
    own_server.kill()
    before = beats(bench)
    eventually(lambda: beats(bench) > before + 10)
    assert bench.refusal(bench.service.poll([bench.handles[running]])) is not None
    own_server.start()
    bench.wait(running, JobState.RUNNING)
    assert whole(finish(bench, running))
    assert bench.wait(waiting).state is JobState.SUCCEEDED
    assert bench.lines() == ["once"]


def test_what_a_server_forgets_comes_back_from_manager_and_workers(own_server, open_bench, start_worker):
    start_worker(own_server.url, "--processors", "1")
    bench = open_bench(own_server)
    running, waiting = count(bench), bench.run(f"echo once >> {quoted(bench.mark())}")
    own_server.forget()
    own_server.start()
    bench.wait(running, JobState.RUNNING)
    bench.wait(waiting, JobState.WAITING)
    assert whole(finish(bench, running))
    assert bench.wait(waiting, limit_s=60).state is JobState.SUCCEEDED
    assert bench.lines() == ["once"]


def test_an_outage_longer_than_the_period_stops_trials_and_loses_none(own_server, open_bench, start_worker):
    start_worker(own_server.url)
    bench = open_bench(own_server, worker_healthy_period=PERIOD_S)
    name = count(bench)
    own_server.kill()
    eventually(lambda: stands_still(bench))
    own_server.start()
    at = beats(bench)
    eventually(lambda: beats(bench) > at)
    assert bench.wait(name, JobState.RUNNING)
    assert whole(finish(bench, name))


def test_the_trial_of_a_killed_worker_is_lost_after_the_period_and_ended(shared_server, open_bench, start_worker):
    worker = start_worker(shared_server.url)
    bench = open_bench(shared_server, worker_healthy_period=PERIOD_S)
    name = count(bench)
    worker.kill()
    status = bench.wait(name, JobState.LOST)
    assert f"worker {worker.name} of the job has been silent for" in status.reason
    eventually(lambda: not runs(int(bench.lines("beats")[-1])))
    assert [host.state for host in bench.service.hosts()] == ["unhealthy"]


def test_a_worker_that_was_killed_goes_on_if_it_is_started_in_time(shared_server, open_bench, start_worker):
    worker = start_worker(shared_server.url)
    bench = open_bench(shared_server, worker_healthy_period=60)
    name = count(bench)
    worker.kill()
    worker.start()
    at = beats(bench)
    eventually(lambda: beats(bench) > at + 5)
    assert bench.wait(name, JobState.RUNNING).state is JobState.RUNNING
    assert whole(finish(bench, name))


def test_what_a_killed_worker_and_its_keeper_have_left_is_delivered(shared_server, open_bench, start_worker):
    worker = start_worker(shared_server.url)
    bench = open_bench(shared_server, worker_healthy_period=60)
    name = count(bench)
    worker.kill()
    [lock] = worker.folder.glob("*/trials/*/0/.nni/lock")
    [keeper] = [process for process in psutil.process_iter() if _holds(process, lock)]
    keeper.kill()
    worker.start()
    assert bench.wait(name).state is JobState.LOST
    reported = len((lock.parent / "metrics").read_bytes().splitlines())
    eventually(lambda: len(bench.received(name).values) == reported)
    assert bench.received(name).values == list(range(reported))


def test_a_job_whose_keeper_was_stopped_ends_when_it_is_canceled(shared_server, open_bench, start_worker):
    worker = start_worker(shared_server.url)
    bench = open_bench(shared_server, worker_healthy_period=60)
    name = count(bench)
    [lock] = worker.folder.glob("*/trials/*/0/.nni/lock")
    [keeper] = [process for process in psutil.process_iter() if _holds(process, lock)]
    keeper.suspend()
    bench.call(bench.service.cancel(bench.handles[name]))
    eventually(lambda: stands_still(bench), 20)
    assert bench.wait(name).state in (JobState.LOST, JobState.CANCELED)
    eventually(lambda: not runs(keeper.pid))


def _holds(process: psutil.Process, lock: Path) -> bool:
    try:
        return any(file.path == str(lock) for file in process.open_files())
    except psutil.Error:
        return False


@pytest.fixture
def silenced(request, shared_server, cable, start_worker):
    """A worker, and how it falls silent and comes back."""
    worker = start_worker(cable.url)
    if request.param == "stopped":
        return worker, lambda: worker.signal(signal.SIGSTOP), lambda: worker.signal(signal.SIGCONT)
    return worker, cable.cut, cable.mend


@pytest.mark.parametrize("silenced", ["stopped", "cut off"], indirect=True)
def test_a_silent_worker_has_stopped_its_trial_before_it_is_lost_and_ends_it_when_it_is_back(
    silenced, shared_server, open_bench
):
    worker, fall_silent, come_back = silenced
    bench = open_bench(shared_server, worker_healthy_period=PERIOD_S)
    name = count(bench)
    fall_silent()
    bench.wait(name, JobState.LOST)
    at = beats(bench)
    assert stands_still(bench)
    bench.received(name).fenced = True  # as a manager does that has begun another attempt
    come_back()
    pid = int(bench.lines("beats")[-1])
    eventually(lambda: not runs(pid))
    assert beats(bench) == at
    eventually(lambda: not list(worker.folder.glob("*/trials")))


@pytest.mark.parametrize("silenced", ["stopped", "cut off"], indirect=True)
def test_a_worker_that_is_back_in_time_goes_on(silenced, shared_server, open_bench):
    _, fall_silent, come_back = silenced
    bench = open_bench(shared_server, worker_healthy_period=20)
    name = count(bench)
    fall_silent()
    status = bench.wait(name, JobState.UNKNOWN)
    assert "has not reported for" in status.reason
    come_back()
    bench.wait(name, JobState.RUNNING)
    assert whole(finish(bench, name))


def test_a_worker_that_is_told_to_stop_finishes_what_runs_and_takes_no_more(shared_server, open_bench, start_worker):
    worker = start_worker(shared_server.url, "--processors", "1")
    bench = open_bench(shared_server)
    running, waiting = count(bench), bench.run("true")
    worker.signal(signal.SIGTERM)
    eventually(lambda: "are stopping" in bench.status(waiting).reason)
    assert whole(finish(bench, running))
    assert worker.wait() == 0
    eventually(lambda: "no worker has joined" in bench.status(waiting).reason)
    assert not bench.service.hosts()


def test_a_worker_that_is_told_twice_ends_what_runs_which_is_tried_elsewhere(shared_server, open_bench, start_worker):
    worker = start_worker(shared_server.url)
    bench = open_bench(shared_server)
    name = count(bench)
    worker.stop()
    status = bench.wait(name)
    assert (status.state, status.reason) == (JobState.LOST, "the worker was stopped")
    assert worker.wait() == 0


def test_a_worker_ends_what_runs_when_the_time_for_it_is_over(shared_server, open_bench, start_worker):
    worker = start_worker(shared_server.url, "--drain-limit", "1s")
    bench = open_bench(shared_server)
    name = count(bench)
    worker.signal(signal.SIGTERM)
    assert bench.wait(name).state is JobState.LOST
    assert worker.wait() == 0


def test_two_workers_cannot_work_in_one_folder(shared_server, start_worker):
    worker = start_worker(shared_server.url)
    command = [sys.executable, "-m", "nnilite._cli", "worker", "--redis", shared_server.url]
    ran = subprocess.run([*command, "--folder", str(worker.folder)], capture_output=True, text=True, timeout=60)
    assert ran.returncode == CONFLICT
    assert "another worker works in" in ran.stderr


def test_two_workers_cannot_have_one_name(shared_server, prefix, start_worker, tmp_path):
    start_worker(shared_server.url, "--name", "me")
    command = [sys.executable, "-m", "nnilite._cli", "worker", "--redis", shared_server.url, "--prefix", prefix]
    words = [*command, "--name", "me", "--folder", str(tmp_path / "second")]
    ran = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert ran.returncode == CONFLICT
    assert "a worker 'me' has joined already: give this one another name (--name)" in ran.stderr


def test_a_job_whose_taking_was_not_answered_is_started_all_the_same(shared_server, prefix, open_bench, start_worker):
    bench = open_bench(shared_server)
    name = bench.run(f"echo once >> {quoted(bench.mark())}")
    with shared_server.client() as client:  # the take, by a worker that will never hear of it
        [queue] = client.keys(f"{prefix}:queue:*")
        keys = [f"{prefix}:slots", f"{prefix}:claims", queue]
        words = ["me", 0, f"{prefix}:job:", f"{prefix}:experiment:", 15000, 600, "x"]
        assert client.eval(TAKE, len(keys), *keys, *words)[0] == b"taken"
    start_worker(shared_server.url, "--name", "me")
    assert bench.wait(name).state is JobState.SUCCEEDED
    assert bench.lines() == ["once"]


def test_a_queue_that_has_run_out_keeps_no_worker_from_the_others(shared_server, prefix, open_bench, start_worker):
    gone, bench = (open_bench(shared_server, worker_labels=[label]) for label in ("old", "new"))
    gone.run("true")
    with shared_server.client() as client:
        [name] = [name for name, wants in client.hgetall(f"{prefix}:queues").items() if b"old" in wants]
        assert client.delete(f"{prefix}:queue:{name.decode()}")
    start_worker(shared_server.url, "--labels", "new")
    assert bench.wait(bench.run("true")).state is JobState.SUCCEEDED


def test_a_worker_that_hears_of_its_job_when_it_is_another_s_does_not_run_it(
    shared_server, cable, prefix, open_bench, start_worker
):
    """The answer to its take reaches it when it has just been stopped, and it reads that answer an hour later."""
    worker = start_worker(cable.url)
    bench = open_bench(shared_server, worker_healthy_period=PERIOD_S)
    bench.wait(bench.run("true"))  # so that the next one has all that it needs
    worker.signal(signal.SIGSTOP)
    name = bench.run(f"echo ran >> {quoted(bench.mark())}")
    cable.hold_answers_to(b"return {'taken'")
    worker.signal(signal.SIGCONT)
    with shared_server.client() as client:
        eventually(lambda: client.hget(f"{prefix}:job:{name}", "worker"))
    worker.signal(signal.SIGSTOP)
    cable.mend()
    bench.wait(name, JobState.LOST)
    cable.hold_answers_to(b"return {'waits'")
    worker.signal(signal.SIGCONT)
    pause(2, "it cannot hear yet that it has lost the job, and could start it meanwhile")
    cable.mend()
    eventually(lambda: "was taken away" in worker.log)
    trial = name.split("-")[2]
    eventually(lambda: not list(worker.folder.glob(f"*/trials/{trial}")))
    bench.wait(bench.run(f"echo other >> {quoted(bench.mark())}"), JobState.SUCCEEDED)
    assert bench.lines() == ["other"]


def test_nobody_waits_for_what_a_silent_worker_could_report(shared_server, open_bench, start_worker):
    worker = start_worker(shared_server.url)
    bench = open_bench(shared_server, worker_healthy_period=PERIOD_S)
    name = count(bench)
    worker.signal(signal.SIGSTOP)
    bench.wait(name, JobState.LOST)
    began = time.monotonic()
    assert list(bench.call(bench.service.reports(bench.handles[name]))) == []
    assert time.monotonic() - began < 5


def test_what_a_keeper_could_not_deliver_can_be_read_from_its_worker(shared_server, open_bench, start_worker):
    start_worker(shared_server.url)
    bench = open_bench(shared_server)
    bench.receiver.stop()
    name = bench.python("import nnilite; nnilite.report_final_result(0.5)", linger_s=1)
    assert bench.wait(name, limit_s=60).state is JobState.SUCCEEDED
    found = bench.call(bench.service.reports(bench.handles[name]))
    assert [type(event).__name__ for event in found] == ["Started", "Reported", "Exited"]
    assert found[1].value == 0.5


def test_output_that_has_not_come_to_the_manager_comes_with_the_reports(shared_server, open_bench, start_worker):
    """Its end is known by Redis then, and nobody waits for the keeper after the end."""
    start_worker(shared_server.url)
    bench = open_bench(shared_server)
    name = bench.run("printf hello; printf trouble >&2")
    bench.wait(name)
    handle = bench.handles[name]
    here = bench.service.context.directory / "trials" / handle["trial"] / str(handle["attempt"])
    here.mkdir(parents=True, exist_ok=True)
    (here / "trial.stdout").write_bytes(b"he")
    (here / "trial.stderr").unlink(missing_ok=True)
    events = bench.call(bench.service.reports(handle))
    found = [event for event in events if isinstance(event, Output)]
    run = events[-1].run
    assert found == [Output("stdout", 2, b"llo", run), Output("stderr", 0, b"trouble", run)]
