"""What in a trial command is hardly meant is a warning, wherever a config is checked."""

from __future__ import annotations

from pathlib import Path

import pytest

from nnilite.config import from_dict
from nnilite.services.trial_command import find_other_python

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
        "python3 trial.py \\\n --epochs 3",
        "python3 trial.py my\\ file",
        "python3 ./src/train.py --config=other.py",
        "sh run.sh",
        "/opt/tools/run.py",
        "cd src && python3 train.py",
        "python3 $SCRIPT.py",
        "echo 'print(1)' > made.py; python3 made.py",
        "python3 -m package",
        "git clone x && python3 x/train.py",
        "python3 trial.py > out/log.json",
        "source $HOME/x.sh && python3 trial.py --config $X.yaml",
        "if true; then python3 nothere.py; fi",
        "python3 trial.py --config out=made.yaml --out made.yaml",
        "python3 -W ignore -u trial.py",
        "~/bin/run.py",
        'PYTHONPATH="src:${PYTHONPATH}" python3 trial.py',
        "NOT_PYTHONPATH=src python3 trial.py",
        "set -o pipefail; python3 trial.py | tee log.txt",
        "echo begins | tee log.txt; python3 trial.py",
        "(cd src; python3 nothere.py)",
        f"python3 {'x' * 5000}.py",  # longer than any name on a disk
    ],
)
def test_what_may_be_there_is_no_warning(folder: Path, command: str) -> None:
    assert warned(folder, command) == []


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("python3 trial.pyy", "there is no trial.pyy in FOLDER; did you mean trial.py?"),
        ("python3 -u Trial", "there is no Trial in FOLDER"),
        ("time python3 nothere.py; true", "there is no nothere.py in FOLDER"),
        ("cd src && python3 trial.py", "there is no trial.py in FOLDER/src; did you mean train.py?"),
        ("cd scr && python3 trial.py", "there is no folder scr in FOLDER"),
        ("source venv/bin/activate && python3 trial.py", "there is no venv/bin/activate in FOLDER"),
        ("bash -c 'python3 nothere.py'", "there is no nothere.py in FOLDER"),
        ("python3 src", "src is a folder without __main__.py"),
        ("python3 -m trial.py", "write python3 trial.py, or -m trial"),
        ("trial.py", "write python3 trial.py"),
        ("./run.sh --fast", "./run.sh may not be executed (it has no x in its mode); write bash run.sh"),
        ("./nothere.sh", "there is no ./nothere.sh in FOLDER"),
        ("./src", "./src is a folder"),
        ("python3 trial.py --config nothere.yaml", "there is no nothere.yaml in FOLDER"),
        ("python3 trial.py --model-cfg=conf/nothere.json", "there is no conf/nothere.json in FOLDER"),
        ("python3 'my trial.py'", "there is no my trial.py in FOLDER"),
        ("python3 'trial.py", "has an unmatched quotation mark"),
        ("python3 trial.py \N{EN DASH}\N{EN DASH}fast", "begins with a dash of word processors; type -- instead"),
        ("python3\N{NO-BREAK SPACE}trial.py", "has a no-break space, which shells read as a letter"),
        ("PYTHONPATH=src:lib python3 -m train", 'write PYTHONPATH="src:lib:$PYTHONPATH"'),
        ("PYTHONPATH=$PWD/src python3 trial.py", 'write PYTHONPATH="$PWD/src:$PYTHONPATH"'),
        ("export PYTHONPATH='src'; python3 trial.py", 'write PYTHONPATH="src:$PYTHONPATH"'),
        ("python3 trial.py 2>&1 | tee log.txt", "a program that fails counts as succeeded; write `set -o pipefail;`"),
        ("python3 trial.py --x $x", "$x is not replaced by the parameter x"),
        ("python3 trial.py --x ${trialParameters.x}", "${trialParameters.x} is not replaced by the parameter x"),
        ("python3 trial.py --x=$x", "$x is not replaced by the parameter x"),
        ("python3 trial.py x={x}", "{x} is not replaced by the parameter x"),
        ("python3 trial.py +x='${x}'", "${x} is not replaced by the parameter x"),
        ("python3 trial.py --x %(x)s", "%(x)s is not replaced by the parameter x"),
    ],
)
def test_what_cannot_start_is_named_with_its_cure(folder: Path, command: str, said: str) -> None:
    [warning] = warned(folder, command)
    assert said.replace("FOLDER", str(folder)) in warning


@pytest.mark.parametrize("command", ["x=1 python3 trial.py $x", "for x in 1 2; do python3 trial.py $x; done"])
def test_a_variable_that_the_command_sets_is_no_parameter(folder: Path, command: str) -> None:
    assert warned(folder, command) == []


def test_a_file_that_stands_before_the_sdk_is_named(folder: Path) -> None:
    (folder / "nni.py").touch()
    [warning] = warned(folder, "python3 trial.py")
    assert f"{folder / 'nni.py'} is what `import nni` finds" in warning


def test_quotes_of_a_word_processor_are_a_warning(folder: Path) -> None:
    opening, closing = "\N{LEFT DOUBLE QUOTATION MARK}", "\N{RIGHT DOUBLE QUOTATION MARK}"
    [warning] = warned(folder, f"python3 trial.py --name {opening}a b{closing}")
    assert "word processors" in warning


def test_a_script_with_annotations_is_named_with_the_command_that_expands_them(folder: Path) -> None:
    (folder / "trial.py").write_text("def f():\n    '''@nni.report_final_result(1)'''\n")
    [warning] = warned(folder, "python3 trial.py")
    assert "trial.py has annotations of NNI, which do nothing by themselves; `nnictl config expand CONFIG`" in warning


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


