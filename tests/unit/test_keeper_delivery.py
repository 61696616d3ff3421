"""Delivery to a callback that fails in every way: every metric arrives once, and the end comes last."""

from __future__ import annotations

import itertools
import shutil
import ssl
import subprocess
import threading
import time

import pytest

from keeper_bench import Bench, Callback, once_cut, running, until
from nnilite._keeper.folder import is_gone
from nnilite.records import Exited

pytestmark = pytest.mark.process

TEN = 'for i in 0 1 2 3 4 5 6 7 8 9; do echo "intermediate $i" >> "$NNILITE_METRICS"; sleep 0.03; done'


@pytest.mark.parametrize("trouble", ["drop", "lose", "500", "503", "429", "401", "404"])
def test_every_metric_arrives_once_through_any_trouble(tmp_path, trouble):
    with Bench(tmp_path) as bench:
        bench.callback.script = ["ok", trouble, trouble, "ok", trouble]
        assert bench.run(TEN) == 0
        assert bench.callback.values == list(range(10))
        assert bench.callback.doubled == 0
        assert isinstance(bench.callback.events[-1], Exited)


def test_a_manager_that_has_lost_metrics_gets_them_again(tmp_path):
    with Bench(tmp_path) as bench:
        bench.callback.script = ["ok", "ok", "forget"]
        bench.run(TEN)
        assert bench.callback.values == list(range(10))


def test_too_large_a_batch_is_sent_in_parts(tmp_path):
    with Bench(tmp_path) as bench:
        bench.callback.script = ["413", "413", "413"]
        bench.run('seq 1000 | sed "s/^/intermediate /" >> "$NNILITE_METRICS"')
        assert bench.callback.values == list(range(1, 1001))
        assert bench.callback.exits[0].metrics == 1000


def test_more_metrics_than_a_batch_holds_arrive_in_order(tmp_path):
    with Bench(tmp_path) as bench:
        # At once: what comes bit by bit on a busy machine is sent so.
        bench.run('seq 20000 | sed "s/^/intermediate /" > all; mv all "$NNILITE_METRICS"')
        assert bench.callback.values == list(range(1, 20001))
        assert bench.callback.requests < 12


def test_huge_metrics_arrive(tmp_path):
    code = "import nnilite as n; [n.report_intermediate_result({'default': i, 'x': 'é' * 100000}) for i in range(12)]"
    with Bench(tmp_path) as bench:
        bench.run(f'"$PYTHON" -c "{code}"')
        assert [value["default"] for value in bench.callback.values] == list(range(12))


def test_a_metric_that_the_manager_refuses_does_not_keep_others_back(tmp_path):
    with Bench(tmp_path) as bench:
        deep = "[" * 300 + "]" * 300  # over the real parser's limit
        bench.run(f'for v in 1 {deep} 3; do echo "intermediate $v" >> "$NNILITE_METRICS"; done')
        assert bench.callback.values == [1, None, 3]


def test_nothing_is_lost_when_the_manager_is_away_until_after_the_end(tmp_path):
    with Bench(tmp_path) as bench:
        address = tmp_path / "address"
        bench.callback.shutdown()
        bench.callback.server_close()
        keeper = bench.start(TEN, callback_file=str(address))
        until(lambda: bench.inner("exit"))
        assert keeper.poll() is None
        bench.callback = Callback()
        address.write_text(bench.callback.url)
        assert keeper.wait(60) == 0
        assert bench.callback.values == list(range(10))


def test_a_manager_that_moved_is_found_at_once(tmp_path):
    with Bench(tmp_path) as bench:
        address = tmp_path / "address"
        address.write_text(bench.callback.url)
        moved = tmp_path / "moved"
        wait = f"while [ ! -e {moved} ]; do sleep 0.05; done"
        report = 'echo "final 1" >> "$NNILITE_METRICS"'
        keeper = bench.start(f"{wait}; {report}; sleep 100", callback_file=str(address))
        until(lambda: bench.callback.starts)
        with_old = bench.callback
        bench.callback = Callback()
        address.write_text(bench.callback.url)
        moved.touch()
        until(lambda: bench.callback.values)
        assert with_old.values == []
        with_old.shutdown()  # a thread that serves a closed socket would spin for the rest of the run
        with_old.server_close()
        keeper.terminate()


