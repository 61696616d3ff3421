"""The fork server."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest

from keeper_bench import Bench, pythons, running, until


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


def test_what_every_keeper_needs_is_imported_before_they_are_forked():
    wanted = "{'encodings.ascii', 'encodings.idna', 'http.client', 'hmac'}"
    program = f"import sys; from nnilite._keeper.fork_server import serve; serve(); print({wanted} <= set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", program], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["True"]
