"""Ranks that mpirun and horovodrun start, on one node and on several."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import processes
from keeper_bench import LIMIT_S, Bench, running, until
from mpi_sum import SUM, library
from nnilite._keeper.agent_server import AgentServer
from nnilite._keeper.folder import Folder
from nnilite._keeper.launch_agent import split_words
from nnilite._keeper.launched_processes import LaunchedProcesses
from nnilite._keeper.launcher import environment, name_nodes
from nnilite._keeper.node_link import LinkBroken
from nnilite._keeper.process import identity
from nnilite._keeper.rank_variables import Layout
from two_nodes import SHOW, UP, Nodes

pytestmark = pytest.mark.process
WAIT_FOR_ALL = 'while [ "$(ls "$UP" | wc -l)" != 4 ]; do sleep 0.1; done; '
ON_TWO = {"nodes": 2, "processes": 2, "launcher": "mpi"}


@pytest.fixture
def mpirun():
    if shutil.which("mpirun") is None:
        pytest.skip("there is no mpirun; install the package openmpi-bin")


@pytest.fixture
def nodes(tmp_path, mpirun):
    found = Nodes(tmp_path, **ON_TWO)
    with found.first, found.other:
        yield found


def test_mpirun_starts_the_ranks_on_both_nodes_with_the_variables_of_each(nodes):
    first, other = nodes.start(
        f'{SHOW} "$NNILITE_JOB" $OMPI_COMM_WORLD_RANK; echo intermediate $RANK >> "$NNILITE_METRICS"'
    )
    assert (first.wait(LIMIT_S), other.wait(LIMIT_S)) == (0, 0)

    assert nodes.first.text("stdout") == f"0/4 0/2 0 0 127.0.0.1 {nodes.job} 0\n"
    assert nodes.log(3) == f"3/4 1/2 1 1 127.0.0.1 {nodes.job} 3\n"
    assert nodes.first.callback.values == [0]
    assert [(entry["rank"], entry["node"], entry["state"], entry["exitCode"]) for entry in nodes.roles()] == [
        (0, 0, "SUCCEEDED", 0),
        (1, 0, "SUCCEEDED", 0),
        (2, 1, "SUCCEEDED", 0),
        (3, 1, "SUCCEEDED", 0),
    ]


def left(nodes: Nodes) -> list[int]:
    """The processes of a trial that are left on this machine."""
    return [pid for pid in processes.with_variable(f"NNILITE_JOB={nodes.job}") if running(pid)]


def is_node(pid: int, folder: str = "") -> bool:
    """Whether a process is the program of a node itself; of that node which has this folder, if one is given."""
    command = processes.read(pid, "cmdline")
    return b"_keeper.node import" in command and folder.encode() in command


def test_a_rank_that_fails_under_mpirun_gives_the_others_their_grace_and_is_the_reason(nodes):
    stays = f"trap 'sleep 2; echo saved; exit 3' TERM; {UP}while :; do sleep 0.1; done"
    first, other = nodes.start(
        f'[ $RANK = 3 ] || {{ {stays}; }}; {UP}{WAIT_FOR_ALL}echo "out of memory" >&2; exit 9', grace_s=30
    )
    assert first.wait(LIMIT_S) == 9
    other.wait(LIMIT_S)
    [end] = nodes.first.callback.exits
    assert end.message == f"rank 3 on {os.uname().nodename}: exit code 9\nout of memory"
    assert (end.code, end.cause) == (9, "")
    assert [entry["state"] for entry in nodes.roles()] == ["CANCELED", "CANCELED", "CANCELED", "FAILED"]
    assert [nodes.log(rank).splitlines()[-1] for rank in (1, 2)] == ["saved", "saved"]
    until(lambda: not left(nodes))


def test_the_rank_that_has_failed_first_is_the_reason_even_if_it_is_heard_of_later(nodes):
    ends = 'while [ ! -e "$UP/end $RANK" ]; do sleep 0.1; done; exit $(($RANK + 5))'
    first, other = nodes.start(f"{UP}{ends}")
    nodes.pids()
    [program] = [pid for pid in left(nodes) if is_node(pid, str(nodes.other.folder))]
    os.kill(program, signal.SIGSTOP)
    (nodes.up / "end 2").touch()
    until(lambda: "ended" in (Folder(str(nodes.other.folder)).read("launched/2") or {}))
    (nodes.up / "end 0").touch()
    until(lambda: [one for one in nodes.roles() if one["rank"] == 0 and one["state"] == "FAILED"])
    os.kill(program, signal.SIGCONT)
    assert first.wait(LIMIT_S) == 7
    other.wait(LIMIT_S)
    assert nodes.first.callback.exits[0].message.startswith(f"rank 2 on {os.uname().nodename}: exit code 7")
    until(lambda: not left(nodes))


def test_a_cancellation_leaves_no_rank_of_mpirun_even_if_all_ignore_it(nodes):
    first, _ = nodes.start(f"trap '' TERM; {UP}while :; do sleep 0.1; done", grace_s=1)
    nodes.pids()
    first.terminate()
    assert first.wait(LIMIT_S) == 137
    assert nodes.first.callback.exits[0].cause == "interrupted"
    until(lambda: all(map(is_node, left(nodes))))  # that of the other one waits a while for the first


def find_agent(nodes: Nodes) -> int:
    """The process of `launch_agent` that stands for the other node's daemon."""

    def find() -> list[int]:
        return [pid for pid in left(nodes) if b"_keeper.launch_agent" in processes.read(pid, "cmdline")]

    return until(find)[0]


