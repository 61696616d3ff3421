"""The fork server."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keeper_bench import Bench, pythons, running, until
from nnilite._keeper.attempt_files import AttemptFiles
from nnilite._keeper.fork_server import _Log
from waiting import pause

pytestmark = pytest.mark.process


class Server:
    def __init__(self, bench):
        self.process = bench.keeper("serve")

    def order(self, text):
        self.process.stdin.write(text + "\n")
        self.process.stdin.flush()

    def run(self, bench, command, **more):
        self.order(json.dumps({"spec": str(bench.spec(command, **more))}))

    def event(self):
        return json.loads(self.process.stdout.readline())


@pytest.fixture(params=pythons(), ids=lambda path: path.split("/")[-3])
def bench(request, tmp_path):
    with Bench(tmp_path, request.param) as bench:
        yield bench


def test_a_job_is_started_and_its_end_told(bench):
    server = Server(bench)
    server.run(bench, "echo 'final 1' >> \"$NNILITE_METRICS\"; exit 3")
    started, ended = server.event(), server.event()
    assert (started["event"], started["job"]) == ("started", "nni-exp-Xy12z-0")
    assert ended == {"event": "ended", "job": "nni-exp-Xy12z-0", "pid": started["pid"], "status": 3}
    assert bench.callback.values == [1]


@pytest.mark.parametrize(
    "line", ["junk", "[]", '{"spec": 3}', '{"spec": "/no/such/file"}', '{"spec": "-"}', "\0", "[" * 100_000]
)
def test_a_bad_order_is_refused_and_the_next_one_taken(tmp_path, line):
    with Bench(tmp_path) as bench:
        server = Server(bench)
        server.order(line)
        assert server.event()["event"] == "refused"
        server.run(bench, "true")
        assert [server.event()["event"], server.event()["event"]] == ["started", "ended"]


def test_keepers_go_on_when_the_server_ends(bench):
    server = Server(bench)
    server.run(bench, "echo up; while [ ! -e go ]; do sleep 0.05; done; exit 3")
    keeper = server.event()["pid"]
    bench.wait_for_start()
    server.process.stdin.close()
    assert server.process.wait(60) == 0
    assert server.process.stdout.read() == ""
    (bench.folder / "go").touch()
    until(lambda: bench.callback.exits)
    assert bench.callback.exits[0].code == 3
    until(lambda: not running(keeper))


def test_keepers_go_on_when_the_server_is_killed(tmp_path):
    with Bench(tmp_path) as bench:
        server = Server(bench)
        server.run(bench, "echo up; while [ ! -e go ]; do sleep 0.05; done")
        bench.wait_for_start()
        os.killpg(os.getpgid(server.process.pid), 0)
        server.process.send_signal(signal.SIGKILL)
        server.process.wait(60)
        (bench.folder / "go").touch()
        until(lambda: bench.callback.exits)


def test_a_keeper_can_be_canceled_by_its_pid_at_once(tmp_path):
    for number in range(5):
        folder = tmp_path / str(number)
        folder.mkdir()
        with Bench(folder) as bench:
            server = Server(bench)
            server.run(bench, "sleep 1000")
            os.kill(server.event()["pid"], signal.SIGTERM)
            assert server.event()["status"] in (4, 143)
            assert "canceled" in bench.callback.exits[0].message


def test_a_killed_keeper_is_told(tmp_path):
    with Bench(tmp_path) as bench:
        server = Server(bench)
        server.run(bench, "echo up; sleep 1000")
        pid = server.event()["pid"]
        bench.wait_for_start()
        os.kill(pid, signal.SIGKILL)
        assert server.event()["status"] == -9


def test_reporting_to_standard_output_is_refused(tmp_path):
    with Bench(tmp_path) as bench:
        server = Server(bench)
        server.run(bench, "true", report="stdout")
        assert "no standard output of its own" in server.event()["message"]


PRELOADING = """
import json, sys
from nnilite._keeper.fork_server import serve
serve()
print(json.dumps(sorted({"encodings.ascii", "encodings.idna", "http.client", "hmac", "shutil"} & set(sys.modules))))
"""


@pytest.mark.parametrize("local", [False, True])
def test_what_keepers_need_is_imported_before_they_are_forked(tmp_path: Path, local: bool) -> None:
    """What only speaks over a network is not waited for by those that report over a local socket."""
    with Bench(tmp_path) as bench:
        address = tmp_path / "callback"
        address.write_text(bench.callback.url)
        spec = bench.spec("true", callback_file=str(address) if local else None)
        command = [sys.executable, "-c", PRELOADING]
        with subprocess.Popen(command, stdin=-1, stdout=-1, text=True) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(json.dumps({"spec": str(spec)}) + "\n")
            process.stdin.flush()
            assert [json.loads(process.stdout.readline())["event"] for _ in range(2)] == ["started", "ended"]
            process.stdin.close()
            loaded = json.loads(process.stdout.read())
    assert loaded == ["encodings.ascii", *([] if local else ["encodings.idna", "hmac", "http.client"]), "shutil"]


NOBODY = {"callback": "http://127.0.0.1:9", "linger_s": 0}


@pytest.mark.parametrize(("callback", "delivered"), [({}, [True]), (NOBODY, []), ({"callback": None}, [])])
def test_a_keeper_that_stays_says_whether_the_manager_has_everything(tmp_path, callback, delivered):
    with Bench(tmp_path) as bench:
        server = Server(bench)
        spec = bench.spec("exit 3", **callback)
        server.order(json.dumps({"spec": str(spec), "again": True}))
        assert server.event()["event"] == "started"
        ended = server.event()
        assert (ended["status"], [ended[word] for word in ended if word == "delivered"]) == (3, delivered)


class Jobs:
    """Jobs for keepers that may be used again. They report to nobody, so that each is over when its command is."""

    def __init__(self, bench: Bench, folder: Path) -> None:
        self.server = Server(bench)
        self._bench, self._folder = bench, folder
        self.pids: dict[str, int] = {}
        self.ends: dict[str, int] = {}
        self.told: list[tuple[str, bool]] = []

    def give(self, job: str, command: str) -> None:
        place = self._bench.spec(command, job=job, callback=None, directory=str(self._folder / job / "0"))
        spec = self._folder / f"{job}.json"
        place.rename(spec)
        self.server.order(json.dumps({"spec": str(spec), "again": True}))

    def end(self, job: str) -> None:
        self.server.order(json.dumps({"end": job}))

    def hear(self) -> str:
        """Take the next event."""
        event = self.server.event()
        if event["event"] == "started":
            self.pids[event["job"]] = event["pid"]
        elif event["event"] == "ended":
            assert event["job"] not in self.ends, "an end was told twice"
            self.ends[event["job"]] = event["status"]
        elif event["event"] == "told":
            self.told.append((event["job"], event["found"]))
        return event["event"]

    def finish(self, *jobs: str) -> list[int]:
        while not set(jobs) <= set(self.ends):
            self.hear()
        return [self.ends[job] for job in jobs]

    def cause(self, job: str) -> tuple[int | None, str]:
        """Code and cause of the end that the keeper has recorded."""
        exited = json.loads((self._folder / job / "0/.nni/exit").read_text())
        return exited["code"], exited["cause"]


@pytest.fixture
def jobs(tmp_path):
    with Bench(tmp_path) as bench:
        yield Jobs(bench, tmp_path)


def test_a_keeper_runs_one_job_after_the_other(jobs):
    for number in range(3):
        jobs.give(f"j{number}", f"exit {number}")
        assert jobs.finish(f"j{number}") == [number]
        assert jobs.cause(f"j{number}") == (number, "")
    assert len(set(jobs.pids.values())) == 1


def test_two_jobs_at_once_have_two_keepers(jobs, tmp_path):
    jobs.give("a", f"while [ ! -e {tmp_path}/go ]; do sleep 0.02; done")
    jobs.give("b", "exit 3")
    jobs.finish("b")
    (tmp_path / "go").touch()
    assert jobs.finish("a", "b") == [0, 3]
    assert jobs.pids["a"] != jobs.pids["b"]


def test_nothing_of_a_job_is_left_for_the_next_one(jobs, tmp_path):
    jobs.give("a", 'echo out; echo err >&2; echo "final 1" >> "$NNILITE_METRICS"; export A=1; cd /; exit 3')
    jobs.finish("a")
    jobs.give("b", 'pwd; env | grep -c "^A=\\|j0"; echo $NNILITE_JOB $(basename $(dirname $NNI_OUTPUT_DIR))')
    jobs.finish("b")
    assert (tmp_path / "b/0/trial.stdout").read_text().split() == [str(tmp_path / "b/0"), "0", "b", "b"]
    spool = tmp_path / "b/0/.nni/metrics"
    assert not spool.exists() or spool.read_text() == ""
    assert (tmp_path / "b/0/trial.stderr").read_text() == ""


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="there is no /proc")
def test_a_keeper_keeps_no_files_of_what_it_has_run(jobs, tmp_path):
    seen = []
    for number in range(4):
        jobs.give(f"j{number}", 'echo out; echo "final 1" >> "$NNILITE_METRICS"')
        jobs.finish(f"j{number}")
        files = [str(one.readlink()) for one in Path(f"/proc/{jobs.pids['j0']}/fd").iterdir()]
        assert not [file for file in files if str(tmp_path) in file]
        seen.append(len(files))
    assert len(set(seen)) == 1


def test_only_a_keeper_with_something_to_say_makes_a_log(jobs, tmp_path, capfd):
    jobs.give("a", "true")
    jobs.finish("a")
    log = tmp_path / "a/0/.nni/keeper.log"
    assert not log.exists()
    for word in ("one", "two"):
        print(word, file=_Log(str(log)))
    assert log.read_text() == "one\ntwo\n"
    assert log.stat().st_mode & 0o777 == 0o600
    print("three", file=_Log(str(tmp_path / "gone/keeper.log")))
    assert capfd.readouterr().err == "three\n"


def test_a_keeper_that_was_told_to_end_gets_no_further_job(jobs):
    jobs.give("a", "sleep 100")
    jobs.hear()
    jobs.end("a")
    jobs.give("b", "exit 3")
    assert jobs.finish("a", "b")[1] == 3
    assert jobs.pids["a"] != jobs.pids["b"]
    assert jobs.told == [("a", True)]
    assert (jobs.cause("a")[1], jobs.cause("b")) == ("interrupted", (3, ""))


def test_a_job_that_has_ended_is_not_ended_again(jobs):
    jobs.give("a", "true")
    jobs.finish("a")
    jobs.end("a")
    jobs.end("nobody")
    while len(jobs.told) < 2:
        jobs.hear()
    assert jobs.told == [("a", False), ("nobody", False)]
    jobs.give("b", "exit 3")
    assert jobs.finish("b") == [3]


def test_a_job_is_unlocked_before_its_end_is_told(jobs, tmp_path):
    for number in range(5):
        jobs.give(f"j{number}", "true")
        jobs.finish(f"j{number}")
        assert AttemptFiles(str(tmp_path / f"j{number}" / "0")).is_locked() is False


@pytest.mark.parametrize("kill", [False, True])
def test_free_keepers_leave_with_their_server(jobs, kill):
    jobs.give("a", "true")
    jobs.finish("a")
    assert running(jobs.pids["a"])
    if kill:
        jobs.server.process.kill()
    else:
        jobs.server.process.stdin.close()
    until(lambda: not running(jobs.pids["a"]))


def test_a_free_keeper_leaves_after_a_while(jobs, tmp_path):
    jobs.give("a", "true")
    jobs.finish("a")
    # The same one runs this; nobody is free then.
    jobs.give("b", f"while [ ! -e {tmp_path}/go ]; do sleep 0.02; done")
    until(lambda: "b" in jobs.pids or (jobs.hear() and False))
    jobs.give("c", "true")
    jobs.finish("c")
    until(lambda: not running(jobs.pids["c"]))
    assert running(jobs.pids["b"])
    (tmp_path / "go").touch()
    assert jobs.finish("b") == [0]


def test_a_keeper_that_dies_while_it_is_free_costs_at_most_the_job_that_it_was_given(jobs):
    ends = []
    for number in range(10):
        jobs.give(f"a{number}", "true")
        jobs.finish(f"a{number}")
        os.kill(jobs.pids[f"a{number}"], signal.SIGKILL)
        jobs.give(f"b{number}", "exit 3")
        ends += jobs.finish(f"b{number}")
    assert set(ends) <= {3, -9}
    jobs.give("last", "exit 3")
    assert jobs.finish("last") == [3]


def test_a_job_whose_specification_has_gone_is_over(jobs, tmp_path):
    jobs.give("a", "true")
    jobs.finish("a")
    os.kill(jobs.pids["a"], signal.SIGSTOP)
    jobs.give("b", "true")
    jobs.hear()
    (tmp_path / "b.json").unlink()
    os.kill(jobs.pids["a"], signal.SIGCONT)
    assert jobs.finish("b") == [70]
    assert not (tmp_path / "b/0/.nni/started").exists()


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 40), st.booleans()), min_size=1, max_size=25))
@settings(max_examples=15, deadline=None)
def test_an_order_to_end_never_hits_another_job(tmp_path_factory, plan):
    """Each job lasts some milliseconds, and some are told to end in that time or just after it."""
    folder = tmp_path_factory.mktemp("ends")
    with Bench(folder) as bench:
        jobs, asked = Jobs(bench, folder), set()
        for number, (wait, lasts_ms, ends) in enumerate(plan):
            jobs.give(f"j{number}", f"sleep 0.0{lasts_ms:02}; exit 3")
            while f"j{number}" not in jobs.pids:
                jobs.hear()
            pause(wait * 0.01, "the job may end meanwhile, or not")
            if ends:
                asked.add(f"j{number}")
                jobs.end(f"j{number}")
        every = [f"j{number}" for number in range(len(plan))]
        jobs.finish(*every)
        for job in set(every) - asked:
            assert jobs.cause(job) == (3, ""), f"{job} was ended in place of another"
        for job in asked:
            code, cause = jobs.cause(job)
            assert (cause == "interrupted") or code == 3
