"""The agent as it is sent: texts for any Python 3.8 or later, and bytecode for the version that runs the manager."""

from __future__ import annotations

import importlib.util
import json
import marshal
import os
import subprocess
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("paramiko")

from nnilite_remote._worker import AgentProgram, program
from other_user import STRANGER, known_user

pytestmark = pytest.mark.process

RUN = "import sys;exec(compile(sys.stdin.buffer.read(int(sys.argv[1])),sys.argv[2],sys.argv[2]))"
TELL = b"""import sys
sys.addaudithook(lambda event, about: event == "compile" and print(about[1], file=sys.stderr))
"""


def begin(sent: AgentProgram, folder: Path, **more: str) -> tuple[dict[str, Any], list[str]]:
    """What an agent says first, and the modules of ours that it has compiled."""
    settings = {
        "mode": "serve",
        "nonce": "n",
        "experiment": "e",
        "key": "k",
        "service": "s",
        "keeper": "keeper.pyz",
    } | more
    line = json.dumps({**settings, "directory": str(folder), "files": [], "cache_s": 0}).encode() + b"\n"
    text = TELL + sent.text
    command = [sys.executable, "-I", "-S", "-c", RUN, str(len(text)), "exec"]
    done = subprocess.run(command, input=text + sent.modules + line, capture_output=True, timeout=60, check=True)
    return json.loads(done.stdout), [name for name in done.stderr.decode().split() if name.startswith("nnilite")]


def test_the_managers_version_of_python_compiles_nothing(tmp_path: Path) -> None:
    said, compiled = begin(program(), tmp_path)
    assert said["python"] == sys.version.split()[0]
    assert compiled == []


@pytest.mark.parametrize("asked", [{"mode": "send"}, {"mode": "send_file", "name": "model.bin"}])
def test_the_agent_says_that_what_it_is_asked_for_is_gone(tmp_path: Path, asked: dict[str, str]) -> None:
    said, _ = begin(program(), tmp_path, path=str(tmp_path / "gone"), **asked)
    assert said["missing"] is True


def test_other_versions_compile_the_texts(tmp_path: Path) -> None:
    mine, another = repr(importlib.util.MAGIC_NUMBER).encode(), repr(b"\0\0\r\n").encode()
    said, compiled = begin(AgentProgram(program().text.replace(mine, another), program().modules), tmp_path)
    assert said["nonce"] == "n"
    assert compiled[-1] == "nnilite_remote._worker.main"


def test_a_module_whose_bytecode_is_damaged_here_is_compiled_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = SourceFileLoader.get_code

    def get_code(loader: SourceFileLoader, name: str) -> Any:
        return marshal.loads(b"c") if name.endswith("._worker.agent") else read(loader, name)

    monkeypatch.setattr(SourceFileLoader, "get_code", get_code)
    said, compiled = begin(program.__wrapped__(), tmp_path)
    assert said["nonce"] == "n"
    assert compiled == ["nnilite_remote._worker.agent"]


def test_bytecode_does_not_tell_where_nnilite_is_on_the_managers_machine(tmp_path: Path) -> None:
    before, _, start = program().text.strip().rpartition(b"\n")
    text = before + b"\nprint(" + start.replace(b"()", b".__code__.co_filename)")
    command = [sys.executable, "-I", "-S", "-c", RUN, str(len(text)), "exec"]
    done = subprocess.run(command, input=text + program().modules, capture_output=True, timeout=60, check=True)
    assert done.stdout.split() == [b"nnilite_remote._worker.main"]


def test_a_folder_that_another_user_has_laid_in_its_place_is_refused(tmp_path: Path) -> None:
    stranger = known_user(STRANGER).pw_uid
    tmp_path.chmod(0o1777)
    (tmp_path / "nnilite").mkdir()
    os.chown(tmp_path / "nnilite", stranger, stranger)
    said, _ = begin(program(), tmp_path / "nnilite")
    assert "is another user's, who could replace what trials run: set remoteDirectory" in said["error"]
    assert not list((tmp_path / "nnilite").iterdir())


def test_no_other_user_can_write_to_the_folders_above_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        said, _ = begin(program(), tmp_path / "work/nnilite")
    finally:
        os.umask(before)
    assert said["root"] == str(tmp_path / "work/nnilite")
    assert not (tmp_path / "work").stat().st_mode & 0o022