def test_an_agent_of_mpirun_that_is_stopped_while_the_trial_runs_and_ends_does_no_harm(nodes):
    first, other = nodes.start(f'{UP}while [ ! -e "$UP/end" ]; do sleep 0.1; done; echo "$RANK ends"')
    nodes.pids()
    agent = find_agent(nodes)
    os.kill(agent, signal.SIGSTOP)
    (nodes.up / "end").touch()
    log = nodes.first.folder / "roles" / "rank-3.log"
    until(lambda: log.exists() and log.read_text() == "3 ends\n")
    os.kill(agent, signal.SIGCONT)
    assert (first.wait(LIMIT_S), other.wait(LIMIT_S)) == (0, 0)
    until(lambda: not left(nodes))


def test_a_stopped_agent_of_mpirun_does_not_keep_a_canceled_trial(nodes):
    first, _ = nodes.start(f"{UP}exec sleep 60", grace_s=1)
    nodes.pids()
    os.kill(find_agent(nodes), signal.SIGSTOP)
    first.terminate()
    assert first.wait(LIMIT_S) in (137, 143)
    assert nodes.first.callback.exits[0].cause == "interrupted"
    until(lambda: all(map(is_node, left(nodes))))


def test_a_launcher_that_is_killed_ends_the_trial_on_all_nodes(nodes):
    first, other = nodes.start(f"{UP}exec sleep 60")
    nodes.pids()
    [launcher] = [pid for pid in left(nodes) if processes.read(pid, "comm") == b"mpirun\n"]
    os.kill(launcher, signal.SIGKILL)
    first.wait(LIMIT_S)
    other.wait(LIMIT_S)
    host = os.uname().nodename
    assert nodes.first.callback.exits[0].message.startswith(f"mpirun on {host}: killed by SIGKILL")
    until(lambda: not left(nodes))


def test_a_node_of_mpirun_that_is_taken_away_makes_the_trial_lost(nodes):
    first, other = nodes.start(f"{UP}exec sleep 60")
    nodes.pids()
    other.terminate()
    other.wait(LIMIT_S)
    first.wait(LIMIT_S)
    [end] = nodes.first.callback.exits
    assert end.message == f"node 1 ({os.uname().nodename}): it was taken away (SIGTERM)"
    assert end.cause == "machine"
    until(lambda: not left(nodes))


