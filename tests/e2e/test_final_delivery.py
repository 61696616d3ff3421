"""What trackers and webhooks are owed at the end of an experiment is waited for, told, and sent later."""

from __future__ import annotations

import json
import os
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from e2e.running import ECHO, SPACE, wait_for
from unit.test_webhooks import Inbox

SLOW = """
import sys, time
if {module!r} in sys.orig_argv:
    time.sleep({seconds})
"""
Create = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def create(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Create:
    """Runs `nnictl create --foreground`; processes of this module begin so many seconds late."""
    monkeypatch.setenv("NNILITE_HOME", str(tmp_path / "home"))
    (tmp_path / "trial.py").write_text(ECHO)

    def run(*words: str, slow: str = "", seconds: float = 0.0, **config: Any) -> subprocess.Popen[str]:
        (tmp_path / "site").mkdir(exist_ok=True)
        (tmp_path / "site" / "sitecustomize.py").write_text(SLOW.format(module=slow, seconds=seconds))
        command = f"PYTHONPATH= {shlex.quote(sys.executable)} trial.py"
        full = {"trialCommand": command, "trialCodeDirectory": str(tmp_path), "searchSpace": SPACE, **config}
        full |= {"trialConcurrency": 2, "maxTrialNumber": 3, "tuner": {"name": "Random"}}
        full |= {"trainingService": {"platform": "local"}}
        (tmp_path / "config.json").write_text(json.dumps(full))
        words = ("create", "-c", str(tmp_path / "config.json"), "-p", "0", "--foreground", *words)
        return nnictl(tmp_path, *words)

    return run


def nnictl(folder: Path, *words: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(folder / "site")}
    pipe = subprocess.PIPE
    command = [str(Path(sys.executable).with_name("nnictl")), *words]
    return subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=environment)


def said_by(program: subprocess.Popen[str]) -> tuple[int, str, str]:
    with program:
        try:
            out, err = program.communicate(timeout=120)
        finally:
            program.kill()
    return program.returncode, out, err


def event_files(folder: Path) -> list[Path]:
    return list(folder.rglob("*tfevents*"))


@pytest.mark.timeout(180)
def test_a_tracker_that_begins_late_has_everything_when_the_foreground_ends(create: Create, tmp_path: Path) -> None:
    trackers = [{"name": "tensorboard", "directory": str(tmp_path / "events")}]
    code, out, err = said_by(create(slow="nnilite._trackers", seconds=14.0, trackers=trackers))
    assert (code, err) == (0, "")
    assert len(event_files(tmp_path / "events")) == 3
    assert (
        "Waiting until trackers and webhooks have everything: tensorboard (tracker) has not got 3 trials and 6" in out
    )
    assert out.index("is DONE") < out.index("Waiting until") < out.index("Everything is kept in")


@pytest.mark.timeout(180)
def test_ctrl_c_waits_no_longer_says_what_is_owed_and_a_resume_sends_it(create: Create, tmp_path: Path) -> None:
    trackers = [{"name": "tensorboard", "directory": str(tmp_path / "events")}]
    program = create(slow="nnilite._trackers", seconds=300.0, trackers=trackers)
    assert program.stdout is not None
    line = next(line for line in program.stdout if line.startswith("Waiting until"))
    assert "Ctrl-C stops waiting" in line
    program.send_signal(signal.SIGINT)
    code, _, err = said_by(program)
    assert code == 7
    assert "WARNING: tensorboard (tracker) has not got 3 trials and 6 results; `nnictl resume" in err
    (tmp_path / "site" / "sitecustomize.py").unlink()
    command = err.partition("`nnictl ")[2].partition("`")[0]
    assert command.endswith(" --foreground")
    shown = said_by(nnictl(tmp_path, "experiment", "show", command.split()[1]))[1]
    assert "Not sent yet: tensorboard (tracker) has not got 3 trials and 6 results" in shown
    assert said_by(nnictl(tmp_path, *command.split(), "-p", "0"))[0] == 0
    assert len(event_files(tmp_path / "events")) == 3
    told = said_by(nnictl(tmp_path, "experiment", "status", command.split()[1], "--json"))[1]
    assert json.loads(told)["owed"] == []


@pytest.mark.timeout(180)
def test_a_webhook_that_answers_late_is_told_before_the_foreground_ends(create: Create) -> None:
    inbox = Inbox()
    inbox.listener.start()
    hooks = [{"url": inbox.listener.url}]
    program = create("--json", slow="nnilite._webhooks", seconds=14.0, webhooks=hooks)
    code, out, _ = said_by(program)
    assert code == 0
    assert json.loads(out)["owed"] == []
    assert [told for told in inbox.told if told.endswith("end-1")]
    inbox.listener.stop()


def test_a_stop_says_what_is_owed(
    start: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from nnilite._cli.nnictl import run

    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    with socket.create_server(("127.0.0.1", 0), backlog=50) as silent:
        running = start(webhooks=[{"url": f"http://127.0.0.1:{silent.getsockname()[1]}"}], maxTrialNumber=1)
        running.wait("DONE")
        wait_for(lambda: running.client.profile()["owed"], 30.0)
        assert run(["stop", running.entry.id]) == 0
    assert "WARNING: webhook 1 has not got 2 messages" in capsys.readouterr().err


PROGRAM = """
from nnilite.config import load
from nnilite.experiment import Experiment

with Experiment(load("config.json")) as experiment:
    print(experiment.run(port=0))
"""


@pytest.mark.timeout(180)
def test_a_program_waits_for_webhooks_too(create: Create, tmp_path: Path) -> None:
    inbox = Inbox()
    inbox.listener.start()
    create("--help", slow="nnilite._webhooks", seconds=12.0, webhooks=[{"url": inbox.listener.url}]).communicate()
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "site")}
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert (ended.returncode, ended.stdout) == (0, "True\n")
    assert "Waiting until trackers and webhooks have everything: webhook 1 has not got" in ended.stderr
    assert [told for told in inbox.told if told.endswith("end-1")]
    inbox.listener.stop()
