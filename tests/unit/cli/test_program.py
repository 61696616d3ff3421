"""nnictl's command line: its help, its mistakes, and how it finds experiments."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from nnilite._cli.nnictl import COMMANDS, run
from nnilite._experiments import registry
from nnilite._experiments.documents import write_json
from nnilite.errors import ConfigError
from stand_in_manager import Make, StandIn


def test_every_command_explains_itself(capsys: pytest.CaptureFixture[str]) -> None:
    for name in COMMANDS:
        with pytest.raises(SystemExit) as ended:
            run([name, "--help"])
        assert ended.value.code == 0
        explained = capsys.readouterr().out
        assert name in explained
        with pytest.raises(SystemExit):
            run(["help", name])
        assert capsys.readouterr().out == explained


@pytest.mark.process  # a manager's process starts before the file is read
def test_a_configuration_file_needs_no_option(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    missing = str(tmp_path / "exp.yaml")
    assert run(["create", missing]) == run(["create", "-c", missing]) == 1
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 2
    assert said[0] == said[1]


@pytest.mark.parametrize("option", [[], ["--config"]])
def test_the_doctor_takes_its_file_as_create_does(
    option: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["doctor", *option, str(tmp_path / "exp.yaml"), "--port", "0", "--no-trial"]) == 1
    assert "exp.yaml: cannot be read" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["creat"], "did you mean 'create'?"),
        (["create"], "`nnictl create` needs one configuration file, for example `nnictl create exp.yaml`."),
        (["create", "a.yml", "-c", "b.yml"], "a.yml and --config b.yml are two configuration files; give one."),
        (["doctor", "a.yml", "-c", "b.yml"], "a.yml and --config b.yml are two configuration files; give one."),
        (["stop", "--port", "65536"], "65536 is not a port"),
        (["create", "-c", "x", "--por", "1"], "`nnictl create` has no option --por; did you mean --port?"),
        (["trial", "ls", "--head", "0"], "0 is not a whole number of at least 1"),
        (["log", "stdout", "-T", "y5zpmk7g"], "is not a number of lines; name a trial by `--trial y5zpmk7g`"),
        (["log", "manager", "-T", "9" * 30], "is too large; write at most 1000000000"),
        (["experiment"], "`nnictl experiment` needs one of list, ls, show, status, "),
        (["status"], "did you mean 'experiment status'?"),
    ],
)
def test_a_wrong_command_line_is_told_and_exits_with_2(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        run(arguments)
    assert ended.value.code == 2
    assert sentence in capsys.readouterr().err


def test_what_is_installed_is_described_in_whole_sentences(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["algo", "list", "--json"]) == run(["platform", "list", "--json"]) == 0
    described = re.findall(r'"description": "(.*)"', capsys.readouterr().out)
    assert len(described) > 20
    assert [text for text in described if not text.endswith((".", "'"))] == []


@pytest.mark.process
def test_help_loads_nothing_heavy() -> None:
    code = "import sys; from nnilite._cli.nnictl import run\ntry: run(['create', '--help'])\nexcept SystemExit: pass\n"
    code += "print('\\nLOADED', {'rich', 'yaml', 'tornado', 'schema', 'optuna', 'sqlite3'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.endswith("LOADED set()\n")


def test_no_experiment_is_not_found(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["experiment", "status"]) == 3
    assert capsys.readouterr().err.startswith("ERROR: No experiment is running")
    assert run(["trial", "ls", "nosuch"]) == 3


def test_where_none_runs_the_latest_one_is_named(make: Make, capsys: pytest.CaptureFixture[str]) -> None:
    make("abcd", running=False, state="STOPPED")
    assert run(["trial", "ls"]) == 3
    assert "Give the id of one, such as abcd, the latest: `nnictl experiment list --all`" in capsys.readouterr().err


def test_several_running_experiments_need_an_id(make: Make, capsys: pytest.CaptureFixture[str]) -> None:
    make("abcd")
    make("abxy")
    assert run(["experiment", "status"]) == 4
    assert "abcd" in capsys.readouterr().err
    assert run(["experiment", "status", "abc"]) == 0


def test_a_running_command_on_a_stopped_experiment_says_how_to_resume_it(
    make: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    make("abcd", running=False)
    assert run(["update", "concurrency", "abcd", "-v", "3"]) == 4
    assert "nnictl resume abcd" in capsys.readouterr().err


def test_a_manager_that_does_not_answer_is_unreachable(
    make: Make, manager: StandIn, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = make("abcd")
    write_json(folder / "manager.json", {"url": "http://127.0.0.1:1", "port": 1, "state": "RUNNING"})
    assert run(["experiment", "status"]) == 5
    assert "does not answer" in capsys.readouterr().err


def test_debug_shows_the_traceback(make: Make) -> None:
    make("abcd")
    with pytest.raises(ConfigError):
        run(["--debug", "experiment", "import", "-f", "/no/such.json"])


@pytest.mark.process
def test_a_reader_that_has_seen_enough_is_no_error(make: Make) -> None:
    make("abcd")
    command = f"{sys.executable} -m nnilite._cli algo list | head -n 1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.process
def test_a_command_that_can_start_no_thread_names_the_limit() -> None:
    code = (
        "from nnilite._cli import nnictl\n"
        'def fails(options): raise RuntimeError("can\'t start new thread")\n'  # as Python does at the limit
        "nnictl._carry_out = fails; nnictl.run(['experiment', 'list'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr.startswith("ERROR: This command cannot start a thread")) == (1, True)
    assert "raise the limit of processes (`ulimit -u`" in done.stderr


@pytest.mark.process
def test_a_lack_of_memory_is_no_mistake_of_ours() -> None:
    code = (
        "from nnilite._cli import nnictl; nnictl._carry_out = lambda o: bytearray(1 << 60); "
        "nnictl.run(['experiment', 'list'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr.startswith("ERROR: There is not enough memory")) == (1, True)


@pytest.mark.process
def test_a_mistake_of_ours_is_one_sentence_too(tmp_path: Path) -> None:
    code = "from nnilite._cli import nnictl; nnictl._carry_out = lambda o: 1 / 0; nnictl.run(['experiment', 'list'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert done.stderr.startswith("ERROR: This is a bug in nnilite: ZeroDivisionError")
    assert "Traceback" not in done.stderr


@pytest.mark.process
def test_an_end_that_python_reports_under_inspection_is_no_mistake(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "nnilite._cli", "experiment", "list"]
    inspected = {**os.environ, "PYTHONINSPECT": "1", "NNILITE_HOME": str(tmp_path)}
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, env=inspected)
    assert (done.returncode, "ERROR" in done.stderr) == (0, False)


def nnictl(words: list[str], output: int) -> tuple[int, bytes]:
    """Run the program; its exit code and errors."""
    command = [sys.executable, "-m", "nnilite._cli", *words]
    ended = subprocess.run(command, stdout=output, stderr=subprocess.PIPE, check=False)
    return ended.returncode, ended.stderr


@pytest.mark.process
@pytest.mark.parametrize("words", [["--version"], ["--help"], ["help", "create"], ["experiment", "list", "--all"]])
def test_output_that_nobody_reads_to_its_end_is_no_error(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NNILITE_HOME", str(tmp_path))
    reads, writes = os.pipe()
    os.close(reads)
    try:
        assert nnictl(words, writes) == (0, b"")
    finally:
        os.close(writes)


@pytest.mark.process
@pytest.mark.parametrize("words", [["--version"], ["experiment", "list", "--all"]])
def test_output_for_which_the_disk_has_no_room_is_told_in_a_sentence(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NNILITE_HOME", str(tmp_path))
    with Path("/dev/full").open("wb") as full:
        said = b"ERROR: No space left on device; free some disk space, then try again.\n"
        assert nnictl(words, full.fileno()) == (1, said)


@pytest.mark.process
@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_names_of_any_characters_are_written_whatever_the_encoding_of_the_output(
    make: Make, monkeypatch: pytest.MonkeyPatch, encoding: str
) -> None:
    name = "größe 名前 \N{PARTY POPPER}"
    folder = make("abcd", running=False, state="DONE")
    write_json(registry.find_path("abcd"), registry.about("abcd", name, folder, "local", 1.0))
    monkeypatch.setenv("PYTHONIOENCODING", encoding)
    command = [sys.executable, "-m", "nnilite._cli", "experiment", "list", "--all"]
    listed = subprocess.run(command, capture_output=True, check=True).stdout.decode(encoding)
    assert name.encode(encoding, "backslashreplace").decode(encoding) in listed
    told = subprocess.run([*command, "--json"], capture_output=True, check=True).stdout.decode(encoding)
    assert json.loads(told)[0]["name"] == name


@pytest.mark.process
def test_ctrl_c_is_answered_once_while_a_manager_is_forked() -> None:
    program = "import os, signal; from nnilite._cli import ctrl_c\nwith ctrl_c.ImmediateExit():\n    os.fork()\n"
    program += "    os.write(1, b'ready\\n')\n    signal.pause()"
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", program], stdout=pipe, stderr=pipe, start_new_session=True) as ran:
        assert ran.stdout is not None
        assert [ran.stdout.readline() for _ in range(2)] == [b"ready\n"] * 2
        os.killpg(ran.pid, signal.SIGINT)
        _, err = ran.communicate(timeout=30)
    assert (ran.returncode, err) == (130, b"Interrupted; nothing was started.\n")