def test_mpirun_starts_the_ranks_of_one_machine_each_with_its_own_log_and_record(tmp_path, mpirun):
    with Bench(tmp_path) as bench:
        here = {"nodes": 2, "processes": 2, "launcher": "mpi", "here": 2}
        assert bench.run(SHOW, distributed=here) == 0
        assert bench.text("stdout") == "0/4 0/4 0 0 127.0.0.1\n"
        assert (bench.folder / "roles/rank-3.log").read_text() == "3/4 3/4 1 1 127.0.0.1\n"
        roles = json.loads((bench.folder / "roles.json").read_text())
        assert [(entry["rank"], entry["node"], entry["state"]) for entry in roles] == [
            (rank, rank // 2, "SUCCEEDED") for rank in range(4)
        ]


def test_a_launcher_that_is_missing_on_the_first_node_is_told_with_the_cure(tmp_path):
    with Bench(tmp_path) as bench:
        here = {"nodes": 1, "processes": 1, "launcher": "horovod"}
        bench.run("true", distributed=here, env={"PATH": "/nowhere"})
        [end] = bench.callback.exits
        host = os.uname().nodename
        assert end.message == f"horovodrun was not found on {host}; install it there, or set another launcher"
        assert end.cause == ""


@pytest.fixture
def with_horovodrun(tmp_path, monkeypatch):
    """Two nodes, and a program that starts processes as horovodrun does."""
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin/horovodrun"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} {Path(__file__).parents[1] / "horovodrun.py"} "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=os.pathsep)
    found = Nodes(tmp_path, **{**ON_TWO, "launcher": "horovod"})
    with found.first, found.other:
        yield found


def test_horovodrun_starts_ranks_by_ssh_where_there_is_none_and_each_has_its_own_node(with_horovodrun):
    nodes = with_horovodrun
    first, other = nodes.start(f'{SHOW} $HOROVOD_RANK "$NNI_OUTPUT_DIR"; command -v ssh; true')
    assert (first.wait(LIMIT_S), other.wait(LIMIT_S)) == (0, 0)
    assert nodes.first.text("stdout").startswith(f"0/4 0/2 0 0 127.0.0.1 0 {nodes.first.folder}\n")
    assert nodes.log(3).startswith(f"3/4 1/2 1 1 127.0.0.1 3 {nodes.other.folder}\n")
    assert ".nni/agent" not in nodes.first.text("stdout") + nodes.log(3)  # a trial's own ssh is the machine's
    assert [entry["state"] for entry in nodes.roles()] == ["SUCCEEDED"] * 4


def test_a_rank_that_fails_under_horovodrun_is_the_reason_and_nothing_is_left(with_horovodrun):
    nodes = with_horovodrun
    first, other = nodes.start(f'{UP}[ $RANK = 2 ] || exec sleep 60; {WAIT_FOR_ALL}echo "no memory" >&2; exit 9')
    assert first.wait(LIMIT_S) == 9
    other.wait(LIMIT_S)
    assert nodes.first.callback.exits[0].message == f"rank 2 on {os.uname().nodename}: exit code 9\nno memory"
    assert [entry["state"] for entry in nodes.roles()] == ["CANCELED", "CANCELED", "FAILED", "CANCELED"]
    until(lambda: not left(nodes))


def test_the_end_of_a_rank_that_is_found_when_all_are_ended_is_told_all_the_same(tmp_path):
    folder = Folder(str(tmp_path))
    folder.create()
    (tmp_path / ".nni/launched").mkdir()
    plan = {"launcher": "mpi", "node": 1, "grace_s": 1, "max_output_bytes": 0}
    processes = LaunchedProcesses(plan, folder.path)
    processes._hosts = {1: "b"}
    record = {"node": 1, "started": 1.0, "pid": 2**30, "own": identity(os.getpid())}
    folder.write("launched/2", record)
    folder.write("launched/3", {**record, "pid": "1"})  # the trial's own writing
    assert [one["state"] for one in processes.reap(False)] == ["RUNNING"]
    folder.write("launched/2", {**record, "ended": 2.0, "code": 0})
    processes.end()
    assert [one["state"] for one in processes.reap(True)] == ["SUCCEEDED"]


