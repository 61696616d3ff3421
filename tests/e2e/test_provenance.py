"""What ran is recorded, shown and compared, and a trial can be run again: as a new one, or by hand."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import platform
import re
import shlex
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from e2e.running import ECHO, Running
from nnilite import codedir
from nnilite._cli.nnictl import run
from nnilite._cli.provenance import _changes
from nnilite._experiments.provenance_reading import FILE_NAME, read_starts
from nnilite._manager import provenance_recording as provenance
from nnilite._sdk.worker_facts import NAME
from nnilite._store.database_file import FILE_NAME as DATABASE
from nnilite.config import from_dict
from nnilite.testing import eventually

pytestmark = [pytest.mark.process, pytest.mark.timeout(180)]

CONFIG = {
    "searchSpace": {"x": {"_type": "uniform", "_value": [0, 1]}},
    "trialCommand": "true",
    "trialConcurrency": 1,
    "maxTrialNumber": 1,
    "tuner": {"name": "Random"},
    "trainingService": {"platform": "local"},
}
Answer = Callable[..., Any]


@pytest.fixture
def answer(capsys: pytest.CaptureFixture[str]) -> Answer:
    """Return what nnictl prints as JSON."""

    def ask(*words: str) -> Any:
        capsys.readouterr()
        assert run([*words, "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    return ask


def recorded(running: Running) -> Path:
    path = running.directory / FILE_NAME
    eventually(path.exists, 60)
    return path


def git(folder: Path, *words: str) -> None:
    settings = ["-c", "user.name=me", "-c", "user.email=me@example.org", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", "-C", str(folder), *settings, *words], check=True, capture_output=True, timeout=60)


def test_what_ran_is_recorded_and_two_experiments_are_compared(start: Any, answer: Answer, tmp_path: Path) -> None:
    first = start(maxTrialNumber=1, tuner={"name": "Random", "classArgs": {"seed": 7}})
    recorded(first)
    found = answer("experiment", "provenance", first.entry.id)
    assert found["seeds"] == {"tuner": 7}
    assert list(found["code"]["files"]) == ["trial.py"]
    assert "pytest" in found["python"]["packages"]
    assert "NNILITE_HOME" in found["environment"]
    assert str(tmp_path / "home") not in json.dumps(found["environment"])
    second = start(f"{ECHO}# changed", maxTrialNumber=1, tuner={"name": "Random", "classArgs": {"seed": 8}})
    recorded(second)
    lines = answer("experiment", "provenance", first.entry.id, "--compare", second.entry.id)
    differing = {line["what"] for line in lines}
    assert {"seeds.tuner", "code.hash", "code.files.trial.py", "config.tuner.classArgs.seed"} <= differing
    assert not any(name.startswith("python") for name in differing)


def test_nothing_is_recorded_if_the_config_says_so(start: Any) -> None:
    running = start(maxTrialNumber=1, recordProvenance=False)
    running.wait("DONE")
    running.stop()
    assert not (running.directory / FILE_NAME).exists()
    assert attributes(running) == []


def attributes(running: Running) -> list[Any]:
    with contextlib.closing(sqlite3.connect(running.directory / DATABASE)) as database:
        return database.execute("SELECT trial, idx, name FROM attributes ORDER BY trial, idx").fetchall()


def test_each_host_and_python_says_once_what_trials_run_with(
    start: Any, answer: Answer, capsys: pytest.CaptureFixture[str]
) -> None:
    running = start(f"{ECHO}nnilite.set_attribute('a', 1)\n", maxTrialNumber=3, trialConcurrency=1)
    running.wait("DONE")
    recorded(running)
    (worker,) = answer("experiment", "provenance", running.entry.id)["workers"]
    assert (worker["python"], worker["executable"]) == (platform.python_version(), sys.executable)
    assert worker["packages"]["pytest"] == pytest.__version__
    assert len(worker["hosts"]) == 1
    assert attributes(running) == [(0, 0, NAME), (0, 3, "a"), (1, 2, "a"), (2, 2, "a")]
    assert [trial["attributes"] for trial in running.trials()] == [{"a": 1}] * 3
    assert run(["experiment", "provenance", running.entry.id]) == 0
    assert re.search(rf"Python {platform.python_version()} +\d+ ", capsys.readouterr().out)
    running.stop()
    assert run(["verify", running.entry.id]) == 0


def test_trials_with_another_python_are_compared_by_what_they_ran_with(
    start: Any, answer: Answer, tmp_path: Path
) -> None:
    (tmp_path / "libraries" / "numpy-0.1.dist-info").mkdir(parents=True)
    command = f"PYTHONPATH={tmp_path}/libraries {shlex.quote(sys.executable)} trial.py"
    first, second = start(maxTrialNumber=1), start(maxTrialNumber=1, trialCommand=command)
    for running in (first, second):
        running.wait("DONE")
        recorded(running)
    lines = answer("experiment", "provenance", first.entry.id, "--compare", second.entry.id)
    differing = {line["what"]: line[second.entry.id] for line in lines}
    assert differing["workers.packages.numpy"] == "0.1"


def test_a_trial_is_laid_out_and_gives_the_same_result_by_hand(
    start: Any, answer: Answer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    running = start(ECHO.replace("nnilite", "nni"), maxTrialNumber=1)
    running.wait("DONE")
    recorded(running)
    [trial] = running.trials()
    target = tmp_path / "by hand $x"
    laid = answer("trial", "reproduce", running.entry.id, "0", "--in", str(target))
    assert laid["changed"] == []
    subprocess.run(["sh", str(target / "run.sh")], check=True, timeout=60, env={"PATH": os.environ["PATH"]})
    assert str(trial["value"]) in (target / "trial" / ".nni" / "metrics").read_text()
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    for there in (target, tmp_path / "link"):
        assert run(["trial", "reproduce", running.entry.id, "0", "--in", str(there)]) == 1
        assert "exists already" in capsys.readouterr().err


def test_code_that_has_changed_since_is_named(start: Any, answer: Answer, tmp_path: Path) -> None:
    running = start(maxTrialNumber=1)
    running.wait("DONE")
    recorded(running)
    (folder,) = (path for path in tmp_path.iterdir() if (path / "trial.py").exists())
    (folder / "trial.py").write_text("print('another program')")
    laid = answer("trial", "reproduce", running.entry.id, "0", "--in", str(tmp_path / "again"))
    assert laid["changed"] == ["trial.py"]


def test_a_trial_that_is_laid_out_is_no_part_of_the_code_from_then_on(start: Any, answer: Answer) -> None:
    running = start(maxTrialNumber=1)
    running.wait("DONE")
    code = Path(running.client.profile()["config"]["trialCodeDirectory"])
    before = codedir.list_files(code).total_bytes
    for name in ("first", "second"):
        answer("trial", "reproduce", running.entry.id, "0", "--in", str(code / name))
        assert codedir.list_files(code).total_bytes == before
    assert [path.name for path in (code / "second" / "code").rglob("*") if path.is_file()] == ["trial.py"]


def test_a_trial_that_cannot_be_laid_out_leaves_nothing(
    start: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    running = start(maxTrialNumber=1)
    running.wait("DONE")
    monkeypatch.setattr("nnilite.disk_room.reserve_bytes", lambda disk: 1 << 60)
    assert run(["trial", "reproduce", running.entry.id, "0", "--in", str(tmp_path / "again")]) == 1
    assert "cannot copy the code directory: the disk of" in capsys.readouterr().err
    assert not (tmp_path / "again").exists()
    assert run(["trial", "reproduce", running.entry.id, "0", "--in", "/proc/again"]) == 1
    assert "cannot be reproduced there: No such file or directory; name another folder" in capsys.readouterr().err


def test_the_same_parameters_run_as_a_new_trial(start: Any, answer: Answer) -> None:
    space = {"x": {"_type": "choice", "_value": [0.25, 0.5]}}
    running = start(maxTrialNumber=5, searchSpace=space, tuner={"name": "GridSearch"})
    running.wait("DONE")
    first, second = answer("trial", "again", running.entry.id, "0")
    assert first["id"] != second["id"]
    assert first["parameters"] == second["parameters"]
    assert (second["state"], second["value"]) == ("SUCCEEDED", first["value"])


LUCKY = """
import nnilite, pathlib
x = nnilite.get_next_parameter()["x"]
seen = pathlib.Path({folder!r}, str(x))
assert not seen.with_name("full").exists(), "no room"
nnilite.report_final_result((1 if x == "lucky" else 6) if seen.exists() else {{"lucky": 9, "good": 5, "poor": 0}}[x])
seen.touch()
"""


def test_the_best_parameters_run_again_beyond_the_limit_and_are_compared_by_their_means(
    start: Any, answer: Answer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    space = {"x": {"_type": "choice", "_value": ["poor", "lucky", "good"]}}
    tuner = {"name": "GridSearch", "classArgs": {"optimize_mode": "maximize"}}
    running = start(LUCKY.format(folder=str(tmp_path)), maxTrialNumber=3, searchSpace=space, tuner=tuner)
    running.wait("DONE")
    found = answer("trial", "again", running.entry.id, "--best", "2")
    assert [(one["parameters"]["x"], one["values"], one["mean"]) for one in found] == [
        ("good", [6, 5], 5.5),
        ("lucky", [9, 1], 5),
    ]
    profile = running.wait("DONE")
    assert (profile["config"]["maxTrialNumber"], len(running.trials())) == (5, 5)
    (tmp_path / "full").touch()
    assert run(["trial", "again", running.entry.id, "--best", "1", "--json"]) == 0
    shown = capsys.readouterr()
    assert json.loads(shown.out)[0]["values"] == [9, 1]
    assert re.search(r"WARNING: trial \w+ is FAILED: .*AssertionError: no room", shown.err)
    for words, sentence in (([running.entry.id, "0"], "--best names the trials"), (["-T", "0"], "give one of the two")):
        assert run(["trial", "again", *words, "--best", "2"]) == 1
        assert sentence in capsys.readouterr().err


def test_the_difference_to_the_commit_is_kept_without_secrets_and_runs_no_program(tmp_path: Path) -> None:
    git(tmp_path, "init", "-b", "trunk")
    (tmp_path / "trial.py").write_text("x = 1\n")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-m", "first")
    (tmp_path / "trial.py").write_text("x = 2\npassword = 'hunter22'\nkey = 'of-config'\n")
    (tmp_path / ".git" / "info" / "attributes").write_text("*.py diff=evil\n")
    (tmp_path / "new.py").touch()
    for name in ("diff.external", "diff.evil.textconv", "core.fsmonitor"):
        git(tmp_path, "config", name, f"touch '{tmp_path}/ran'; true")
    found: Any = provenance._git(tmp_path, frozenset({"of-config"}))
    assert found["branch"] == "trunk"
    assert "+x = 2" in found["diff"]
    assert "hunter22" not in found["diff"]
    assert "of-config" not in found["diff"]
    assert found["untracked"] == 1
    assert not (tmp_path / "ran").exists()


@pytest.fixture
def foreign(tmp_path: Path) -> Path:
    """A repository from another person, with a submodule, a change in both, and a filter for all files."""
    inner, outer = tmp_path / "inner", tmp_path / "outer"
    for folder in (inner, outer):
        folder.mkdir()
        git(folder, "init")
        (folder / "a.py").write_text("print(1)\n")
        (folder / ".gitattributes").write_text("* filter=odd\n")
        git(folder, "add", ".")
        git(folder, "commit", "-m", "first")
    git(outer, "-c", "protocol.file.allow=always", "submodule", "add", str(inner), "part")
    git(outer, "commit", "-m", "second")
    for changed in ("a.py", "part/a.py"):
        (outer / changed).write_text("print(2)\n")
    return outer


@pytest.mark.parametrize("name", ["clean", "process"])
def test_no_program_of_a_foreign_repository_or_its_submodule_runs(foreign: Path, tmp_path: Path, name: str) -> None:
    for place in (foreign, foreign / "part"):
        runs = f"touch '{tmp_path}/ran'; cat"
        git(place, "config", "--file", str(tmp_path / "settings"), f"filter.odd.{name}", runs)
        git(place, "config", "include.path", str(tmp_path / "settings"))
        git(place, "config", "core.fsmonitor", runs)
    found: Any = provenance._git(foreign, frozenset())
    assert not (tmp_path / "ran").exists()
    assert "+print(2)" in found["diff"]


def test_a_filter_whose_name_no_option_can_have_leaves_the_changes_unknown(foreign: Path, tmp_path: Path) -> None:
    (foreign / ".gitattributes").write_text("* filter=a=b\n")
    git(foreign, "config", "filter.a=b.clean", f"touch '{tmp_path}/ran'; cat")
    found: Any = provenance._git(foreign, frozenset())
    assert found["diff"] is None
    assert not (tmp_path / "ran").exists()


def test_a_file_that_a_foreign_repository_lacks_is_fetched_from_nowhere(foreign: Path, tmp_path: Path) -> None:
    (foreign / ".git" / "objects" / "b9" / "17a726c93f902e43291d9009d6488385133b67").unlink()  # a.py as it was
    for name, value in (
        ("core.repositoryFormatVersion", "1"),
        ("extensions.partialClone", "origin"),
        ("remote.origin.promisor", "true"),
        ("remote.origin.url", f"ext::touch {tmp_path}/ran"),
        ("protocol.ext.allow", "always"),
    ):
        git(foreign, "config", name, value)
    found: Any = provenance._git(foreign, frozenset())
    assert found["diff"] is None
    assert not (tmp_path / "ran").exists()


def test_a_large_difference_is_cut_and_a_folder_without_git_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert provenance._git(tmp_path, frozenset()) is None
    git(tmp_path, "init")
    (tmp_path / "a").touch()
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-m", "first")
    (tmp_path / "a").write_text("a line\n" * 100_000)
    found: Any = provenance._git(tmp_path, frozenset())
    assert found["isCut"]
    assert 0 < len(found["diff"]) <= 200_000


def test_a_program_that_hangs_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provenance, "_PROGRAM_S", 0.2)
    assert provenance._output(["sh", "-c", "sleep 100 & wait"], 10) is None
    assert provenance._output(["no-such-program"], 10) is None


def test_a_program_that_hangs_does_not_outlive_its_manager_for_long(tmp_path: Path) -> None:
    code = (
        "import os, pathlib, sys, threading\n"
        "from nnilite._manager import provenance_recording as provenance\n"
        "from nnilite.testing import eventually\n"
        "provenance._PROGRAM_S, path = 1.0, pathlib.Path(sys.argv[1])\n"
        "command = ['sh', '-c', 'echo $$ > \"$0\"; exec sleep 100', str(path)]\n"
        "threading.Thread(target=provenance._output, args=(command, 10), daemon=True).start()\n"
        "eventually(lambda: path.exists() and path.read_text().endswith('\\n'), 30)\n"
        "os._exit(0)\n"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "pid")], check=True, timeout=60)
    left = Path("/proc", (tmp_path / "pid").read_text().strip())
    eventually(lambda: not left.exists(), 30)


def test_git_that_does_not_answer_is_not_said_to_find_no_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "git").write_text('#!/bin/sh\ncase "$*" in *rev-parse*) echo abc;; *) exec sleep 100;; esac\n')
    (tmp_path / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(provenance, "_PROGRAM_S", 0.5)
    found: Any = provenance._git(tmp_path, frozenset())
    assert (found["commit"], found["diff"], found["untracked"]) == ("abc", None, None)
    assert _changes(found) == "changes unknown, ? files not in it"


def test_git_leaves_the_repository_of_a_user_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    git(tmp_path, "init")
    (tmp_path / "a.py").write_text("a")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-m", "first")
    os.utime(tmp_path / "a.py", (1, 1))  # by default git would write its index now, under a lock
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "another"))
    before = (tmp_path / ".git" / "index").read_bytes()
    found: Any = provenance._git(tmp_path, frozenset())
    assert (found["diff"], found["untracked"]) == ("", 0)
    assert (tmp_path / ".git" / "index").read_bytes() == before


def test_lines_of_secrets_stay_lines_and_private_keys_are_hidden() -> None:
    key = "+-----BEGIN RSA PRIVATE KEY-----\n+MIIE\n+-----END RSA PRIVATE KEY-----\n"
    hidden = provenance._hide_secrets(f"+password = 1\n+x = 2\n{key}+y = 3\n", frozenset())
    assert hidden.splitlines()[1] == "+x = 2"
    assert hidden.splitlines()[-1] == "+y = 3"
    assert "MIIE" not in hidden


def test_the_record_stays_small_and_a_full_disk_keeps_nothing_of_a_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(provenance, "describe", lambda *_: {"time": 1, "text": "x" * 1000})
    monkeypatch.setattr(provenance, "_MOST_BYTES", 3000)
    config = from_dict({**CONFIG}, tmp_path).checked()
    for _ in range(5):
        provenance._record(tmp_path, config, 1.0)
    assert len(read_starts(tmp_path)) == 2

    def fail(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "no space left")

    before = sorted(tmp_path.iterdir())
    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(OSError, match="no space"):
        provenance._record(tmp_path, config, 1.0)
    assert sorted(tmp_path.iterdir()) == before


def test_code_is_compared_with_that_of_the_start_before_the_trial(start: Any, answer: Answer, tmp_path: Path) -> None:
    running = start(maxTrialNumber=1)
    running.wait("DONE")
    path = recorded(running)
    [first] = json.loads(path.read_text())["starts"]
    later = {**first, "time": first["time"] + 1000, "code": {"files": {"trial.py": "another"}}}
    path.write_text(json.dumps({"starts": [first, later]}))
    assert answer("trial", "reproduce", running.entry.id, "0", "--in", str(tmp_path / "again"))["changed"] == []


async def test_code_that_cannot_be_read_does_not_hold_up_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    let_go, over = threading.Event(), asyncio.Event()
    monkeypatch.setattr(provenance, "_record", lambda *_: let_go.wait(60))
    monkeypatch.setattr(provenance, "_END_S", 0.1)
    config = from_dict({**CONFIG}, tmp_path).checked()
    over.set()
    await asyncio.wait_for(provenance.record_start(tmp_path, config, over), 10)
    let_go.set()


async def test_where_no_thread_can_be_started_a_start_is_not_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    over = asyncio.Event()
    over.set()
    monkeypatch.setattr(threading.Thread, "start", refuse)
    await asyncio.wait_for(provenance.record_start(tmp_path, from_dict({**CONFIG}, tmp_path).checked(), over), 60)
    assert "cannot be recorded: can't start new thread" in caplog.text


def test_hashing_has_a_time_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.py").touch()
    monkeypatch.setattr(provenance, "_HASHING_S", -1.0)
    found = provenance._code(tmp_path, codedir.PackageLimits())
    assert (found["hash"], found["files"]) == (None, {})
    assert "could not be read within" in str(found["reason"])


@pytest.mark.parametrize(
    ("first", "reason"),
    [
        ('{"x": 2}', "--first: is not in the search space: x: 2 "),
        ('{"x": ', "--first: this is not JSON"),
    ],
)
def test_a_first_trial_of_the_command_line_is_not_told_as_a_line_of_the_file(
    first: str, reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "exp.json").write_text(json.dumps(CONFIG))
    assert run(["create", str(tmp_path / "exp.json"), "--first", first]) == 1
    assert re.search(reason, capsys.readouterr().err)
