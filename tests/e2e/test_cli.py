"""nnictl with real managers and real trials on this machine."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from nnictl_runs import nnictl
from nnilite._cli.nnictl import run
from nnilite._experiments import registry
from nnilite._experiments.documents import write_json
from nnilite._running import managers
from nnilite.testing import eventually

TRIAL = """
import sys, time
import nnilite
parameters = nnilite.get_next_parameter()
print("out", parameters["x"])
print("err", file=sys.stderr)
nnilite.report_intermediate_result(parameters["x"] / 2)
time.sleep(float(sys.argv[1]))
nnilite.report_final_result(parameters["x"])
"""

Write = Callable[..., Path]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for experiments; whatever still runs in it at the end is stopped."""
    monkeypatch.setenv("NNILITE_HOME", str(tmp_path / "kept 'here' $HOME"))
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    yield tmp_path
    for entry in registry.entries():
        if entry.alive:
            managers.stop(entry)
        # Else keepers whose manager was killed wait for the next one. They may be at work in it.
        eventually(partial(removed, entry.directory))


def removed(folder: Path) -> bool:
    shutil.rmtree(folder, ignore_errors=True)
    return not folder.exists()


@pytest.fixture
def write(place: Path) -> Write:
    """Writes a configuration, with the fields given on top."""

    def one(seconds: float = 0.0, **fields: Any) -> Path:
        code = place / "code"
        code.mkdir(exist_ok=True)
        (code / "trial.py").write_text(TRIAL)
        config = {
            "searchSpace": {"x": {"_type": "uniform", "_value": [0, 1]}},
            "trialCommand": f"{sys.executable} trial.py {seconds}",
            "trialCodeDirectory": "code",
            "trialConcurrency": 2,
            "maxTrialNumber": 4,
            "tuner": {"name": "Random", "classArgs": {"seed": 1}},
            "trainingService": {"platform": "local"},
            **fields,
        }
        path = place / "config.yaml"
        path.write_text(yaml.safe_dump(config))
        return path

    return one


def _until(condition: Callable[[], bool], what: str, timeout_s: float = 60.0) -> None:
    try:
        eventually(condition, timeout_s)
    except TimeoutError as error:
        raise TimeoutError(f"{what}: {error}") from None


def _profile(entry: registry.RegistryEntry) -> Mapping[str, Any]:
    with managers.connect(entry) as manager:
        return manager.profile()


def _ended(entry: registry.RegistryEntry) -> int:
    return sum(count for state, count in _profile(entry)["counts"].items() if state == "SUCCEEDED")


def _only() -> registry.RegistryEntry:
    (entry,) = registry.entries()
    return entry


@contextmanager
def _nnictl(*arguments: object) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "nnilite._cli", *map(str, arguments)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def _done(*arguments: object) -> tuple[int, str, str]:
    """In a process of its own, if it leaves a manager behind."""
    if "--dry-run" in arguments:
        ran = nnictl(*map(str, arguments))
        return ran.returncode, ran.stdout, ran.stderr
    with _nnictl(*arguments) as process:
        out, err = process.communicate(timeout=60)
    return process.returncode, out, err


def _create(config: Path, *options: str) -> registry.RegistryEntry:
    created = nnictl("create", "-c", str(config), "--port", "0", *options)
    assert (created.returncode, created.stderr) == (0, "")
    return _only()


def test_in_the_foreground_a_search_is_shown_until_it_is_done(write: Write) -> None:
    code, out, err = _done("create", "-c", write(), "-p", 0, "--foreground")
    assert (code, err) == (0, "")
    entry = _only()
    assert not entry.alive
    assert "4/4 trials done" in out
    assert f"Experiment {entry.id} is DONE" in out
    assert "Best parameters:\n  x: 0." in out
    assert f"Everything is kept in {entry.directory}" in out


