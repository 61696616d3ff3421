"""A trial whose nodes come and go: it goes on with those that are there, and grows again."""

from __future__ import annotations

import os
import random
import shlex
import signal
import subprocess

import pytest

from elastic_nodes import STAY, ElasticNodes
from keeper_bench import LIMIT_S, until
from waiting import pause

pytestmark = pytest.mark.process


@pytest.fixture
def nodes(tmp_path):
    with ElasticNodes(tmp_path, asked=2, fewest=1, most=3) as found:
        yield found


def test_a_trial_goes_on_with_fewer_nodes_and_grows_again(nodes):
    first = nodes.add(STAY)
    nodes.add(STAY)
    nodes.wait_for(0, 2)
    nodes.add(STAY)
    nodes.wait_for(1, 3)
    nodes.lose(2)
    nodes.keepers[1].terminate()
    nodes.wait_for(2, 1)
    nodes.let_end()
    assert first.wait(LIMIT_S) == 0
    lines = nodes.first.text("stdout").splitlines()
    assert lines == ["start 0: 0/2 on 0 of 2", "start 1: 0/3 on 0 of 3", "start 2: 0/1 on 0 of 1"]
    nodes.check_nothing_runs()


def test_each_start_of_each_rank_has_a_record_and_its_output(nodes):
    first = nodes.add(STAY)
    nodes.add(STAY)
    nodes.wait_for(0, 2)
    nodes.add(STAY)
    nodes.wait_for(1, 3)
    nodes.let_end()
    assert first.wait(LIMIT_S) == 0
    shown = [(one["start"], one["rank"], one["node"], one["state"]) for one in nodes.roles()]
    assert shown == [
        (0, 0, 0, "CANCELED"),
        (0, 1, 1, "CANCELED"),
        (1, 0, 0, "SUCCEEDED"),
        (1, 1, 1, "SUCCEEDED"),
        (1, 2, 2, "SUCCEEDED"),
    ]
    logs = [(nodes.first.folder / f"roles/rank-{rank}.log").read_text() for rank in (1, 2)]
    assert logs == ["start 0: 1/2 on 1 of 2\nstart 1: 1/3 on 1 of 3\n", "start 1: 2/3 on 2 of 3\n"]


def test_the_file_of_hosts_and_the_script_that_lists_them_follow_the_nodes(nodes):
    first = nodes.add(STAY)
    other = nodes.add(STAY)
    nodes.wait_for(0, 2)
    inner, host = nodes.first.folder / ".nni", os.uname().nodename
    script = shlex.quote(str(inner / "discover_hosts.sh"))
    assert subprocess.check_output(["/bin/sh", "-c", script], text=True) == f"{host}:1\n" * 2
    other.terminate()
    nodes.wait_for(1, 1)
    assert subprocess.check_output(["/bin/sh", "-c", script], text=True) == f"{host}:1\n"
    assert (inner / "hosts").read_text() == f"{host} slots=1\n"
    nodes.let_end()
    assert first.wait(LIMIT_S) == 0


def test_a_killed_process_lets_all_start_again_on_the_same_nodes(nodes):
    first = nodes.add(STAY)
    nodes.add(STAY)
    pids = nodes.wait_for(0, 2)
    os.kill(pids[1], signal.SIGKILL)
    nodes.wait_for(1, 2)
    nodes.let_end()
    assert first.wait(LIMIT_S) == 0
    assert [one["state"] for one in nodes.roles()] == ["CANCELED", "FAILED", "SUCCEEDED", "SUCCEEDED"]


def test_a_process_that_fails_by_itself_ends_the_trial(nodes):
    first = nodes.add('[ $RANK = 1 ] || exec sleep 60; echo "no such file"; exit 9')
    nodes.add('[ $RANK = 1 ] || exec sleep 60; echo "no such file"; exit 9')
    assert first.wait(LIMIT_S) == 9
    [end] = nodes.first.callback.exits
    assert end.message == f"rank 1 on {os.uname().nodename}: exit code 9\nno such file"


def test_those_that_fail_since_a_node_is_lost_do_not_end_the_trial(nodes):
    """As ranks do whose connection to a lost one breaks."""
    command = f'{STAY} & wait $!; [ $WORLD_SIZE = 1 ] || while [ ! -e "$UP/lost" ]; do sleep 0.05; done; exit 0'
    command = f"if [ $WORLD_SIZE = 2 ]; then ({STAY.replace('end', 'lost')}); exit 1; fi; {STAY}"
    first = nodes.add(command)
    nodes.add(command)
    nodes.wait_for(0, 2)
    nodes.lose(1)
    (nodes.up / "lost").touch()
    nodes.wait_for(1, 1)
    nodes.let_end()
    assert first.wait(LIMIT_S) == 0


