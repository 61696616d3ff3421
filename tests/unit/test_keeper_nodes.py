"""A trial of several processes: their variables, reports, output and ends, on one node and on several."""

from __future__ import annotations

import errno
import json
import os
import signal
from contextlib import ExitStack
from pathlib import Path

import pytest

from keeper_bench import LIMIT_S, Bench, once_cut, running, until
from nnilite._keeper import plain_file
from nnilite._keeper.folder import Folder
from nnilite._keeper.node_records import NodeRecords
from nnilite._keeper.rank_variables import Layout, variables
from nnilite.records import Output
from nnilite.services.keeper_folder import MARK, read_log
from two_nodes import SHOW, UP, Nodes, take_ports

pytestmark = pytest.mark.process


@pytest.fixture
def nodes(tmp_path):
    found = Nodes(tmp_path)
    with found.first, found.other:
        yield found


def test_the_ranks_of_two_nodes_find_each_other_and_their_output_comes_to_the_first(nodes):
    first, other = nodes.start(f'{SHOW}; echo intermediate $RANK >> "$NNILITE_METRICS"')
    assert (first.wait(LIMIT_S), other.wait(LIMIT_S)) == (0, 0)
    assert nodes.first.text("stdout") == "0/4 0/2 0 0 127.0.0.1\n"
    assert [nodes.log(rank) for rank in (1, 2, 3)] == [
        "1/4 1/2 0 0 127.0.0.1\n",
        "2/4 0/2 1 1 127.0.0.1\n",
        "3/4 1/2 1 1 127.0.0.1\n",
    ]
    assert nodes.first.callback.values == [0]
    assert [(entry["rank"], entry["node"], entry["state"], entry["exitCode"]) for entry in nodes.roles()] == [
        (0, 0, "SUCCEEDED", 0),
        (1, 0, "SUCCEEDED", 0),
        (2, 1, "SUCCEEDED", 0),
        (3, 1, "SUCCEEDED", 0),
    ]


def test_records_and_output_of_all_ranks_come_with_the_events_before_the_end(nodes):
    first, other = nodes.start("seq $RANK 60000 | tail -n 50000; echo rank $RANK", send_output=True)
    assert (first.wait(LIMIT_S), other.wait(LIMIT_S)) == (0, 0)
    found = nodes.first.callback.output
    assert {rank: found[f"rank-{rank}"] for rank in (1, 2, 3)} == {rank: nodes.log(rank).encode() for rank in (1, 2, 3)}
    assert found["stdout"].endswith(b"rank 0\n")
    assert json.loads(found["roles"]) == nodes.roles()


def test_a_log_gets_the_records_and_a_part_of_the_output_of_all_ranks_in_short_lines(nodes):
    first, other = nodes.start("seq 60000; echo the end", send_output=True, report="stdout", callback=None)
    printed = first.communicate(timeout=LIMIT_S)[0]
    other.wait(LIMIT_S)
    told = [line for line in printed.splitlines() if line.startswith(MARK)]
    assert max(map(len, told)) < 16_000
    found: dict[str, bytes] = {}
    for event in read_log("\n".join(told).encode()):
        if isinstance(event, Output):
            assert event.offset == len(found.get(event.stream, b""))
            found[event.stream] = found.get(event.stream, b"") + event.data
    assert sorted(found) == ["rank-1", "rank-2", "rank-3", "roles"]
    assert found["rank-3"].startswith(b"1\n2\n")
    assert found["rank-3"].endswith(b"60000\nthe end\n")
    assert [entry["rank"] for entry in json.loads(found["roles"])] == [0, 1, 2, 3]


def test_output_that_the_first_node_cannot_write_is_asked_for_again(nodes):
    in_the_way = nodes.first.folder / "roles" / "rank-3.log"
    in_the_way.mkdir(parents=True)
    first, other = nodes.start("seq 50000; echo rank $RANK")
    log = nodes.first.folder / ".nni" / "keeper.log"
    until(lambda: log.exists() and "output of rank 3 cannot be written now" in log.read_text())
    in_the_way.rmdir()
    assert (first.wait(LIMIT_S), other.wait(LIMIT_S)) == (0, 0)
    assert nodes.log(3).endswith("\n50000\nrank 3\n")
    assert nodes.log(3).count("\n") == 50_001