def test_everything_can_be_read_after_the_end(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    profile = json.loads(_done("create", "-c", write(), "-p", 0, "-f", "--json")[1])
    assert run(["trial", "ls", profile["id"], "--head", "1", "--json"]) == 0
    (best,) = json.loads(capsys.readouterr().out)
    assert best["id"] == profile["best"]["id"]
    assert run(["log", "trial", profile["id"], "-T", best["id"]]) == 0
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == (f"out {best['parameters']['x']}\n", "err\n")
    assert run(["experiment", "export", profile["id"], "-t", "csv", "-i"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 5


def test_ctrl_c_stops_in_good_order_and_resume_goes_on(write: Write) -> None:
    with _nnictl("create", "-c", write(0.3, maxTrialNumber=8), "-p", 0, "-f") as process:
        _until(
            lambda: bool(registry.entries()) and _only().url is not None and _ended(_only()) > 0, "a trial has ended"
        )
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (130, "")
    assert "nnictl resume" in out
    assert (_only().alive, _only().state) == (False, "STOPPED")
    code, out, _ = _done("resume", _only().id, "-p", 0, "-f")
    assert (code, "8/8 trials done" in out) == (0, True)


def test_when_the_terminal_dies_the_experiment_is_stopped_too(write: Write) -> None:
    with _nnictl("create", "-c", write(5), "-p", 0, "-f") as process:
        _until(lambda: bool(registry.entries()) and _only().alive, "the manager runs")
        process.kill()
        process.communicate(timeout=60)
    _until(lambda: not _only().alive, "the manager has ended")


def test_a_manager_that_dies_is_told_with_what_to_do(write: Write) -> None:
    with _nnictl("create", "-c", write(5), "-p", 0, "-f") as process:
        assert process.stdout is not None
        # Of a manager that dies before `nnictl` says that the experiment has begun nothing is left.
        assert any("http://" in line for line in iter(process.stdout.readline, ""))
        pid = _only().pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        _, err = process.communicate(timeout=60)
    assert process.returncode in (1, 5)
    assert f"`nnictl resume {_only().id}` continues it" in err
    assert "Traceback" not in err


def test_raising_the_number_of_trials_after_the_end_goes_on(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    entry = _create(write(maxTrialNumber=2, stopAtValue=1e9))
    _until(lambda: _profile(entry)["state"] == "DONE", "it is done")
    assert run(["update", "trialnum", "-v", "5"]) == 0
    assert run(["update", "duration", "-v", "2h"]) == 0
    _until(lambda: _ended(entry) == 5, "all five have ended")
    assert run(["stop"]) == 0
    capsys.readouterr()
    assert run(["config", "show", entry.id]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert [shown[name] for name in ("maxTrialNumber", "maxExperimentDuration", "stopAtValue")] == [5, 7200, 1e9]
    assert "maxCost" not in shown


def test_a_running_trial_shows_its_latest_result(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    entry = _create(write(30, trialConcurrency=1, maxTrialNumber=1))
    with managers.connect(entry) as manager:
        _until(lambda: any(trial["latest"] for trial in manager.trials()), "a trial has reported")
    assert run(["trial", "ls"]) == 0
    assert "(latest)" in capsys.readouterr().out


def test_a_trial_is_killed_and_run_again(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    entry = _create(write(30, trialConcurrency=1, maxTrialNumber=1))
    _until(lambda: _profile(entry)["counts"].get("RUNNING") == 1, "a trial runs")
    capsys.readouterr()
    run(["trial", "ls", "--json"])
    (trial,) = json.loads(capsys.readouterr().out)
    assert run(["trial", "kill", "-T", trial["id"]]) == 0
    _until(lambda: _profile(entry)["counts"].get("USER_CANCELED") == 1, "it is killed")
    assert run(["trial", "rerun", "-T", trial["id"]]) == 0
    _until(lambda: _profile(entry)["counts"].get("RUNNING") == 1, "it runs again")


def test_a_port_in_use_is_told_and_nothing_is_left_behind(write: Write) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        code, _, err = _done("create", "-c", write(), "-p", port)
    assert code == 4
    assert port in err
    assert len(err.splitlines()) == 1
    assert registry.entries() == []


def test_a_tuner_that_raises_ends_it_with_the_users_traceback(
    write: Write, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (place / "mine.py").write_text(
        "from nnilite import Tuner\n"
        "class Bad(Tuner):\n"
        "    def update_search_space(self, space): pass\n"
        "    def generate_parameters(self, parameter_id, **kwargs): raise ValueError('no idea')\n"
    )
    config = write(tuner={"className": "mine.Bad", "codeDirectory": str(place)})
    code, out, _ = _done("create", "-c", config, "-p", 0, "-f")
    assert code == 6
    assert "ValueError: no idea" in out
    frames = [line for line in out.splitlines() if line.strip().startswith("File")]
    assert frames == [f'    File "{place / "mine.py"}", line 4, in generate_parameters']
    assert run(["experiment", "show", _only().id]) == 0
    assert frames[0] in capsys.readouterr().out


def test_a_command_that_does_not_exist_fails_trials_with_a_reason(write: Write) -> None:
    code, out, _ = _done("create", "-c", write(trialCommand="no-such-command", maxTrialNumber=2), "-p", 0, "-f")
    assert code == 8
    assert "2 FAILED" in out
    assert "no trial has succeeded" in out
    assert "no-such-command" in out


def test_a_dry_run_starts_nothing(write: Write) -> None:
    code, out, err = _done("create", "-c", write(), "--dry-run", "--json")
    found = json.loads(out)
    assert (code, err) == (0, "")
    assert 0 <= found["parameters"]["x"] <= 1
    assert found["jobs"]["local"]["token"] == "********"
    assert found["jobs"]["local"]["directory"].startswith(str(registry.root()))
    assert not registry.root().exists()


def test_a_dry_run_counts_the_warnings_about_the_command(write: Write) -> None:
    code, out, err = _done("create", "-c", write(trialCommand="python3 nothere.py"), "--dry-run")
    assert (code, err.count("trialCommand: there is no nothere.py in ")) == (0, 1)
    assert "No errors and 1 warning. Nothing was started" in out


def test_a_link_out_of_the_code_is_a_warning_of_the_dry_run_and_of_the_start(write: Write, tmp_path: Path) -> None:
    config = write(trainingService={"platform": "local", "isolateCode": True}, maxTrialNumber=1)
    (config.parent / "code" / "data").symlink_to(tmp_path.parent)
    code, out, err = _done("create", "-c", config, "--dry-run")
    assert (code, err.count("data is left out: it is a link to ")) == (0, 1)
    assert "No errors and 1 warning. Nothing was started" in out
    assert _done("create", "-c", config, "-p", 0, "-f")[0] == 0
    log = (_only().directory / "log" / "manager.log").read_text()
    assert log.count("trial code: data is left out: it is a link to ") == 1


def test_a_space_that_a_tuner_refuses_has_its_line(write: Write) -> None:
    nested = {"x": {"_type": "choice", "_value": [{"_name": "a", "y": {"_type": "uniform", "_value": [0, 1]}}]}}
    config = write(searchSpace=nested, tuner={"name": "GP"})
    for more in (["--dry-run"], ["-p", 0]):
        code, _, err = _done("create", "-c", config, *more)
        assert code == 1
        assert re.search(r":\d+: searchSpace: GP takes no nested choices", err), err


def test_a_space_that_a_tuner_refuses_has_the_name_that_its_file_has_in_an_older_config(tmp_path: Path) -> None:
    option = {"_name": "a", "y": {"_type": "uniform", "_value": [0, 1]}}
    (tmp_path / "space.json").write_text(json.dumps({"x": {"_type": "choice", "_value": [option]}}), "utf-8")
    config = tmp_path / "nni1.yml"
    config.write_text(
        "trainingServicePlatform: local\ntrialConcurrency: 1\nsearchSpacePath: space.json\n"
        "tuner: {builtinTunerName: GP}\ntrial: {command: 'true', codeDir: .}\n",
        "utf-8",
    )
    code, _, err = _done("create", "-c", str(config), "--dry-run")
    assert code == 1
    assert f"{config}:3: searchSpacePath: GP takes no nested choices" in err, err


def test_a_dry_run_warns_of_what_is_hardly_meant_in_the_search_space(write: Write) -> None:
    config = write(searchSpace={"x": {"_type": "quniform", "_value": [0, 1, 5]}})
    code, _, err = _done("create", "-c", config, "--dry-run")
    assert code == 0
    assert "WARNING: search space: the step of x (5) is wider than its range" in err


def test_a_field_that_the_platform_refuses_is_named_with_its_line_and_a_cure(write: Write) -> None:
    local = {"platform": "local", "useActiveGpu": True, "gpuIndices": [99]}
    config = write(trialGpuNumber=1, trainingService=local)
    line = 1 + [text.split(":")[0] for text in config.read_text().splitlines()].index("trialGpuNumber")
    code, _, err = _done("create", "-c", config, "-p", 0)
    assert code == 1
    assert err.startswith(f"ERROR: {config}:{line}: trialGpuNumber: is 1, but ")
    assert "; remove it to run trials without assigned GPUs, or run them on a machine that has enough" in err


def test_a_dry_run_lists_what_was_set_without_effect(write: Write) -> None:
    config = write(callback="log", moveAfter="5m")
    _, out, err = _done("create", "-c", config, "--dry-run")
    assert "Set without effect:\n  moveAfter has no effect: there is one training service" in out
    assert "  callback has no effect on local: trials report on this machine itself" in out
    assert "no effect" not in err
    _, out, _ = _done("create", "-c", config, "--dry-run", "--json")
    found = json.loads(out)
    assert [one["option"] for one in found["withoutEffect"]] == ["moveAfter", "callback"]
    assert found["jobs"]["local"]["report"] == "rest"


def test_create_names_what_was_set_without_effect(write: Write) -> None:
    config = write(callback="log", maxTrialNumber=2)
    code, _, err = _done("create", "-c", config, "-p", 0, "-f")
    assert (code, "WARNING: callback has no effect on local" in err) == (0, True)


def test_a_dry_run_packs_the_code_that_would_be_sent(write: Write) -> None:
    config = write(**_isolated(codeLimits={"maxFiles": 1}))
    code, out, _ = _done("create", "-c", config, "--dry-run")
    assert (code, "1 file, " in out) == (0, True)
    (config.parent / "code" / "more.py").write_text("")
    code, _, err = _done("create", "-c", config, "--dry-run")
    assert (code, ".nniignore" in err) == (1, True)


def test_a_dry_run_does_not_limit_code_that_is_not_sent(write: Write) -> None:
    config = write(codeLimits={"maxFiles": 1})
    (config.parent / "code" / "more.py").write_text("")
    code, out, _ = _done("create", "-c", config, "--dry-run")
    assert (code, "nothing is copied" in out) == (0, True)


def _isolated(**fields: Any) -> dict[str, Any]:
    return {"trainingService": {"platform": "local", "isolateCode": True}, **fields}


@pytest.mark.parametrize("option", ["--dry-run", "--json"])
def test_a_wrong_argument_of_a_tuner_is_found_at_its_line(write: Write, option: str) -> None:
    config = write(tuner={"name": "TPE", "classArgs": {"sed": 1}})
    line = 1 + [line.strip() for line in config.read_text().splitlines()].index("sed: 1")
    code, _, err = _done("create", "-c", config, option)
    assert code == 1
    assert f"{config}:{line}: tuner.classArgs.sed: TPETuner has no such argument; did you mean seed?" in err
    assert registry.entries() == []


def test_a_dry_run_finds_a_tuner_that_cannot_work(write: Write, place: Path) -> None:
    (place / "mine.py").write_text("import nnilite\nclass Bad(nnilite.Tuner):\n    def __init__(self): 1 / 0\n")
    config = write(tuner={"className": "mine.Bad", "codeDirectory": str(place)})
    code, _, err = _done("create", "-c", config, "--dry-run")
    assert (code, "ZeroDivisionError" in err) == (1, True)


def test_with_a_token_the_web_address_signs_in_and_commands_work(
    write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    _create(write(requireToken=True))
    capsys.readouterr()
    assert run(["webui", "url"]) == 0
    link = capsys.readouterr().out
    assert ".localhost:" in link
    assert "/#key=" in link
    assert run(["experiment", "status"]) == 0


def test_a_view_is_read_only_and_ends_when_stopped(write: Write) -> None:
    _done("create", "-c", write(), "-p", 0, "-f")
    experiment = _only().id
    path = _only().directory / "manager.json"
    write_json(path, {**json.loads(path.read_text()), "left": "box was away"})
    assert _done("view", experiment, "-p", 0)[0] == 0
    assert run(["update", "concurrency", "-v", "3"]) == 4
    assert run(["trial", "ls"]) == 0
    assert run(["stop", experiment]) == 0
    assert not _only().alive
    assert managers.left_behind(_only()) == "box was away"  # a view cleans nothing up


def test_an_experiment_whose_viewer_was_ended_or_killed_is_what_it_was_before(write: Write) -> None:
    def end(entry: registry.RegistryEntry, number: signal.Signals) -> None:
        os.kill(entry.pid or 0, number)
        _until(lambda: not _only().alive, "its process is gone")

    entry = _create(write())
    _until(lambda: _only().state == "DONE", "the experiment is over")
    end(_only(), signal.SIGKILL)
    for number in (signal.SIGTERM, signal.SIGKILL):
        assert _done("view", entry.id, "-p", 0)[0] == 0
        assert _only().state == "VIEWED"
        end(_only(), number)
        assert _only().state == "DONE"


def test_a_log_is_followed_until_the_trial_has_ended(write: Write) -> None:
    entry = _create(write(4, trialConcurrency=1, maxTrialNumber=1))
    # On a busy machine it may have ended before anybody looked; it is shown as a whole all the same.
    _until(lambda: _profile(entry)["counts"].get("RUNNING") == 1 or _ended(entry) == 1, "a trial runs")
    with managers.connect(entry) as manager:
        (trial,) = manager.trials()
    code, out, err = _done("log", "stdout", "--trial", trial["id"], "--follow")
    assert (code, err) == (0, "")
    assert out == f"out {trial['parameters']['x']}\n"


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl to make a certificate")
def test_over_https_the_managers_own_certificate_is_trusted(
    write: Write, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    certificate, key = place / "cert.pem", place / "key.pem"
    new = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
        "-days",
        "2",
    ]
    subprocess.run(
        [*new, "-subj", "/CN=elsewhere", "-keyout", key, "-out", certificate], check=True, capture_output=True
    )
    entry = _create(write(), "--tls-cert", str(certificate), "--tls-key", str(key))
    assert entry.url is not None
    assert entry.url.startswith("https://")
    _until(lambda: _ended(entry) == 4, "trials report over https")
    assert run(["stop"]) == 0


def test_stopped_experiments_travel_in_a_zip_file(
    write: Write, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _done("create", "-c", write(), "-p", 0, "-f")
    experiment = _only().id
    assert run(["experiment", "save", experiment, "-p", str(place), "--code"]) == 0
    assert run(["experiment", "delete", experiment, "--yes"]) == 0
    assert run(["experiment", "load", "-p", str(place / f"nni_experiment_{experiment}.zip")]) == 0
    assert run(["trial", "ls", experiment, "--json"]) == 0
    code, out, _ = _done("resume", experiment, "-p", 0)
    assert (code, "is DONE: maxTrialNumber (" in out, "is running" in out) == (0, True, False)
    assert run(["update", "trialnum", "-v", "6"]) == 0
    _until(lambda: _ended(_only()) == 6, "it goes on")


def test_a_manager_that_only_waits_ends_by_itself_and_its_page_is_opened_again(write: Write) -> None:
    experiment = _create(write(idleTimeout="1s"))
    _until(lambda: not registry.is_alive(experiment.directory), "the manager of what is DONE ends")
    assert "idleTimeout" in (experiment.directory / "log" / "manager.log").read_text()
    code, out, _ = _done("webui", "url", experiment.id, "--json")
    assert (code, json.loads(out)["id"]) == (0, experiment.id)
    _until(lambda: not registry.is_alive(experiment.directory), "the viewer ends, too")
    assert not list(experiment.directory.glob("nnilite.sqlite-*")), "the database is closed before the lock is free"


def test_an_experiment_of_which_no_trial_succeeds_has_an_exit_code_of_its_own(write: Write) -> None:
    path = write(trialCommand=f"{sys.executable} nothere.py", maxTrialNumber=2)
    code, out, _ = _done("create", "-c", path, "-p", 0, "-f")
    assert code == 8
    assert "Best: none; no trial has succeeded." in out
    assert "can't open file" in out


def test_an_experiment_without_success_ends_with_what_was_odd_from_the_start(write: Write) -> None:
    code, out, _ = _done("create", "-c", write(trialCommand="pyhton3 trial.py", maxTrialNumber=1), "-p", 0, "-f")
    assert code == 8
    assert "this machine has no program pyhton3; did you mean python3?\nEverything is kept" in out