@pytest.mark.parametrize("written", ["{x}", "${x}", "{{ x }}"])
def test_a_parameter_in_the_command_is_answered_with_where_trials_get_it(folder: Path, written: str) -> None:
    [warning] = warned(folder, f"python3 trial.py --x {written} --y {{y}} --home ${{HOME}} --again {written}")
    assert warning.startswith(f"trialCommand: {written} is not replaced by the parameter x: the trial gets its")
    page = next(word for word in warning.split() if word.startswith("docs/"))
    assert '```python title="trial.py"' in (Path(__file__).parents[2] / page).read_text("utf-8")


@pytest.mark.parametrize("written", ["${args}", "${args_no_hyphens}", "--lr=${trialParameters.learningRate}"])
def test_words_of_sweeps_elsewhere_are_answered_with_where_trials_get_parameters(folder: Path, written: str) -> None:
    [warning] = warned(folder, f"python3 trial.py {written}")
    assert warning.startswith(f"trialCommand: {written.removeprefix('--lr=')} is not replaced: the trial gets its")
    assert not warned(folder, "args='--fast'; python3 trial.py ${args}")


@pytest.mark.parametrize(
    ("command", "cure"),
    [
        ("python3 trial.py &", "leaves the program in the background, so that the trial ends at once; remove it"),
        ("nohup python3 trial.py > log 2>&1 &", "leaves the program in the background"),
        ("sbatch run.sh", "sbatch returns while its program still runs"),
        ("tmux new -d 'python3 trial.py'", "write the program itself: trials run in the background anyway"),
        ("nnictl create --config config.yml", "each trial would start an experiment"),
        ("python3 train.ipynb", "train.ipynb is a notebook, which Python does not run"),
    ],
)
def test_a_command_that_ends_before_its_program_is_named(folder: Path, command: str, cure: str) -> None:
    [warning] = warned(folder, command)
    assert cure in warning


@pytest.mark.parametrize(
    "command",
    [
        "python3 trial.py > log 2>&1",
        "a & b & wait",
        "cd src && python3 train.py",
        "jupyter nbconvert --execute t.ipynb",
    ],
)
def test_commands_that_wait_for_their_program_are_not_complained_of(folder: Path, command: str) -> None:
    assert warned(folder, command) == []


def test_a_shell_script_from_windows_is_named(folder: Path) -> None:
    (folder / "run.sh").write_bytes(b"#!/bin/bash\r\npython3 trial.py\r\n")
    [warning] = warned(folder, "bash run.sh")
    assert "run.sh: its lines end as on Windows (CRLF)" in warning


def test_a_program_from_windows_that_is_to_start_by_itself_is_named(folder: Path) -> None:
    program = folder / "start.py"
    program.write_bytes(b"#!/usr/bin/env python3\r\nprint(1)\r\n")
    program.chmod(0o755)
    [warning] = warned(folder, "./start.py")
    assert "./start.py: its first line ends as on Windows (CRLF); `sed -i" in warning
    assert warned(folder, "python3 start.py") == []


def test_a_command_that_chooses_its_gpu_goes_not_with_assigned_ones(folder: Path) -> None:
    service = {"platform": "local", "useActiveGpu": True}
    config = {**CONFIG, "trainingService": service, "trialCommand": "CUDA_VISIBLE_DEVICES=0 python3 trial.py"}
    assert not any("CUDA" in line for line in from_dict(config, folder).checked().warnings)
    warnings = from_dict({**config, "trialGpuNumber": 1}, folder).checked().warnings
    assert any("sets CUDA_VISIBLE_DEVICES itself, so every trial gets these GPUs" in line for line in warnings)


def test_a_command_that_yaml_has_put_on_one_line_names_the_word_that_gets_a_space(folder: Path) -> None:
    [warning] = warned(folder, "python3 trial.py \\ --epochs 3")
    assert "remove the \\ before --epochs" in warning


@pytest.mark.parametrize(
    ("place", "command", "is_named"),
    [
        ("code", "python3 trial.py", True),
        ("code", "cd . && python trial.py", True),
        (".", "python3 trial.py", True),
        ("other", "python3 trial.py", False),
        ("code", "uv run trial.py", False),
        ("code", ". .venv/bin/activate; python3 trial.py", False),
        ("code", ".venv/bin/python trial.py", False),
    ],
)
def test_a_python_that_is_not_that_of_the_project_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, command: str, is_named: bool
) -> None:
    code, system, own = tmp_path / "code", tmp_path / "usr" / "bin", (tmp_path / place).resolve() / ".venv"
    for folder in (tmp_path / ".git", code, system, own):
        folder.mkdir(parents=True, exist_ok=True)
    (own / "pyvenv.cfg").touch()
    for name in ("python", "python3", "uv"):
        (system / name).touch(0o755)
    monkeypatch.setenv("PATH", str(system))
    assert (f"which lacks what is installed in {own}; write " in find_other_python(command, code)) is is_named
    (system.parent / "pyvenv.cfg").touch()  # one that was activated
    assert find_other_python(command, code) == ""


def test_a_python_that_is_found_in_the_current_folder_is_compared_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv" / "pyvenv.cfg").touch()
    (tmp_path / "python3").touch(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", ".")
    assert find_other_python("python3 trial.py", tmp_path).startswith("python3 is ./python3, which lacks what is")
