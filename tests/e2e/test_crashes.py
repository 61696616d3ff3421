"""A manager that was killed, a full disk, a locked or damaged database, a taken port, a clock set back."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import socket
import sqlite3
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest

from nnilite._cli.nnictl import run
from nnilite._engine import engine
from nnilite._experiments import registry
from nnilite._experiments.manager_state import find_manager_state
from nnilite._running import launch, managers, reading
from nnilite._running.manager_client import Client
from nnilite._tuner_host import PROCESS_NAME
from nnilite.errors import NniliteError
from nnilite.testing import eventually
from nnilite.testing.probes import runs

COUNTING = """
import os, pathlib, time, nnilite
p = nnilite.get_next_parameter()
pathlib.Path(os.environ["MARKS"], nnilite.get_trial_id() + "-" + os.environ["NNILITE_ATTEMPT"]).touch()
for i in range(30):
    nnilite.report_intermediate_result(i)
    time.sleep(0.1)
nnilite.report_final_result(p["x"])
"""
PATIENT = """
import time, nnilite
def patiently(report, value):
    while True:
        try:
            return report(value)
        except OSError:  # what the trial makes of a full disk is its own affair; this one waits
            time.sleep(0.1)
p = nnilite.get_next_parameter()
for i in range(30):
    patiently(nnilite.report_intermediate_result, i)
    time.sleep(0.1)
patiently(nnilite.report_final_result, p["x"])
"""
WAITING = "import time, nnilite\nnnilite.report_intermediate_result(1)\ntime.sleep(60)\n"


@pytest.fixture
def marks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Each attempt that begins leaves a file here."""
    folder = tmp_path / "marks"
    folder.mkdir()
    monkeypatch.setenv("MARKS", str(folder))
    return folder


def curves(running: Any) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for metric in running.client.metrics(kind="PERIODICAL"):
        found.setdefault(metric["trial"], []).append(metric["value"])
    return found


def test_trials_go_on_without_their_manager_and_nothing_is_run_again(start: Any, marks: Path) -> None:
    running = start(COUNTING, maxTrialNumber=2)
    running.wait_for(lambda: len(curves(running)) == 2)
    running.kill_manager()
    with reading.opened(registry.find(running.entry.id)) as folder:
        assert folder.profile()["reason"].startswith("its manager has died, and trials may still run; `nnictl resume ")
    eventually(lambda: len(list(running.directory.glob("trials/*/0/.nni/exit"))) == 2)
    again = running.resume()
    again.wait("DONE")
    assert [t["state"] for t in again.trials()] == ["SUCCEEDED"] * 2
    assert all(curve == list(range(30)) for curve in curves(again).values())
    assert len(list(marks.iterdir())) == 2


def test_running_trials_are_not_disturbed_and_numbers_go_on(start: Any, marks: Path) -> None:
    running = start(COUNTING, maxTrialNumber=4)
    running.wait_for(lambda: len(curves(running)) == 2)
    for _ in range(2):
        running.kill_manager()
        running = running.resume()
    running.wait("DONE")
    trials = running.trials()
    assert [t["sequence"] for t in trials] == [0, 1, 2, 3]
    assert [t["parameterId"] for t in trials] == sorted({t["parameterId"] for t in trials})
    assert all(curve == list(range(30)) for curve in curves(running).values())
    assert len(list(marks.iterdir())) == 4


def test_a_stopped_experiment_goes_on_after_a_resume(start: Any) -> None:
    running = start(maxTrialNumber=3)
    running.wait("DONE")
    running.stop()
    again = running.resume()
    again.client.update(maxTrialNumber=5)
    again.wait_for(lambda: again.client.profile()["counts"].get("SUCCEEDED") == 5)
    assert [t["sequence"] for t in again.trials()] == [0, 1, 2, 3, 4]


