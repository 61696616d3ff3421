"""What in a trial command is hardly meant is a warning, wherever a config is checked."""

from __future__ import annotations

from pathlib import Path

import pytest

from nnilite.config import from_dict

CONFIG = {
    "searchSpace": {"x": {"_type": "uniform", "_value": [0, 1]}},
    "trialConcurrency": 1,
    "maxTrialNumber": 1,
    "tuner": {"name": "Random"},
    "trainingService": {"platform": "local"},
}


def warned(folder: Path, command: str) -> list[str]:
    return from_dict({**CONFIG, "trialCommand": command}, folder).checked().warnings


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "src").mkdir()
    for name in ("trial.py", "src/train.py", "run.sh"):
        (tmp_path / name).touch()
    return tmp_path


@pytest.mark.parametrize("command", ["python3 nothere.py", "python3 -u src/nothere.py --epochs 3", "bash nothere.sh"])
def test_a_script_that_is_not_there_is_named_with_its_folder(folder: Path, command: str) -> None:
    [warning] = warned(folder, command)
    assert "nothere" in warning
    assert str(folder) in warning


@pytest.mark.parametrize(
    "command",
    [
        "python3 trial.py",
        "python3 ./src/train.py --config=other.py",
        "sh run.sh",
        "/opt/tools/run.py",
        "cd src && python3 train.py",
        "python3 $SCRIPT.py",
        "echo 'print(1)' > made.py; python3 made.py",
        "python3 -m package",
        "python3 'unended.py",
        f"python3 {'x' * 5000}.py",  # longer than any name on a disk
    ],
)
def test_what_may_be_there_is_no_warning(folder: Path, command: str) -> None:
    assert warned(folder, command) == []


def test_quotes_of_a_word_processor_are_a_warning(folder: Path) -> None:
    opening, closing = "\N{LEFT DOUBLE QUOTATION MARK}", "\N{RIGHT DOUBLE QUOTATION MARK}"
    [warning] = warned(folder, f"python3 trial.py --name {opening}a b{closing}")
    assert "word processors" in warning


def test_a_script_with_annotations_is_named_with_the_command_that_expands_them(folder: Path) -> None:
    (folder / "trial.py").write_text("def f():\n    '''@nni.report_final_result(1)'''\n")
    [warning] = warned(folder, "python3 trial.py")
    assert "trial.py has annotations of NNI, which do nothing by themselves; `nnictl config expand FILE`" in warning


def test_a_script_that_only_mentions_annotations_is_none(folder: Path) -> None:
    (folder / "trial.py").write_text("# '''@nni.report_final_result(1)'''\nx = 'a @nni.variable'\n")
    assert warned(folder, "python3 trial.py") == []


@pytest.mark.parametrize(
    ("field", "value", "cure"),
    [
        ("trialCommand", "python3 trial.py ${env:DATA}", "write $DATA, which the shell of the trial reads"),
        ("experimentName", "of ${env:USER}", "write the value itself"),
        ("tuner", {"name": "Random", "classArgs": {"seed": "${env:SEED}"}}, "write the value itself"),
    ],
)
def test_a_variable_where_it_is_not_replaced_is_named(folder: Path, field: str, value: object, cure: str) -> None:
    config = {**CONFIG, "trialCommand": "python3 trial.py", field: value}
    [warning] = from_dict(config, folder).checked().warnings
    assert warning.startswith(field)
    assert warning.endswith(cure)


def test_a_variable_in_a_secret_or_in_the_search_space_is_no_warning(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOOK", "https://example.org/${env:OTHER}")
    space = {"x": {"_type": "choice", "_value": ["${env:HOME}", "b"]}}
    webhooks = [{"url": "${env:HOOK}"}]
    config = {**CONFIG, "trialCommand": "python3 trial.py", "searchSpace": space, "webhooks": webhooks}
    assert from_dict(config, folder).checked().warnings == []


@pytest.mark.parametrize(
    ("command", "cure"),
    [
        ("C:/Python313/python.exe trial.py", "C:/Python313/python.exe is a path of Windows"),
        (r"python3 trial.py --data D:\data", r"D:\data is a path of Windows"),
        (r"python3 .\trial.py", "write trial.py, which works everywhere"),
        (r"python3 src\train.py", "write src/train.py, which works everywhere"),
    ],
)
def test_a_path_for_windows_is_named(folder: Path, command: str, cure: str) -> None:
    [warning] = warned(folder, command)
    assert cure in warning


@pytest.mark.parametrize("command", [r"echo a\ b", "curl http://h/x", r"printf 'a\n'", "python3 trial.py s3://b/k"])
def test_other_colons_and_backslashes_are_not_taken_for_paths(folder: Path, command: str) -> None:
    assert warned(folder, command) == []


@pytest.mark.parametrize(
    ("source", "fault"),
    [
        ("import nni\n%matplotlib inline\n", "trial.py, line 2: %matplotlib inline is for notebooks"),
        ("!pip install nni\n", "line 1: !pip install nni is for notebooks"),
        ("x = 1\nget_ipython().run_line_magic('cd', '..')\n", "line 2: get_ipython() is there in notebooks alone"),
        ("print 'python 2'\n", "line 1: this Python does not run it: Missing parentheses in call to 'print'"),
    ],
)
def test_a_script_that_python_does_not_run_is_named_with_its_line(folder: Path, source: str, fault: str) -> None:
    (folder / "trial.py").write_text(source)
    [warning] = warned(folder, "python3 trial.py")
    assert fault in warning


@pytest.mark.parametrize(
    "source",
    [
        b'"""\n%d of %d\n!x\n"""\n',
        b"# -*- coding: latin-1 -*-\nx = '\xe9'\n",
        b"\xef\xbb\xbfx = '\\d'\r\n",
        b"",
    ],
)
def test_a_script_that_python_runs_is_no_warning(folder: Path, source: bytes) -> None:
    (folder / "trial.py").write_bytes(source)
    assert warned(folder, "python3 trial.py") == []
