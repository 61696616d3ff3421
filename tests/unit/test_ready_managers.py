"""A manager that is forked for a test has the same surroundings as one that is started as a process."""

from __future__ import annotations

import os
import re
import subprocess
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from harness.ready_managers import ManagerTemplate
from nnilite._running.manager_process import ManagerProcess, start_standby
from nnilite.testing import eventually

pytestmark = pytest.mark.process


@pytest.fixture
def template() -> Iterator[ManagerTemplate]:
    made = ManagerTemplate()
    yield made
    made.end()


def surroundings(manager: ManagerProcess) -> dict[str, Any]:
    about = Path(f"/proc/{manager._process.pid}")
    files = []
    for one in (about / "fd").iterdir():
        with suppress(FileNotFoundError):  # what is imported is open for a moment
            files.append(re.sub(r"\d{2,}|/memfd.*", "", str(one.readlink())))
    return {
        "folder": (about / "cwd").readlink(),
        "umask": re.findall(r"Umask:\s*(\d+)", (about / "status").read_text()),
        "leads its session": os.getsid(manager._process.pid) == manager._process.pid,
        "files": sorted(files),
    }


def test_a_forked_manager_has_the_surroundings_of_a_started_one(
    template: ManagerTemplate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    template.start_standby().__exit__()  # what the template keeps of earlier ones does not count
    monkeypatch.chdir(tmp_path)
    with template.start_standby() as forked, start_standby() as started:
        eventually(lambda: surroundings(forked) == surroundings(started))


def test_a_forked_manager_says_why_it_cannot_start_and_ends(template: ManagerTemplate, tmp_path: Path) -> None:
    with template.start_standby() as manager:
        manager.begin(["--directory", str(tmp_path / "nothing"), "--mode", "resume"], detach=False)
        assert "cannot be locked" in (manager.answer() or {})["error"]
        assert manager._process.wait(60) == 1
        manager.reap()


def test_a_forked_manager_that_is_not_begun_ends_with_its_context(template: ManagerTemplate) -> None:
    with template.start_standby() as manager:
        pass
    assert manager._process.wait(60) == -9


def test_the_end_of_a_manager_is_still_told_once_no_more_are_wanted(template: ManagerTemplate) -> None:
    with template.start_standby() as manager:
        ending = threading.Thread(target=template.end)
        ending.start()
        eventually(lambda: template._template._channel.fileno() == -1)
    assert manager._process.wait(60) == -9
    ending.join(60)


def test_what_python_reads_at_its_start_is_read_by_a_new_process(
    template: ManagerTemplate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    with template.start_standby() as manager:
        assert isinstance(manager._process, subprocess.Popen)