def test_another_server_on_the_managers_port_is_not_taken_for_it(tmp_path):
    with Bench(tmp_path) as bench:
        answer = bench.callback.answer
        bench.callback.answer = lambda cancel=False: {"hello": "I am a web site"}
        keeper = bench.start("echo 'final 1' >> \"$NNILITE_METRICS\"")
        until(lambda: bench.callback.requests > 2)
        bench.callback.answer = answer
        assert keeper.wait(60) == 0


def test_the_keeper_leaves_when_its_time_to_stay_is_over(tmp_path):
    with Bench(tmp_path) as bench:
        bench.callback.script = ["forever 500"]
        began = time.monotonic()
        assert bench.run("echo 'final 1' >> \"$NNILITE_METRICS\"", linger_s=0.5) == 0
        assert 0.5 < time.monotonic() - began < 50, "there is no answer for 500 s"
        nothing = {"complete": False, "whole": False, "metrics": 0, "output": {}, "fenced": False}
        assert bench.inner("delivered") == nothing


def test_the_keeper_leaves_when_its_experiment_is_deleted(tmp_path):
    with Bench(tmp_path) as bench:
        address = tmp_path / "address"
        address.write_text("http://127.0.0.1:9")
        keeper = bench.start("true", callback_file=str(address))
        until(lambda: bench.inner("exit"))
        address.unlink()
        shutil.rmtree(bench.folder)
        bench.callback.script = ["forever 500"]
        assert keeper.wait(60) == 0


def test_a_trial_whose_experiment_is_deleted_is_ended(tmp_path):
    with Bench(tmp_path) as bench:
        address = tmp_path / "address"
        address.write_text(bench.callback.url)
        keeper = bench.start("echo up; sleep 100", callback_file=str(address), grace_s=1)
        trial = bench.wait_for_start()
        address.unlink()
        shutil.rmtree(bench.folder)
        assert keeper.wait(60) == 128 + 15
        assert not running(trial)


def test_files_that_cannot_be_looked_at_are_not_taken_for_deleted(tmp_path):
    away = tmp_path / "away"
    away.symlink_to("away")  # in place of a network file system that fails
    assert not is_gone(str(away / "address"))
    assert is_gone(str(tmp_path / "address"))


def test_a_trial_that_hears_nothing_of_its_manager_is_ended_after_its_time(tmp_path):
    with Bench(tmp_path) as bench:
        bench.start("echo up; sleep 100", orphan_s=5, heartbeat_s=0.4, linger_s=0.1)
        until(lambda: bench.callback.requests > 14)  # as long as there is an answer it goes on
        assert bench.inner("exit") is None
        bench.callback.script = ["forever 500"]
        until(lambda: bench.inner("exit"))
        assert bench.inner("exit")["message"] == "its manager was silent for 5 s"


def test_heartbeats_come_while_nothing_happens(tmp_path):
    with Bench(tmp_path) as bench:
        bench.start("echo up; sleep 100", heartbeat_s=0.1)
        bench.wait_for_start()
        before = bench.callback.requests
        until(lambda: bench.callback.requests > before + 3)


def test_a_metric_arrives_soon_while_the_trial_runs(tmp_path):
    command = 'echo up; read line < go; echo "intermediate 1" >> "$NNILITE_METRICS"; sleep 100'
    with Bench(tmp_path) as bench:
        bench.start(f"mkfifo go; {command}")
        bench.wait_for_start()
        until(lambda: bench.callback.starts)
        (bench.folder / "go").write_text("now\n")
        until(lambda: bench.callback.values)


def test_a_slow_manager_does_not_delay_the_cancel(tmp_path):
    with Bench(tmp_path) as bench:
        gate = threading.Event()
        commit = bench.callback.commit
        bench.callback.commit = lambda events: gate.wait(100) and commit(events)
        keeper = bench.start("echo up; sleep 100")
        pid = bench.wait_for_start()
        until(lambda: bench.callback.requests)
        keeper.terminate()
        until(lambda: not running(pid) and bench.inner("exit"))
        gate.set()
        assert keeper.wait(60) == 143


