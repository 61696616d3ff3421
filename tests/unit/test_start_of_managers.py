"""The process of a manager that stands by, what it tells of its start, and what its starter makes of that."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from io import BytesIO, FileIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

import nnilite
from nnilite._cli.nnictl import run
from nnilite._experiments import registry
from nnilite._experiments.registry import RegistryEntry
from nnilite._manager.ready_pipe import ReadyPipe
from nnilite._running import launch, manager_process, managers
from nnilite._running.manager_client import Client
from nnilite._running.manager_process import ManagerProcess
from nnilite._running.managers import NotRunning
from nnilite.config import from_dict
from nnilite.errors import NniliteError
from nnilite.testing import eventually

pytestmark = pytest.mark.process


@pytest.fixture
def pipe() -> Iterator[tuple[FileIO, int]]:
    ours, theirs = os.pipe()
    with FileIO(ours) as reader:
        yield reader, theirs


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


def test_packing_takes_as_long_as_it_takes(
    pipe: tuple[FileIO, int], process: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A start may take a minute without a word; while it packs, it says so, and the words come before the answer."""
    monkeypatch.setattr("nnilite._manager.ready_pipe._SHOWN_EVERY_S", 0.0)
    reader, writer = pipe
    seen: list[tuple[int, int]] = []
    ready_pipe = ReadyPipe(writer)
    for done in (10, 20, 30):
        ready_pipe.packed(done, 30)
    ready_pipe.answer({"ready": "yes", "url": "http://127.0.0.1:1"})
    answer = ManagerProcess(process, reader, BytesIO()).answer(lambda *amounts: seen.append(amounts))
    assert answer == {"ready": "yes", "url": "http://127.0.0.1:1"}
    assert seen == [(10, 30), (20, 30), (30, 30)]


def test_a_start_is_seen_behind_words_on_the_packing(
    pipe: tuple[FileIO, int], process: subprocess.Popen[bytes]
) -> None:
    reader, writer = pipe
    ready_pipe, manager = ReadyPipe(writer), ManagerProcess(process, reader, BytesIO())
    ready_pipe.packed(10, 10)
    assert not manager.is_ready()
    ready_pipe.packed(10, 10)
    ready_pipe.answer({"ready": "yes", "url": ""})
    assert manager.is_ready()


def test_a_starter_that_does_not_listen_holds_no_packing_up(pipe: tuple[FileIO, int]) -> None:
    _, writer = pipe
    while select.select([], [writer], [], 0)[1]:
        os.write(writer, b"x" * 4096)
    packing = threading.Thread(target=ReadyPipe(writer).packed, args=(1, 1), daemon=True)
    packing.start()
    packing.join(60)
    assert not packing.is_alive()
    os.close(writer)


def test_what_packs_on_after_the_answer_writes_into_no_other_file(pipe: tuple[FileIO, int], tmp_path: Path) -> None:
    """The number of the pipe is given to the next file that is opened."""
    reader, writer = pipe
    ready_pipe = ReadyPipe(writer)
    ready_pipe.answer({"error": "no", "kind": "other"})
    with (tmp_path / "database").open("wb"):
        ready_pipe.packed(1, 1)
        ready_pipe.answer({"error": "no", "kind": "other"})
    assert (tmp_path / "database").read_bytes() == b""
    assert reader.readline() == b'{"error": "no", "kind": "other"}\n'


def test_a_starter_that_is_gone_does_not_matter(pipe: tuple[FileIO, int]) -> None:
    reader, writer = pipe
    reader.close()
    ready_pipe = ReadyPipe(writer)
    ready_pipe.packed(1, 1)
    ready_pipe.answer({"ready": "yes"})
    assert ready_pipe._pipe is None


CONFIG = {
    "searchSpace": {"x": {"_type": "choice", "_value": [1]}},
    "trialCommand": "true",
    "trialConcurrency": 1,
    "maxTrialNumber": 1,
    "tuner": {"name": "Random"},
    "trainingService": {"platform": "local"},
}

Standing = tuple[subprocess.Popen[bytes], ManagerProcess]


