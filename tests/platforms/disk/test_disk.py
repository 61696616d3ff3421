"""The disk in trouble itself: that it bites, where it is told to, and nowhere else."""

from __future__ import annotations

import errno
import subprocess
import sys
import time
from pathlib import Path

import pytest

from nnilite.testing import eventually
from platforms.disk.disk import LOCK, MAKE_FOLDER, OPEN, RENAME, SYNC, TRUNCATE, WRITE, Disk

pytestmark = pytest.mark.real


@pytest.fixture
def there(tmp_path: Path) -> Path:
    """A folder on the disk, with a file of 100 bytes."""
    folder = tmp_path / "it's [here]\n$HOME"
    folder.mkdir()
    (folder / "old").write_bytes(b"-" * 100)
    return folder


@pytest.fixture
def on(disk: Disk, there: Path) -> Disk:
    disk.watch("all", there)
    return disk


def play(disk: Disk, there: Path, code: str) -> str:
    """What a program prints that runs on the disk; an OSError is printed by its name."""
    lines = ["import errno, fcntl, os, sqlite3, sys, time", "try:", *[f"  {line}" for line in code.split("\n")]]
    program = "\n".join([*lines, "except OSError as error:", "  print(errno.errorcode[error.errno])"])
    command = [sys.executable, "-I", "-S", "-c", program]
    done = subprocess.run(command, cwd=there, env=disk.environment(), capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


CALLS = {
    "open('new', 'wb')": OPEN,
    "os.open('new', os.O_RDONLY | os.O_CREAT)": OPEN,
    "os.write(os.open('new', os.O_WRONLY | os.O_CREAT), b'x')": WRITE,
    "os.pwrite(os.open('new', os.O_WRONLY | os.O_CREAT), b'x', 5)": WRITE,
    "os.writev(os.open('new', os.O_WRONLY | os.O_CREAT), [b'x', b'y'])": WRITE,
    "os.fsync(open('old', 'rb+'))": SYNC,
    "os.fdatasync(open('old', 'rb+'))": SYNC,
    "open('old', 'rb+').truncate(200)": TRUNCATE,
    "os.rename('old', 'new')": RENAME,
    "fcntl.flock(open('old'), fcntl.LOCK_EX)": LOCK,
    "os.mkdir('folder')": MAKE_FOLDER,
}


@pytest.mark.parametrize("call", CALLS)
def test_each_call_is_refused_and_goes_through_once_the_disk_is_well(on: Disk, there: Path, call: str) -> None:
    on.refuse("all", CALLS[call], errno.EMFILE if CALLS[call] == OPEN else errno.EIO)
    assert play(on, there, call) == ("EMFILE" if CALLS[call] == OPEN else "EIO")
    assert on.counted("all", CALLS[call]).failed == 1
    on.heal()
    assert play(on, there, f"{call}; print('fine')") == "fine"


def test_files_elsewhere_are_left_alone(on: Disk, there: Path) -> None:
    for operation in CALLS.values():
        on.refuse("all", operation, errno.EIO)
    code = "os.chdir('..')\nos.mkdir('f'); file = open('new', 'wb')\nfile.write(b'x'); os.fsync(file)\nprint('fine')"
    assert play(on, there, code) == "fine"


def test_a_number_of_a_file_that_was_closed_does_not_bring_trouble_to_the_next_one(on: Disk, there: Path) -> None:
    on.refuse("all", WRITE, errno.EIO)
    code = "file = os.open('old', os.O_RDWR)\nos.close(file)\nassert os.pipe()[0] == file\n"
    assert play(on, there, code + "print(os.write(file + 1, b'x'))") == "1"


def test_trouble_begins_and_ends_while_a_program_runs(on: Disk, there: Path) -> None:
    code = (
        "file = open('new', 'wb', buffering=0)\nfor line in sys.stdin:\n"
        "  try: print(file.write(b'x'), flush=True)\n  except OSError as error: print(error.errno, flush=True)"
    )
    command = [sys.executable, "-c", f"import sys\n{code}"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=there, env=on.environment(), **pipes) as program:  # type: ignore[call-overload]

        def ask() -> int:
            program.stdin.write("\n")
            program.stdin.flush()
            return int(program.stdout.readline())

        assert ask() == 1
        on.refuse("all", WRITE, errno.EIO)
        assert ask() == errno.EIO
        on.heal()
        assert ask() == 1
        program.stdin.close()


def test_a_full_disk_takes_what_needs_no_room(on: Disk, there: Path) -> None:
    on.refuse("all", WRITE, errno.ENOSPC)
    assert play(on, there, "open('old', 'rb+').write(b'new text')\nprint('fine')") == "fine"
    assert play(on, there, "file = open('old', 'ab', 0)\nfile.write(b'x')") == "ENOSPC"
    assert (there / "old").read_bytes() == b"new text" + b"-" * 92


def test_a_torn_write_leaves_a_part_of_its_bytes_and_says_so(on: Disk, there: Path) -> None:
    on.refuse("all", WRITE, errno.ENOSPC, torn=True)
    code = "file = open('new', 'wb', buffering=0)\ndone = 0\nfor _ in range(40):\n"
    code += "  try: done += file.write(b'0123456789')\n  except OSError: pass\nprint(done)"
    done = int(play(on, there, code))
    assert 0 < done < 400
    assert (there / "new").stat().st_size == done


@pytest.mark.parametrize("held", [{"delay_s": 600}, {"stall_s": 600, "stall_chance": 1.0}], ids=["delay", "stall"])
def test_a_call_that_is_held_up_goes_on_once_the_disk_is_well(on: Disk, there: Path, held: dict[str, float]) -> None:
    on.slow("all", OPEN, **held)
    command = [sys.executable, "-I", "-S", "-c", "print(open('old').read(1))"]
    with subprocess.Popen(command, cwd=there, env=on.environment(), stdout=subprocess.PIPE, text=True) as program:
        try:
            eventually(lambda: on.counted("all", OPEN).calls)
            on.heal()
            assert program.communicate(timeout=60) == ("-\n", None)
        finally:
            program.kill()


def test_calls_are_delayed_and_held_up(on: Disk, there: Path) -> None:
    on.slow("all", SYNC, delay_s=0.05, stall_s=0.5, stall_chance=0.5)
    begun = time.monotonic()
    play(on, there, "for _ in range(20): os.fsync(open('old', 'rb+'))")
    counted = on.counted("all", SYNC)
    assert 0 < counted.stalled < counted.calls == 20
    assert time.monotonic() - begun > 20 * 0.05 + counted.stalled * 0.5


def test_chances_are_kept_and_zones_told_apart(on: Disk, disk: Disk, there: Path) -> None:
    disk.watch("other", there.parent, "*.log")
    disk.refuse("all", WRITE, errno.EIO, chance=0.25)
    names = ["new", str(there.parent / "x.log")]
    code = f"bad = 0\nfor name in {names}:\n  file = os.open(name, os.O_WRONLY | os.O_CREAT)\n"
    code += "  for _ in range(1000):\n    try: os.write(file, b'x')\n    except OSError: bad += 1\nprint(bad)"
    assert 150 < int(play(disk, there, code)) == disk.counted("all", WRITE).failed < 350
    assert (disk.counted("other", WRITE).calls, disk.counted("other", WRITE).failed) == (1000, 0)


def test_it_lies_under_a_database_and_under_what_a_program_starts(on: Disk, there: Path) -> None:
    code = "db = sqlite3.connect('x.sqlite', isolation_level=None)\ndb.execute('PRAGMA journal_mode = WAL')\n"
    code += "db.execute('PRAGMA synchronous = FULL'); db.execute('CREATE TABLE t (x)')\nprint('fine')"
    assert play(on, there, code) == "fine"
    assert on.counted("all", SYNC).calls >= 2 <= on.counted("all", WRITE).calls
    on.refuse("all", SYNC, errno.EIO)
    insert = "import sqlite3\ntry: sqlite3.connect('x.sqlite').executescript('INSERT INTO t VALUES (1)')\n"
    insert += "except sqlite3.OperationalError as error: print(error)"
    code = f"import subprocess\nsubprocess.run([sys.executable, '-I', '-S', '-c', {insert!r}])"
    assert play(on, there, code) in ("disk I/O error", "fine")