def test_a_killed_keeper_takes_its_trial_along_and_the_trial_is_tried_again(start: Any, marks: Path) -> None:
    running = start(COUNTING, maxTrialNumber=1)
    running.wait_for(lambda: curves(running))
    keeper = _handle(running)["pid"]
    (trial,) = psutil.Process(keeper).children()
    os.kill(keeper, signal.SIGKILL)
    running.wait("DONE")
    assert not runs(trial.pid)
    (found,) = running.trials()
    assert (found["state"], found["attempt"]) == ("SUCCEEDED", 1)
    first = [m["value"] for m in running.client.metrics(found["id"]) if m["attempt"] == 0]
    assert first == list(range(len(first)))
    assert first


def _handle(running: Any) -> dict[str, Any]:
    with contextlib.closing(sqlite3.connect(running.directory / "nnilite.sqlite")) as db:
        (text,) = db.execute("SELECT handle FROM attempts WHERE state = 'RUNNING'").fetchone()
    return dict(json.loads(text))


def test_a_killed_tuner_proposes_on_from_where_it_was(start: Any) -> None:
    space = {"x": {"_type": "choice", "_value": list(range(12))}}
    code = (
        "import time, nnilite\np = nnilite.get_next_parameter()\ntime.sleep(0.3)\nnnilite.report_final_result(p['x'])\n"
    )
    running = start(code, searchSpace=space, tuner={"name": "GridSearch"}, maxTrialNumber=None)
    for number in (2, 5):
        running.wait_for(lambda number=number: len(running.trials(states=["SUCCEEDED"])) >= number)
        for child in psutil.Process(running.entry.pid).children():
            with contextlib.suppress(psutil.Error):  # what has just ended is nobody's tuner
                if child.name() == PROCESS_NAME:
                    child.kill()
    running.wait("DONE")
    assert sorted(t["parameters"]["x"] for t in running.trials()) == list(range(12))


def test_a_failed_trial_can_be_run_again_and_the_tuner_learns_its_result(start: Any, marks: Path) -> None:
    code = (
        "import os, nnilite\np = nnilite.get_next_parameter()\n"
        "if not os.path.exists(os.environ['MARKS'] + '/mended'): raise SystemExit(3)\n"
        "nnilite.report_final_result(p['x'])\n"
    )
    running = start(code, maxTrialNumber=2)
    running.wait("DONE")
    assert [t["state"] for t in running.trials()] == ["FAILED"] * 2
    (marks / "mended").touch()
    running.client.rerun(state="FAILED")
    running.wait_for(lambda: len(running.trials(states=["SUCCEEDED"])) == 2)
    assert {t["attempt"] for t in running.trials()} == {1}
    with contextlib.closing(sqlite3.connect(running.directory / "nnilite.sqlite")) as db:
        kinds = [kind for (kind,) in db.execute("SELECT kind FROM calls ORDER BY number")]
    assert kinds.count("result") == 2


def test_an_exit_code_in_retry_on_is_tried_again_with_its_checkpoint(start: Any) -> None:
    code = (
        "import nnilite, sys\np = nnilite.get_next_parameter()\nfile = nnilite.checkpoint_dir() / 'epoch'\n"
        "epoch = int(file.read_text()) if file.exists() else 0\n"
        "with nnilite.checkpoint('epoch') as path: path.write_text(str(epoch + 1))\n"
        "if epoch < 2: sys.exit(77)\nnnilite.report_final_result(epoch)\n"
    )
    running = start(code, maxTrialNumber=1, retryOn=[77], maxTrialRetries=3)
    running.wait("DONE")
    (trial,) = running.trials()
    assert (trial["state"], trial["attempt"], trial["value"]) == ("SUCCEEDED", 2, 2)


def test_a_trial_may_save_before_it_is_stopped(start: Any, marks: Path) -> None:
    code = (
        "import os, signal, sys, time, nnilite\n"
        "def save(*_):\n    time.sleep(1)\n    open(os.environ['MARKS'] + '/saved', 'w').close()\n    sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, save)\nnnilite.report_intermediate_result(1)\ntime.sleep(60)\n"
    )
    running = start(code, maxTrialNumber=1)
    running.wait_for(lambda: curves(running))
    running.client.cancel(running.trials()[0]["id"])
    running.wait("DONE")
    assert (marks / "saved").exists()
    assert running.trials()[0]["state"] == "USER_CANCELED"