def test_only_a_program_of_nnilite_is_copied_for_a_manager() -> None:
    """A script that calls a command would leave its memory and its signal handlers to the manager."""
    start = (
        "from nnilite._running.manager_process import fork\n"
        "from nnilite._side_processes.quick_end import run_program\n"
        "def start():\n    with fork() as manager:\n        print(type(manager._process).__name__)\n    return 0\n"
        "start()\nrun_program(start)"
    )
    printed = subprocess.run(
        [sys.executable, "-c", start], capture_output=True, text=True, check=True, timeout=60
    ).stdout
    assert printed.split() == ["Popen", "ForkedProcess"]


@pytest.fixture
def standing() -> Iterator[Standing]:
    """A process that stands by, and what its starter has of it."""
    manager = manager_process.start_standby()
    process = manager._process
    with manager:
        yield process, manager
        process.kill()
        manager.reap()


def test_a_process_that_stands_by_ends_with_its_starter(standing: Standing) -> None:
    process, _ = standing
    assert process.stdin is not None
    process.stdin.close()
    assert process.wait(60) == 0


def test_half_of_its_words_make_no_manager(standing: Standing, tmp_path: Path) -> None:
    """The starter was killed while it told them."""
    process, _ = standing
    assert process.stdin is not None
    words = ["--directory", str(tmp_path), "--mode", "create", "--log", str(tmp_path / "log")]
    process.stdin.write(json.dumps(words).encode())
    process.stdin.close()
    assert process.wait(60) == 0
    assert list(tmp_path.iterdir()) == []


def test_a_process_that_is_not_needed_is_ended_at_once(standing: Standing) -> None:
    process, manager = standing
    with manager:
        assert process.poll() is None
    assert process.returncode == -signal.SIGKILL


def test_a_process_that_died_while_it_stood_by_is_reported(standing: Standing, tmp_path: Path) -> None:
    process, manager = standing
    process.kill()
    process.wait()
    with manager:
        manager.begin(["--directory", str(tmp_path)], detach=True)
        answer = manager.answer()
    assert answer == {"error": "the manager ended at its start with exit code -9", "tail": "yes"}