def test_output_is_sent_where_it_is_asked_for(tmp_path):
    with Bench(tmp_path) as bench:
        bench.callback.script = ["ok", "drop", "lose"]
        bench.run("seq 100000; echo end >&2", send_output=True)
        assert bench.callback.output["stdout"].split() == [b"%d" % n for n in range(1, 100001)]
        assert bench.callback.output["stderr"] == b"end\n"


def test_output_arrives_while_the_trial_runs(tmp_path):
    with Bench(tmp_path) as bench:
        bench.start("echo up; sleep 100", send_output=True)
        until(lambda: bench.callback.output["stdout"] == b"up\n")


def test_output_over_the_cap_keeps_its_head_and_its_tail(tmp_path):
    with Bench(tmp_path) as bench:
        # What is printed at the very moment of a cut may be lost: `nnilite._keeper.output` says so.
        command = f"seq 300000; {once_cut(100_000)}; seq 300000; {once_cut(100_000)}; echo the end"
        bench.run(command, max_output_bytes=100_000, send_output=True)
        text = (bench.folder / "trial.stdout").read_bytes()
        assert len(text) <= 100_000
        assert text.startswith(b"1\n2\n3\n")
        assert text.endswith(b"the end\n")
        assert b"bytes of output left out here" in text
        assert bench.callback.output["stdout"] == text


def certificate(folder):
    pem, key = folder / "cert.pem", folder / "key.pem"
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", pem, "-days", "2"]
    subprocess.run(
        [*made, "-subj", "/CN=here", "-addext", "subjectAltName=IP:127.0.0.1"], check=True, capture_output=True
    )
    return pem, key


@pytest.mark.skipif(not shutil.which("openssl"), reason="there is no openssl")
def test_a_manager_with_its_own_certificate_is_trusted_only_if_told_so(tmp_path):
    pem, key = certificate(tmp_path)
    with Bench(tmp_path) as bench:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(pem, key)
        bench.callback.socket = context.wrap_socket(bench.callback.socket, server_side=True)
        url = bench.callback.url.replace("http:", "https:")
        bench.run("true", callback=url, linger_s=1)
        assert bench.callback.events == []
        bench.spec("true", callback=url, callback_ca=pem.read_text())
        assert bench.deliver() == 0
        assert len(bench.callback.exits) == 1


@pytest.mark.skipif(not shutil.which("openssl"), reason="there is no openssl")
def test_a_managers_certificate_is_trusted_without_the_authority_that_has_signed_it(tmp_path):
    authority, its_key = certificate(tmp_path)
    pem, key, request = (tmp_path / name for name in ("leaf.pem", "leaf.key", "request"))
    made = ["openssl", "req", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", request, "-subj", "/CN=leaf"]
    subprocess.run(made, check=True, capture_output=True)
    signed = ["openssl", "x509", "-req", "-in", request, "-CA", authority, "-CAkey", its_key, "-out", pem, "-days", "2"]
    subprocess.run(signed, check=True, capture_output=True)
    with Bench(tmp_path) as bench:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(pem, key)
        bench.callback.socket = context.wrap_socket(bench.callback.socket, server_side=True)
        url = bench.callback.url.replace("http:", "https:")
        bench.run("true", callback=url, callback_ca=pem.read_text(), linger_s=5)
        assert len(bench.callback.exits) == 1


def test_metrics_of_many_characters_stay_within_the_managers_limit(tmp_path):
    report = "n.report_intermediate_result({'default': i, 'x': chr(128512) * 70000})"
    code = f"import nnilite as n; [{report} for i in range(30)]"
    with Bench(tmp_path) as bench:
        bench.run(f'"$PYTHON" -c "{code}"')
        assert len(bench.callback.values) == 30
        assert bench.callback.largest < 8_000_000


def test_a_clock_that_is_set_back_does_no_harm(tmp_path, monkeypatch):
    from nnilite._keeper import attempt_run, spec, wake

    with Bench(tmp_path) as bench:
        clock = itertools.count(2_000_000_000, -3600)
        monkeypatch.setattr(attempt_run.time, "time", lambda: float(next(clock)))
        checked = spec.load(str(bench.spec("sleep 0.1", max_duration_s=60)))
        assert attempt_run.run(checked, wake.Wake()) == 0
        monkeypatch.undo()
        assert 0.1 <= bench.callback.exits[0].time - bench.callback.starts[0].time < 3600