def test_a_piece_of_output_is_written_as_far_as_there_is_room_and_the_rest_asked_for(tmp_path, monkeypatch):
    folder = Folder(str(tmp_path))
    folder.create()
    (tmp_path / "roles").mkdir()
    kept = NodeRecords(folder)
    write, room = os.pwrite, [3]

    def pwrite(file: int, data: bytes, offset: int) -> int:
        if offset >= room[0]:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(file, data[: room[0] - offset], offset)

    monkeypatch.setattr("os.pwrite", pwrite)
    kept.add_output(1, 0, b"abcdef")
    kept.add_output(1, 6, b"ghi")
    assert (kept.lacking, kept.size(1)) == ({1}, 3)
    room[0] = 100
    kept.add_output(1, 3, b"defghi")
    assert (kept.lacking, (tmp_path / "roles" / "rank-1.log").read_bytes()) == (set(), b"abcdefghi")


def test_a_pipe_or_a_link_in_the_place_of_a_ranks_log_takes_no_output_and_holds_up_nothing(tmp_path):
    folder = Folder(str(tmp_path))
    folder.create()
    roles = tmp_path / "roles"
    roles.mkdir()
    os.mkfifo(roles / "rank-1.log")
    (roles / "rank-2.log").symlink_to(tmp_path / "elsewhere")
    (roles / "rank-²³.log").touch()
    kept = NodeRecords(folder)
    for rank in (1, 2):
        kept.add_output(rank, 0, b"text")
    kept.begin_start({}, 1000)
    assert not (tmp_path / "elsewhere").exists()
    assert kept.size(1) == kept.size(2) == 0


def test_the_records_of_ranks_have_room_for_their_end_on_a_full_disk(tmp_path, monkeypatch):
    folder = Folder(str(tmp_path))
    folder.create()
    kept = NodeRecords(folder)
    kept.write({0: {"state": "RUNNING"}})
    assert (tmp_path / ".nni" / "roles.new").stat().st_size > 500
    write = plain_file.write

    def write_over(path: str, data: bytes, flags: int = os.O_TRUNC, cut_at: int | None = None) -> None:
        there = Path(path)
        if not there.exists() or there.stat().st_size < len(data) or flags & os.O_TRUNC:
            raise OSError(errno.ENOSPC, "No space left on device")
        write(path, data, flags, cut_at)

    monkeypatch.setattr(plain_file, "write", write_over)
    kept.write({0: {"state": "SUCCEEDED"}})
    assert json.loads((tmp_path / "roles.json").read_text()) == [{"state": "SUCCEEDED"}]
    kept.write({0: {"state": "FAILED"}})
    assert not kept.are_written


def test_if_one_rank_fails_all_end_and_its_host_code_and_last_lines_are_the_reason(nodes):
    fails = '[ $RANK = 3 ] || exec sleep 60; echo "out of memory" >&2; exit 9'
    first, other = nodes.start(fails)
    assert first.wait(LIMIT_S) == 9
    other.wait(LIMIT_S)
    [end] = nodes.first.callback.exits
    assert end.message == f"rank 3 on {os.uname().nodename}: exit code 9\nout of memory"
    assert (end.code, end.cause) == (9, "")
    assert [entry["state"] for entry in nodes.roles()] == ["CANCELED", "CANCELED", "CANCELED", "FAILED"]


def test_a_killed_rank_ends_the_others_within_the_grace_even_if_they_ignore_the_signal(nodes):
    nodes.start(f"trap '' TERM; {UP}while :; do sleep 0.1; done", grace_s=1)
    pids = nodes.pids()
    os.kill(pids[2], signal.SIGKILL)
    until(lambda: nodes.first.callback.exits)
    assert nodes.first.callback.exits[0].message.startswith(f"rank 2 on {os.uname().nodename}: killed by SIGKILL")
    until(lambda: not any(map(running, pids)))


def test_a_cancellation_reaches_all_ranks_and_counts_as_one(nodes):
    first, other = nodes.start(f"{UP}exec sleep 60")
    pids = nodes.pids()
    first.terminate()
    assert first.wait(LIMIT_S) == 143
    other.wait(LIMIT_S)
    assert not any(map(running, pids))
    assert nodes.first.callback.exits[0].cause == "interrupted"


def test_a_node_that_is_taken_away_makes_the_trial_lost_and_not_failed(nodes):
    first, other = nodes.start(f"{UP}exec sleep 60")
    pids = nodes.pids()
    other.terminate()
    other.wait(LIMIT_S)
    first.wait(LIMIT_S)
    [end] = nodes.first.callback.exits
    assert end.message == f"node 1 ({os.uname().nodename}): it was taken away (SIGTERM)"
    assert end.cause == "machine"
    assert not any(map(running, pids))