def test_a_start_whose_process_died_says_so_and_leaves_nothing(
    standing: Standing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NNILITE_HOME", str(tmp_path / "home"))
    process, manager = standing
    process.kill()
    process.wait()
    with pytest.raises(NniliteError, match=r"^the manager ended at its start with exit code -9$"):
        launch.create(from_dict(CONFIG, tmp_path), process=manager, experiment="abcd")
    assert registry.entries() == []
    assert not (tmp_path / "home" / "abcd").exists()


def test_a_process_that_is_stopped_while_it_stands_by_is_ended(
    standing: Standing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NNILITE_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(manager_process, "READY_TIMEOUT_S", 0.5)
    monkeypatch.setattr(manager_process, "_END_TIMEOUT_S", 0.5)
    process, manager = standing
    process.send_signal(signal.SIGSTOP)
    with pytest.raises(NniliteError, match="the manager was not ready after"):
        launch.create(from_dict(CONFIG, tmp_path), process=manager, experiment="abcd")
    assert process.returncode == -signal.SIGKILL
    assert registry.entries() == []
    assert not (tmp_path / "home" / "abcd").exists()


def test_a_time_limit_during_a_start_leaves_nothing(
    standing: Standing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class TooLate(Exception):
        pass

    def ring(*_: object) -> None:
        raise TooLate

    monkeypatch.setenv("NNILITE_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(ManagerProcess, "answer", ring)
    process, manager = standing
    with pytest.raises(TooLate):
        launch.create(from_dict(CONFIG, tmp_path), process=manager, experiment="abcd")
    assert process.returncode is not None
    assert registry.entries() == []
    assert not (tmp_path / "home" / "abcd").exists()


def test_signal_handlers_wait_for_the_end_of_what_must_not_be_left_half_done() -> None:
    def ring(number: int, _: object) -> None:
        rung.append(number)
        raise TimeoutError

    def hold_all() -> None:
        with launch.hold_interrupts():
            for number in numbers:
                signal.raise_signal(number)
            assert not rung

    rung: list[int] = []
    numbers = [signal.SIGUSR1, signal.SIGUSR2]
    before = [signal.signal(number, ring) for number in numbers]
    try:
        with pytest.raises(TimeoutError):
            hold_all()
        assert sorted(rung) == numbers
        assert [signal.getsignal(number) for number in numbers] == [ring, ring]
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


def test_what_cannot_be_imported_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tornado.py").write_text("raise RuntimeError('a broken tornado')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("NNILITE_HOME", str(tmp_path / "home"))
    with pytest.raises(NniliteError, match=r"(?s)with exit code 1; its last output:.*a broken tornado"):
        launch.create(from_dict(CONFIG, tmp_path))
    assert registry.entries() == []


PACKAGES = Path(nnilite.__file__).parents[1]
WITHOUT_INSTALLATION = """
import sys
sys.path[:0] = sys.argv[2:]
from pathlib import Path
from nnilite._running import launch
from nnilite.config import from_dict
from nnilite.errors import NniliteError
try:
    launch.create(from_dict(CONFIG, Path(sys.argv[1])))
except NniliteError as error:
    print(error)
"""


def _refusal_of_a_start(tmp_path: Path, *places: Path) -> str:
    """Return what a program says that has these places on `sys.path`, and no other with nnilite."""
    program = WITHOUT_INSTALLATION.replace("CONFIG", repr(CONFIG))
    plugins = [path for path in sys.path if path.endswith(("training_services", "tuners"))]
    libraries = [*plugins, *(path for path in sys.path if path.endswith("site-packages"))]
    python = os.path.realpath(sys.executable)  # that of no virtual environment
    command = [python, "-I", "-c", program, str(tmp_path), *map(str, places), *libraries]
    environment = {"PATH": os.defpath, "NNILITE_HOME": str(tmp_path / "home")}
    return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True).stdout


def test_a_program_that_found_nnilite_by_its_own_path_is_told_what_to_do(tmp_path: Path) -> None:
    words = _refusal_of_a_start(tmp_path, PACKAGES)
    assert "the manager ended at its start with exit code 1" in words
    assert f"nnilite is in {PACKAGES}, where" in words
    assert "set PYTHONPATH to this folder" in words


def test_an_archive_is_not_a_place_to_run_from(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "nnictl.pyz", "w") as archive:
        for file in PACKAGES.glob("nnilite/**/*.py"):
            archive.write(file, file.relative_to(PACKAGES))
    words = _refusal_of_a_start(tmp_path, tmp_path / "nnictl.pyz")
    assert f"nnilite cannot run experiments from within the archive {tmp_path / 'nnictl.pyz'}; install" in words


IN_A_PROGRAM = """
import os, sys
from pathlib import Path
for number in map(int, sys.argv[2:]):
    os.close(number)
from nnilite._running import launch
from nnilite.config import from_dict
entry = launch.create(from_dict(CONFIG, Path(sys.argv[1])), options=launch.ManagerOptions(port=0))
os._exit(0 if entry.alive else 1)
"""


@pytest.mark.parametrize(
    "closed", ["2", "012", *(pytest.param(some, marks=pytest.mark.long) for some in ("01", "02", "12"))]
)
def test_a_program_without_standard_streams_starts_experiments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, closed: str
) -> None:
    monkeypatch.setenv("NNILITE_HOME", str(tmp_path / "home"))
    program = [sys.executable, "-c", f"CONFIG = {CONFIG!r}\n{IN_A_PROGRAM}", str(tmp_path), *closed]
    try:
        assert subprocess.run(program, timeout=60, check=False).returncode == 0
    finally:
        for entry in registry.entries():
            managers.stop(entry)


@pytest.mark.parametrize(
    "closed",
    [
        "2>&-",
        "<&- >&- 2>&-",
        *(pytest.param(some, marks=pytest.mark.long) for some in ("<&-", ">&-", "<&- 2>&-", ">&- 2>&-")),
    ],
)
def test_nnictl_without_standard_streams_starts_experiments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, closed: str
) -> None:
    monkeypatch.setenv("NNILITE_HOME", str(tmp_path / "home"))
    (tmp_path / "config.yml").write_text(json.dumps(CONFIG))
    nnictl = f"{sys.executable} -m nnilite._cli"
    create = f"exec {nnictl} create --config {tmp_path}/config.yml --port 0 {closed}"
    try:
        assert subprocess.run(["bash", "-c", create], timeout=60, check=False).returncode == 0
        assert [entry.alive for entry in registry.entries()] == [True]
    finally:
        for entry in registry.entries():
            managers.stop(entry)


def test_a_log_that_cannot_be_written_is_a_sentence(standing: Standing, tmp_path: Path) -> None:
    _, manager = standing
    (tmp_path / "log").mkdir()
    words = ["--directory", str(tmp_path), "--mode", "create", "--log", str(tmp_path / "log"), "--with-parent"]
    with manager:
        manager.begin(words, detach=False)
        answer = manager.answer()
    assert answer is not None
    assert "Is a directory" in answer["error"]


@pytest.mark.parametrize("fault", ["trialCommand: [", "tuner: {name: TPE, classArgs: {seed: many}}"])
def test_a_config_with_faults_leaves_no_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], fault: str
) -> None:
    monkeypatch.setenv("NNILITE_HOME", str(tmp_path / "home"))
    rest = json.dumps({key: value for key, value in CONFIG.items() if key not in fault})
    (tmp_path / "config.yml").write_text(rest[1:-1].replace(', "', '\n"') + f"\n{fault}")
    before = psutil.Process().children()  # some of other tests, perhaps
    assert run(["create", "--config", str(tmp_path / "config.yml")]) == 1
    assert "config.yml:" in capsys.readouterr().err
    assert [child for child in psutil.Process().children() if child not in before] == []


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="elsewhere a new Python is started")
def test_the_manager_of_nnictl_is_a_copy_of_it_and_is_found_as_such(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NNILITE_HOME", str(tmp_path / "home"))
    (tmp_path / "config.yml").write_text(json.dumps(CONFIG))
    create = [sys.executable, "-m", "nnilite._cli", "create", "--config", f"{tmp_path}/config.yml", "--port", "0"]
    subprocess.run(create, timeout=60, check=True)
    [entry] = registry.entries()
    try:
        assert psutil.Process(entry.pid).cmdline() == create
        assert managers._process(entry) == entry.pid
    finally:
        managers.stop(entry)


def test_a_manager_whose_address_the_disk_does_not_take_is_known_to_its_starter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def make_unwritable(folder: Path) -> None:
        (folder / "manager.json").mkdir()

    monkeypatch.setenv("NNILITE_HOME", str(tmp_path / "home"))
    options = launch.ManagerOptions(port=0)
    entry = launch.create(from_dict(CONFIG, tmp_path), options=options, detach=False, fill=make_unwritable)
    try:
        with Client(entry.url or "", launch.token(entry)) as client:
            assert client.profile()["id"] == entry.id
            assert client.url.endswith(f":{entry.port}")
    finally:
        (entry.directory / "manager.json").rmdir()
        eventually(lambda: registry.find(entry.id).url, 30)
        managers.stop(registry.find(entry.id))


def test_a_manager_without_an_address_yet_is_starting(tmp_path: Path) -> None:
    with pytest.raises(NotRunning, match=r"^The manager of experiment abcd is starting; try again in a moment\.$"):
        managers.connect(RegistryEntry("abcd", "", tmp_path, alive=True, pid=os.getpid()))


@pytest.mark.parametrize("start", [launch.resume, launch.view])
def test_what_to_do_with_a_folder_that_may_only_be_read_is_told(
    start: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: not (path == tmp_path and mode == os.W_OK))
    entry: Any = SimpleNamespace(origin=None, search=None, id="abcd", directory=tmp_path)
    with pytest.raises(NniliteError, match=r"has to write to .*, and you may not; .*`nnictl trial ls abcd`"):
        start(entry)
    assert list(tmp_path.iterdir()) == []
