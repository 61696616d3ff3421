"""Trials that start as forks of the preloader: each program does the same as when it is started afresh."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from preloaded_programs import MODULES, PROGRAMS
from preloader_bench import PARENT, End, Server

pytestmark = pytest.mark.process


class Bench:
    """Runs the same command afresh and preloaded. There is one preloader for each way in which Python is started."""

    def __init__(self, folder: Path) -> None:
        self.code = folder / "code"
        self.code.mkdir()
        self._folder = folder
        self._fresh = Server(folder / "fresh", self.code)
        self._warm: dict[str, Server] = {}

    def close(self) -> None:
        for server in (self._fresh, *self._warm.values()):
            server.__exit__()

    def run(self, start: str, words: str) -> tuple[End, End]:
        if start not in self._warm:
            server = self._warm[start] = Server(self._folder / f"warm{len(self._warm)}", self.code)
            event = server.preload(f"{start} any.py", MODULES)
            assert event["event"] == "preloaded", event
        return self._fresh.run(f"{start} {words}"), self._warm[start].run(f"{start} {words}")


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    bench = Bench(tmp_path_factory.mktemp("preloaded"))
    yield bench
    bench.close()


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_does_the_same_as_when_it_is_started_afresh(bench: Bench, name: str) -> None:
    program = PROGRAMS[name]
    folder = bench.code / program.folder
    folder.mkdir(exist_ok=True)
    (folder / "beside.py").touch()
    script = folder / f"run_{name.replace(' ', '_')}.py"
    script.write_bytes(program.text if program.whole else PARENT.encode() + program.text)
    words = program.words.format(script=script.relative_to(bench.code), module=script.stem)
    fresh, warm = bench.run(program.start.format(python=sys.executable), words)
    assert program.noted in warm.noted
    assert bool(program.noted) == bool(warm.noted)
    assert not fresh.is_preloaded
    assert program.whole or warm.is_preloaded
    assert warm.code == fresh.code
    assert _plain(warm.stderr) == _plain(fresh.stderr)
    assert _plain(warm.stdout) == _plain(fresh.stdout)
    assert (fresh.stdout + fresh.stderr).count("\n") >= program.lines


def _plain(text: str) -> str:
    """A text without the names of the folders of each of the two servers."""
    text = re.sub(r"(fresh|warm\d)/(trials/\d+|\.nnilite-sdk)", r"server/\2", text)
    text = re.sub(r"trials/\d+", "trials/N", text)
    text = re.sub(r"(PYTEST_CURRENT_TEST\b.*?)[^\[ ]*\[.*?\] \((setup|call)\)", r"\1", text)  # where a server began
    text = re.sub(r"nni-e-\d+-0|NNI_TRIAL_JOB_ID(=|', ')\d+", "JOB", text)
    return re.sub(r"0x[0-9a-f]+|started \d+|repeated \d+ more", "N", text)