def test_a_port_that_was_taken_meanwhile_is_said_at_the_resume(start: Any) -> None:
    running = start(WAITING, maxTrialNumber=1)
    port = running.entry.port
    running.kill_manager()
    with socket.create_server(("127.0.0.1", port)):
        with pytest.raises(NniliteError, match=f"port {port} .* taken"):
            launch.resume(running.entry, options=launch.ManagerOptions(port=port))
    running.resume()


def test_a_damaged_database_is_said_at_the_resume(start: Any) -> None:
    running = start(maxTrialNumber=1)
    running.wait("DONE")
    running.stop()
    path = running.directory / "nnilite.sqlite"
    path.write_bytes(b"garbage" * 1000)
    with pytest.raises(NniliteError, match="damaged or not a database"):
        running.resume()


def test_a_locked_database_pauses_the_experiment_and_then_it_goes_on(start: Any) -> None:
    code = (
        "import time, nnilite\np = nnilite.get_next_parameter()\ntime.sleep(1)\nnnilite.report_final_result(p['x'])\n"
    )
    running = start(code, maxTrialNumber=4)
    running.wait_for(lambda: running.trials(states=["RUNNING"]))
    with contextlib.closing(sqlite3.connect(running.directory / "nnilite.sqlite", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        running.wait_for(lambda: "locked" in running.client.profile()["reason"])
        other.execute("ROLLBACK")
    running.wait("DONE")
    assert [t["state"] for t in running.trials()] == ["SUCCEEDED"] * 4


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 3 MB."""
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("needs root, to mount a small file system")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.mark.real
def test_a_full_disk_pauses_the_experiment_and_nothing_is_lost(
    small_disk: Path, start: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NNILITE_HOME", str(small_disk))
    running = start(PATIENT, maxTrialNumber=2)
    running.wait_for(lambda: len(curves(running)) == 2)
    ballast = small_disk / "ballast"

    def paused() -> bool:
        _fill(ballast)  # again and again, as files of the experiment come and go
        return "free some disk space" in running.client.profile()["reason"]

    with _changing_limits(running.connect()):
        running.wait_for(paused)
        ballast.unlink()
    running.wait("DONE", timeout_s=90)
    assert all(curve == list(range(30)) for curve in curves(running).values())
    assert len(curves(running)) == 2
    running.stop()


@pytest.mark.real
def test_an_experiment_is_stopped_on_a_full_disk_and_goes_on_later(
    small_disk: Path, start: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NNILITE_HOME", str(small_disk))
    running = start(PATIENT, maxTrialNumber=2)
    running.wait_for(lambda: len(curves(running)) == 2)
    ballast = small_disk / "ballast"
    running.wait_for(lambda: _fill(ballast) or "free some disk space" in running.client.profile()["reason"])
    assert run(["stop", running.entry.id]) == 0
    assert "is stopped" in capsys.readouterr().out
    assert managers.was_stopped(running.entry)
    ballast.unlink()
    again = running.resume()
    again.wait("DONE", timeout_s=90)
    assert all(curve == list(range(len(curve))) for curve in curves(again).values())
    assert (running.directory / "stop-reserve").exists()
    again.stop()
    assert not (running.directory / "stop-reserve").exists()


@pytest.mark.real
def test_a_stop_on_a_disk_that_stays_full_says_so_and_force_ends_the_manager(
    small_disk: Path, start: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NNILITE_HOME", str(small_disk))
    running = start(PATIENT, maxTrialNumber=2)
    running.wait_for(lambda: len(curves(running)) == 2)
    # Somebody else has had what is kept for the stop.
    ballast = small_disk / "ballast"

    def paused() -> bool:
        (running.directory / "stop-reserve").unlink(missing_ok=True)
        _fill(ballast)
        return "free some disk space" in running.client.profile()["reason"]

    running.wait_for(paused)
    assert run(["stop", running.entry.id]) == 1
    assert "free some disk space" in (told := capsys.readouterr().err)
    assert "has not ended within" not in told, "it is not waited for"
    assert f"`nnictl stop --force {running.entry.id}`" in told
    assert run(["stop", "--force", running.entry.id]) == 0
    ballast.unlink()
    again = running.resume()
    again.wait("DONE", timeout_s=90)
    assert all(curve == list(range(30)) for curve in curves(again).values())


@contextlib.contextmanager
def _changing_limits(client: Client) -> Iterator[None]:
    """Give the manager something to write: trials whose spool is full may send it nothing more."""
    over = threading.Event()

    def change() -> None:
        for seconds in itertools.count(600):
            client.update(maxTrialDuration=f"{seconds}s")
            if over.wait(0.1):
                return

    with ThreadPoolExecutor(1) as pool:
        changing = pool.submit(change)
        try:
            yield
        finally:
            over.set()
            changing.result(timeout=60)
            client.close()


def _fill(ballast: Path) -> None:
    with contextlib.suppress(OSError), ballast.open("ab", buffering=0) as out:
        while True:
            out.write(b"x" * 1024)


def test_a_clock_that_is_set_back_does_not_move_the_managers_time_back(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = engine.Clock()
    before = clock()
    monkeypatch.setattr(time, "time", lambda: 0.0)
    assert clock() >= before


def test_trials_in_a_copy_do_not_see_edits_made_during_the_run(start: Any, tmp_path: Path) -> None:
    code = "import nnilite, value\nnnilite.report_final_result(value.VALUE)\n"
    folder = tmp_path / "it's $HOME; a\nfolder"
    folder.mkdir()
    (folder / "value.py").write_text("VALUE = 1\n")
    service = {"platform": "local", "isolateCode": True}
    running = start(code, maxTrialNumber=1, trainingService=service)
    running.wait("DONE")
    (folder / "value.py").write_text("VALUE = 2\n")
    running.client.update(maxTrialNumber=2)
    running.wait_for(lambda: len(running.trials(states=["SUCCEEDED"])) == 2)
    assert [t["value"] for t in running.trials()] == [1, 1]


def test_the_registry_tells_a_dead_manager_from_a_living_one(start: Any) -> None:
    running = start(WAITING, maxTrialNumber=1)
    assert registry.find(running.entry.id).alive
    running.kill_manager()
    assert not registry.find(running.entry.id).alive
    running.resume()


def test_a_manager_that_was_stopped_is_named_with_the_cure_and_ends_when_asked(
    start: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    running = start(WAITING, maxTrialNumber=1)
    running.wait("RUNNING", "NO_MORE_TRIAL")
    entry = registry.find(running.entry.id)
    os.kill(entry.pid, signal.SIGSTOP)
    eventually(lambda: psutil.Process(entry.pid).status() == psutil.STATUS_STOPPED)
    try:
        assert run(["experiment", "list"]) == 0
        assert f"{entry.id} does not answer: process {entry.pid} is stopped; `kill" in capsys.readouterr().err
        with pytest.raises(NniliteError, match=f"It does not answer: process {entry.pid} is stopped; `kill"):
            launch.resume(entry)
        with managers.connect(entry, timeout_s=0.1) as client:
            with pytest.raises(
                NniliteError, match=rf"process {entry.pid} is stopped; `kill -CONT {entry.pid}` lets it"
            ):
                client.profile()
        managers.stop(entry)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(entry.pid, signal.SIGCONT)
    assert find_manager_state(entry.directory).state == "STOPPED"


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    """A self-signed certificate for a name that nobody uses here, and its key."""
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=nobody", "-days", "2"]
    try:
        subprocess.run([*command, "-keyout", str(key), "-out", str(cert)], check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("needs openssl, to make a certificate")
    return cert, key


def test_trials_report_over_tls(start: Any, certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    plain = launch.ManagerOptions
    monkeypatch.setattr(
        launch, "ManagerOptions", lambda **known: plain(**known, tls_cert=certificate[0], tls_key=certificate[1])
    )
    running = start(certificate=certificate[0])
    assert running.entry.url.startswith("https://")
    running.wait("DONE")
    assert len(running.trials(states=["SUCCEEDED"])) == 4