def test_a_node_that_lacks_a_part_of_the_launcher_is_told_with_the_cure(nodes, tmp_path):
    first, other = nodes.start("true", other_env={"PATH": str(tmp_path)})
    first.wait(LIMIT_S)
    other.wait(LIMIT_S)
    message = nodes.first.callback.exits[0].message
    assert message == f"mpirun was not found on {os.uname().nodename}; install it there, or set another launcher"
    until(lambda: not left(nodes))


def test_open_mpi_binds_no_process_to_a_processor_unless_the_trial_says_so(tmp_path):
    nodes = Layout([{"host": "a", "processes": 1, "ports": []}], 9)
    assert environment({}, nodes, str(tmp_path), "")["OMPI_MCA_hwloc_base_binding_policy"] == "none"
    own = {"OMPI_MCA_hwloc_base_binding_policy": "core"}
    assert environment(own, nodes, str(tmp_path), "")["OMPI_MCA_hwloc_base_binding_policy"] == "core"


def test_nodes_with_one_address_have_names_that_are_made_up():
    assert name_nodes(["10.0.0.1", "10.0.0.2", "10.0.0.3"], ["a", "b", "c"]) == ["10.0.0.1", "10.0.0.2", "10.0.0.3"]
    assert name_nodes(["10.0.0.1", "10.0.0.1", "fd00::2"], ["a", "a", "c"]) == ["10.0.0.1", "a-node-1", "c-node-2"]


@pytest.mark.parametrize("host", ["first", "unknown"])
def test_an_agent_that_is_gone_when_it_is_answered_does_no_harm(host):
    def break_off(_):
        raise LinkBroken("gone")

    closed = []
    line = SimpleNamespace(
        flush=lambda: None, read=lambda: [{"host": host}], send=break_off, close=lambda: closed.append(1)
    )
    server = AgentServer()
    server.names["first"] = 0
    server.accept_agent(line)
    server.process_messages()
    assert (server.lines, closed) == ([], [1])


def test_the_agent_reads_the_arguments_of_ssh():
    words = ["-o", "BatchMode=yes", "-oLogLevel=ERROR", "-x", "-p", "22", "me@host", "cd /;", "echo a  b"]
    assert split_words(words) == ("host", "cd /; echo a  b")
    assert split_words(["-x", "host"]) == ("host", "")
    assert split_words(["host", "-o", "ConnectTimeout=10", "-p", "22", "true", "-x"]) == ("host", "true -x")
    assert split_words(["-x", "host", "-x"]) == ("host", "")
    assert split_words([]) == ("", "")


@pytest.mark.skipif(library() is None, reason="there is no Open MPI; install the package openmpi-bin")
def test_a_rank_that_calls_mpi_abort_is_the_reason_and_mpirun_ends_without_a_crash(tmp_path):
    abort = "import time\nif rank == 2: mpi.MPI_Abort(given[2], 7)\ntime.sleep(60)\n"
    (tmp_path / "abort.py").write_text(SUM.partition("mpi.MPI_Allreduce")[0] + abort)
    with Bench(tmp_path) as bench:
        here = {"nodes": 1, "processes": 3, "launcher": "mpi"}
        assert bench.run(f'exec "$PYTHON" "{tmp_path}/abort.py"', distributed=here) == 7
        assert bench.callback.exits[0].message.startswith(f"rank 2 on {os.uname().nodename}: exit code 7")
        assert "Signal:" not in bench.text("stderr")