def test_output_over_the_cap_is_cut_on_all_nodes(nodes):
    # What is printed at the very moment of a cut may be lost: `nnilite._keeper.output` says so.
    first, other = nodes.start(f"seq 20000; {once_cut(20_000)}; echo the end", max_output_bytes=20_000)
    assert (first.wait(LIMIT_S), other.wait(LIMIT_S)) == (0, 0)
    for rank in (1, 3):
        assert nodes.log(rank).startswith("1\n2\n3\n")
        assert nodes.log(rank).endswith("the end\n")
        assert len(nodes.log(rank)) <= 20_000


def test_a_rank_other_than_0_is_told_once_that_its_reports_do_not_count(tmp_path):
    code = "import nnilite as n; n.get_next_parameter(); [n.report_intermediate_result(i) for i in range(3)]"
    with Bench(tmp_path) as bench:
        here = {"nodes": 2, "processes": 1, "launcher": "torch", "here": 2}
        assert bench.run(f'"$PYTHON" -c "{code}"', distributed=here) == 0
        assert bench.callback.values == [0, 1, 2]
        text = (bench.folder / "roles/rank-1.log").read_text()
        assert text.count("the reports of rank 1 do not count, only those of rank 0 do") == 1


def test_the_launcher_none_starts_the_command_once_on_each_node(tmp_path):
    with Bench(tmp_path) as bench:
        here = {"nodes": 2, "processes": 3, "launcher": "none", "here": 2}
        assert bench.run(SHOW, distributed=here) == 0
        assert bench.text("stdout") == "0/6 0/3 0 0 127.0.0.1\n"
        assert (bench.folder / "roles/rank-3.log").read_text() == "3/6 0/3 1 1 127.0.0.1\n"


def test_a_node_without_gpus_says_so(tmp_path):
    with Bench(tmp_path) as bench:
        here = {"nodes": 1, "processes": "gpu", "launcher": "torch"}
        bench.run("true", distributed=here, env={"CUDA_VISIBLE_DEVICES": ""})
        host = os.uname().nodename
        assert bench.callback.exits[0].message == f"processesPerNode is gpu, but {host} shows no GPU; set a number"


def test_machines_that_stand_for_several_nodes_share_their_gpus(tmp_path):
    with Bench(tmp_path) as bench:
        here = {"nodes": 2, "processes": "gpu", "launcher": "torch", "here": 2}
        assert bench.run('echo "$CUDA_VISIBLE_DEVICES"', distributed=here, env={"CUDA_VISIBLE_DEVICES": "4,5,6,7"}) == 0
        assert bench.text("stdout") == "4,5\n"
        assert [(bench.folder / f"roles/rank-{rank}.log").read_text() for rank in (1, 2, 3)] == [
            "4,5\n",
            "6,7\n",
            "6,7\n",
        ]


def test_ports_that_others_have_taken_do_no_harm(nodes):
    with ExitStack() as taken:
        nodes.job = take_ports(taken, 1)
        first, other = nodes.start("true")
        assert (first.wait(LIMIT_S), other.wait(LIMIT_S)) == (0, 0)


def test_if_all_ports_are_taken_the_trial_is_lost_with_a_sentence_that_says_so(nodes):
    with ExitStack() as taken:
        nodes.job = take_ports(taken)
        first, other = nodes.start("true")
        assert first.wait(LIMIT_S) == 4
        other.kill()
    [end] = nodes.first.callback.exits
    assert end.message.startswith("the first node cannot listen: none of the ports ")
    assert end.message.endswith(" is free; another attempt has other ports")
    assert end.cause == "machine"


@pytest.mark.parametrize("launcher", ["jax", "tensorflow"])
def test_jax_and_tensorflow_find_their_own_variables(launcher: str) -> None:
    nodes = [{"host": "a", "processes": 1, "ports": [1]}, {"host": "b", "processes": 2, "ports": [2, 3]}]
    found = variables(Layout(nodes, 9), 1, 1, "10.0.0.1", launcher)
    if launcher == "jax":
        assert (found["JAX_COORDINATOR_ADDRESS"], found["JAX_NUM_PROCESSES"], found["JAX_PROCESS_ID"]) == (
            "10.0.0.1:9",
            "3",
            "2",
        )
    else:
        assert json.loads(found["TF_CONFIG"]) == {
            "cluster": {"worker": ["10.0.0.1:1", "b:2", "b:3"]},
            "task": {"type": "worker", "index": 2},
        }
