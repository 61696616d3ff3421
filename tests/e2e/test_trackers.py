"""Real experiments with trackers: one that takes everything, one that hangs, and one that fails."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from e2e.running import wait_for
from nnilite.config import from_dict
from nnilite.errors import ConfigError


def test_trackers_that_hang_or_fail_hold_up_no_trial_and_the_others_get_all(start: Any, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=50) as silent:  # it accepts, and never answers
        uri = f"http://127.0.0.1:{silent.getsockname()[1]}"
        blocked = tmp_path / "a file"
        blocked.write_text("")
        trackers = [
            {"name": "mlflow", "uri": uri},
            {"name": "wandb", "directory": str(blocked)},
            {"name": "tensorboard", "directory": str(tmp_path / "events")},
        ]
        running = start(trackers=trackers)
        running.wait("DONE")
        assert {trial["state"] for trial in running.trials()} == {"SUCCEEDED"}
        log = running.directory / "log" / "manager.log"
        wait_for(lambda: "wandb (tracker) ended with exit code 1" in log.read_text(), 60.0)
        running.stop()
    assert "mlflow (tracker) has not received everything" in log.read_text()
    folders = sorted((tmp_path / "events" / running.entry.id).iterdir())
    assert [folder.name[:5] for folder in folders] == ["00000", "00001", "00002", "00003"]
    assert all(b"final" in path.read_bytes() for folder in folders for path in folder.iterdir())


def test_after_a_kill_of_the_manager_each_value_is_there_once(start: Any, tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

    events = tmp_path / "events"
    running = start(trackers=[{"name": "tensorboard", "directory": str(events)}], maxTrialNumber=8)
    wait_for(lambda: list(events.rglob("*tfevents*")), 60.0)
    running.kill_manager()
    again = running.resume()
    again.wait("DONE")
    again.stop()
    values = [
        (path.parent.name, value.tag)
        for path in events.rglob("*tfevents*")
        for event in EventFileLoader(str(path)).Load()
        for value in event.summary.value
        if value.tag in ("default", "final")
    ]
    trials = [folder.name for folder in (events / running.entry.id).iterdir() if not folder.name.endswith("-1")]
    assert len(trials) == 8
    assert len(values) == len(set(values)), "a value is there twice"
    assert {(trial, tag) for trial in trials for tag in ("default", "final")} <= set(values)


def test_nnictl_tensorboard_shows_the_folder_of_the_tracker_to_those_who_know_its_address(
    start: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = start(trackers=[{"name": "tensorboard"}], maxTrialNumber=1)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    command = [sys.executable, "-m", "nnilite._cli", "tensorboard", running.entry.id, "-p", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:
            assert process.stdout is not None
            served = next(found for line in process.stdout if (found := re.search(r" at (http://\S+?)(/\S+)/ ", line)))
            paths = ("/", "/data/runs", f"{served[2]}/data/runs")
            assert [get_status(served[1] + path) for path in paths] == [404, 404, 200]
            shown = Path("/proc", str(process.pid), "cmdline").read_bytes().split(b"\0")
            folder = running.directory / "trackers" / "tensorboard"
            assert str(folder).encode() in shown
            assert not any(served[2].encode() in word for word in shown)
        finally:
            process.kill()
    wait_for(lambda: list(folder.rglob("*tfevents*")), 60.0)


def get_status(url: str) -> int:
    try:
        with urlopen(url, timeout=60) as answer:
            return int(answer.status)
    except HTTPError as error:
        with error:
            return error.code


def test_a_tracker_without_its_library_is_said_before_anything_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    config = from_dict(
        {
            "searchSpace": {"x": {"_type": "uniform", "_value": [0, 1]}},
            "trialCommand": "true",
            "trialConcurrency": 1,
            "tuner": {"name": "Random"},
            "trainingService": {"platform": "local"},
            "trackers": [{"name": "tensorboard"}],
        }
    ).checked()
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install 'nnilite\[tensorboard\]'"):
        config.check_algorithms()


def test_mlflow_needs_the_address_of_its_server() -> None:
    with pytest.raises(ConfigError, match="is needed for mlflow"):
        from_dict({"trackers": [{"name": "mlflow"}]}).checked()
