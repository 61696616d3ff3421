"""Ctrl-C in the first seconds of `nnictl create`: a sentence, the exit code, and nothing half made."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
import yaml

from interrupts import is_interrupted_at
from nnilite import Search
from nnilite._cli.nnictl import run
from nnilite._experiments import registry
from nnilite._running import managers
from nnilite.config import load
from nnilite.experiment import Experiment
from nnilite.testing import eventually

TRIAL = "import time, nnilite\nnnilite.get_next_parameter()\ntime.sleep(1)\nnnilite.report_final_result(1)\n"
STOPS_IT = "`nnictl stop "


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("NNILITE_HOME", str(tmp_path / "kept 'here' $HOME"))
    (tmp_path / "trial.py").write_text(TRIAL)
    fields = {
        "searchSpace": {"x": {"_type": "uniform", "_value": [0, 1]}},
        "trialCommand": f"{sys.executable} trial.py",
        "trialConcurrency": 1,
        "maxTrialNumber": 2,
        "tuner": {"name": "Random"},
        "trainingService": {"platform": "local"},
    }
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(fields))
    yield path
    for entry in registry.entries():
        managers.kill(entry)


@dataclass(frozen=True)
class Ended:
    """A `nnictl create` that was interrupted."""

    code: int
    out: str
    err: str

    @property
    def before_nnilite(self) -> bool:
        """Python itself was still at its start, where no program has a say."""
        by_python = self.code not in (0, 130) and "Interrupted" not in self.err and "program.py" not in self.err
        return by_python and not registry.entries()


def duration_s(config: Path) -> float:
    """How long a create takes here and now that nobody interrupts."""
    began = time.monotonic()
    assert interrupted(config, 60.0).code == 0
    assert run(["stop", "--all"]) == 0
    assert run(["experiment", "delete", "--all", "--yes"]) == 0
    return time.monotonic() - began


def delays_s(count: int, shortest_s: float, longest_s: float) -> list[float]:
    """One in each of so many equal parts of the time."""
    chance, part_s = random.Random(11), (longest_s - shortest_s) / count
    return [shortest_s + part_s * (number + chance.random()) for number in range(count)]


def interrupted(config: Path, delay_s: float, *arguments: str) -> Ended:
    """What Ctrl-C in a terminal does: SIGINT to all processes of the group."""
    command = [sys.executable, "-m", "nnilite._cli", "create", "--config", str(config), "--port", "0", *arguments]
    with subprocess.Popen(command, stdout=-1, stderr=-1, text=True, start_new_session=True) as process:
        try:
            process.wait(delay_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=60)
    return Ended(process.returncode, out, err)


def managers_of(home: Path) -> list[int]:
    """Processes that have to do with an experiment in this folder, or stand by to become the manager of one."""
    running = psutil.process_iter(["pid", "environ"], ad_value={})
    return [
        one.info["pid"]
        for one in running
        if one.info["environ"].get("NNILITE_HOME") == str(home) and one.info["pid"] != os.getpid()
    ]


def check(ended: Ended, home: Path) -> str:
    """Which of the permitted ends it was."""
    if ended.before_nnilite:
        return "python"
    assert "Traceback" not in ended.err, ended
    assert ended.code in (0, 130), ended
    known = registry.entries()
    if not known:
        assert ended.code == 130
        assert len(ended.err.strip().splitlines()) == 1, ended
        assert ended.err.startswith("Interrupted"), ended
        assert [path for path in home.glob("*") if path.name != ".nnilite"] == []
        assert list(home.glob(".nnilite/*")) == list(home.glob(".nnilite/.*")) == []
        until_none(home)
        return "nothing"
    assert STOPS_IT in ended.out + ended.err, ended
    assert [entry.alive for entry in known] == [True]
    assert run(["stop", known[0].id]) == 0
    assert run(["experiment", "delete", known[0].id, "--yes"]) == 0
    return "runs"


def until_none(home: Path) -> None:
    eventually(lambda: not managers_of(home))


def test_a_start_that_is_interrupted_leaves_nothing_or_an_experiment_that_runs(
    config: Path, tmp_path: Path, record_property: pytest.RecordProperty
) -> None:
    ends = []
    for delay_s in delays_s(6, 0.03, duration_s(config)):
        ended = interrupted(config, delay_s)
        ends.append(check(ended, tmp_path / "kept 'here' $HOME"))
    assert "nothing" in ends
    record_property("shown", f"create was interrupted {len(ends)} times: {', '.join(sorted(ends))}")


def test_in_the_foreground_it_is_stopped_or_has_never_been(config: Path, tmp_path: Path) -> None:
    for delay_s in delays_s(3, 0.1, duration_s(config)):
        ended = interrupted(config, delay_s, "--foreground")
        assert "Traceback" not in ended.err or ended.before_nnilite, ended
        known = registry.entries()
        assert ended.before_nnilite or ended.code == 130, ended
        if known:
            assert "is stopped; `nnictl resume" in ended.out, ended
            assert [entry.alive for entry in known] == [False]
            assert run(["experiment", "delete", known[0].id, "--yes"]) == 0
        until_none(tmp_path / "kept 'here' $HOME")


def start(config: Path) -> None:
    experiment = Experiment(load(config), quiet=True)
    experiment.start(0)
    experiment.stop()


def search(_: Path) -> None:
    space = {"x": {"_type": "uniform", "_value": [0, 1]}}
    Search(space).run(lambda parameters: parameters["x"], trials=1, on="local", progress=False)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("moments", [3, pytest.param(7, marks=pytest.mark.long)])
@pytest.mark.parametrize(("begin", "lines"), [(start, 10_000), (search, 20_000)])
def test_a_time_limit_during_a_start_leaves_no_manager(
    config: Path, begin: Callable[[Path], None], lines: int, moments: int
) -> None:
    class TooLate(Exception):
        pass

    def ring(*_: object) -> None:
        raise TooLate

    before = signal.signal(signal.SIGUSR1, ring)
    try:
        for line in (lines * moment // (moments + 1) for moment in range(1, moments + 1)):
            with contextlib.suppress(TooLate):
                is_interrupted_at(line, lambda: signal.raise_signal(signal.SIGUSR1), lambda: begin(config))
            assert [entry.id for entry in registry.entries() if entry.alive] == []
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_as_process_1_of_a_container_it_stops_the_experiment_on_sigterm(config: Path) -> None:
    """Process 1 ignores a signal without a handler, so that all of the container was killed some time later."""
    config.write_text(config.read_text() + "maxTrialDuration: 1h\n")
    config.with_name("trial.py").write_text(TRIAL.replace("sleep(1)", "sleep(600)"))
    command = [sys.executable, "-m", "nnilite._cli", "create", "--config", str(config), "--port", "0", "--foreground"]
    space = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc"]
    if shutil.which("unshare") is None or subprocess.run([*space, "true"], check=False).returncode:
        pytest.skip("needs the right to make a process namespace")
    with subprocess.Popen([*space, *command], stdout=-1, stderr=-1, text=True) as process:
        assert process.stdout is not None
        assert "is running at" in process.stdout.readline()
        [first] = psutil.Process(process.pid).children()
        first.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=60)
    assert "is stopped; `nnictl resume" in out, err
    assert process.returncode == 143
    assert [entry.state for entry in registry.entries()] == ["STOPPED"]


def test_on_sigterm_the_experiment_is_stopped_before_nnictl_ends_by_it(config: Path) -> None:
    command = [sys.executable, "-m", "nnilite._cli", "create", "--config", str(config), "--port", "0", "--foreground"]
    with subprocess.Popen(command, stdout=-1, stderr=-1, text=True) as process:
        assert process.stdout is not None
        assert "is running at" in process.stdout.readline()
        process.terminate()
        out, err = process.communicate(timeout=60)
    assert [entry.state for entry in registry.entries()] == ["STOPPED"]
    assert "is stopped; `nnictl resume" in out, err
    assert process.returncode == -signal.SIGTERM