def test_a_trial_with_fewer_nodes_than_it_needs_is_lost(tmp_path):
    with ElasticNodes(tmp_path, asked=2, fewest=2, most=3) as nodes:
        first = nodes.add(STAY)
        other = nodes.add(STAY)
        nodes.wait_for(0, 2)
        other.terminate()
        first.wait(LIMIT_S)
        [end] = nodes.first.callback.exits
        host = os.uname().nodename
        assert end.message == f"node 1 ({host}) it was taken away (SIGTERM): 1 of at least 2 nodes left"
        assert end.cause == "machine"
        nodes.check_nothing_runs()


def test_a_cancellation_reaches_all_nodes_and_those_that_wait_for_a_part(nodes):
    first = nodes.add(STAY)
    nodes.add(STAY)
    nodes.wait_for(0, 2)
    third = nodes.add(STAY)
    log = nodes.first.folder / ".nni" / "keeper.log"
    until(lambda: log.exists() and "has come, as number 2" in log.read_text())
    first.terminate()
    assert first.wait(LIMIT_S) == 143
    assert [keeper.wait(LIMIT_S) for keeper in (nodes.keepers[1], third)] == [0, 0]
    assert nodes.first.callback.exits[0].cause == "interrupted"
    nodes.check_nothing_runs()


COUNT = """
import os, pathlib, signal, sys, time
asked = []
signal.signal(signal.SIGTERM, lambda *_: asked.append(True))
up, rank = pathlib.Path(os.environ["UP"]), os.environ["RANK"]
(up / "{}-{}".format(os.environ["TORCHELASTIC_RESTART_COUNT"], rank)).write_text(str(os.getpid()))
saved = up / "saved"
while not (up / "end").exists():
    time.sleep(0.02)
    if asked:
        sys.exit(143)
    if rank == "0":
        step = int(saved.read_text()) if saved.exists() else 0
        with open(os.environ["NNILITE_METRICS"], "a") as metrics:
            metrics.write("intermediate {}\\n".format(step))
        (up / "draft").write_text(str(step + 1))
        (up / "draft").rename(saved)
        if step == 300:
            (up / "end").touch()
"""
"""Rank 0 counts to 300, and reports and saves each number; a signal to end waits until both are done."""


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4))
def test_whatever_happens_to_other_nodes_each_result_comes_once_and_nothing_is_left(tmp_path, seed):
    chance = random.Random(seed)
    with ElasticNodes(tmp_path, asked=2, fewest=1, most=4, processes=2) as nodes:
        command = f'exec "$PYTHON" -c {shlex.quote(COUNT)}'
        first = nodes.add(command)
        nodes.add(command)
        nodes.wait_for(0, 4)
        present = {1}
        while first.poll() is None and len(nodes.benches) < 9:
            pause(chance.uniform(0.1, 4), "the trial runs")
            number = chance.choice([0, *present])
            what = chance.choice(["join", "leave", "kill", "rank", "stop"])
            if what == "join" or not number:
                nodes.add(command)
                present.add(len(nodes.benches) - 1)
            elif what == "leave":
                nodes.keepers[number].terminate()
                present.discard(number)
            elif what == "kill":
                nodes.lose(number)
                present.discard(number)
            elif what == "rank":
                nodes.kill_a_rank_of(number)
            else:
                nodes.stop_for(number, 12)
        assert first.wait(60) == 0
        assert nodes.first.callback.values == list(range(301))
        assert nodes.first.callback.doubled == 0
        nodes.check_nothing_runs()


def test_with_the_launcher_none_what_runs_continues_and_the_script_follows_the_nodes(tmp_path):
    with ElasticNodes(tmp_path, asked=2, fewest=1, most=3, processes=2, launcher="none") as nodes:
        first, second = nodes.add(STAY), nodes.add(STAY)
        script, host = nodes.first.folder / ".nni" / "discover_hosts.sh", os.uname().nodename

        def lists(count: int) -> bool:
            return script.exists() and script.read_text() == "#!/bin/sh\n" + f"echo {host}:2\n" * count

        until(lambda: lists(2) and (nodes.up / "0-2").exists(), LIMIT_S)
        nodes.add(STAY)
        until(lambda: lists(3) and (nodes.up / "0-4").exists(), LIMIT_S)
        second.terminate()
        until(lambda: lists(2), LIMIT_S)
        nodes.let_end()
        assert (first.wait(LIMIT_S), nodes.keepers[2].wait(LIMIT_S)) == (0, 0)
        shown = [(one["rank"], one["state"]) for one in nodes.roles()]
        assert shown == [(0, "SUCCEEDED"), (2, "LOST"), (4, "SUCCEEDED")]


def test_a_trial_that_has_reported_its_final_result_does_not_start_again_for_a_node_that_has_come(nodes):
    command = (
        STAY.replace('echo intermediate 1 >> "$NNILITE_METRICS"', ":") + '; echo final 1 >> "$NNILITE_METRICS"; sleep 2'
    )
    first = nodes.add(command)
    nodes.add(command)
    nodes.wait_for(0, 2)
    nodes.add(command)
    pause(20, "the nodes would make room for another one at the next report")
    nodes.let_end()
    assert first.wait(LIMIT_S) == 0
    assert nodes.first.text("stdout").splitlines() == ["start 0: 0/2 on 0 of 2"]
