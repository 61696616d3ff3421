"""The pages of the gallery are short, and what they show runs. `test_docs_code` runs the programs of one block, too."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from ddp_example import find_torch, without_compiler

ROOT = Path(__file__).resolve().parents[2]
GALLERY = ROOT / "docs" / "gallery"
MOST_LINES = 60
LIMIT_S = 200

pytestmark = pytest.mark.timeout(400)


def lay_out(page: str, folder: Path) -> list[list[str]]:
    """Write the blocks of a page that have a title to files of that name; the words of its commands."""
    commands = []
    for token in MarkdownIt("commonmark").parse((GALLERY / page).read_text("utf-8")):
        if token.type == "fence":
            if title := re.search(r'title="([^"]+)"', token.info):
                (folder / title[1]).write_text(token.content)
            elif token.info == "sh":
                commands += [shlex.split(line) for line in token.content.splitlines()]
    return commands


def run(words: list[str], folder: Path, path: str = "", statuses: tuple[int, ...] = (0,)) -> str:
    programs = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    env = {**os.environ, "PATH": programs, "NNILITE_HOME": str(folder / "home"), "PYTHONPATH": path}
    ran = subprocess.run(words, cwd=folder, env=env, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert ran.returncode in statuses, ran.stdout + ran.stderr
    return ran.stdout


@pytest.mark.parametrize("page", sorted(GALLERY.glob("*.md")), ids=lambda page: page.stem)
def test_pages_are_short_and_in_the_table(page: Path) -> None:
    assert len(page.read_text("utf-8").splitlines()) <= MOST_LINES
    assert page.stem == "index" or f"({page.name})" in (GALLERY / "index.md").read_text("utf-8")


@pytest.mark.process
def test_a_killed_search_goes_on(tmp_path: Path) -> None:
    killed, again = lay_out("resume-after-a-kill.md", tmp_path)
    assert run(killed, tmp_path, statuses=(-9, 137)) == ""  # versions of timeout differ
    assert re.search(r"^\d trials were there, 10 are now, best \{'x': ", run(again, tmp_path))


@pytest.mark.process
@pytest.mark.long  # six programs import torch; how trials continue others is tested without it
def test_torch_continues_from_its_checkpoints(tmp_path: Path) -> None:
    torch = without_compiler(find_torch())
    (create,) = lay_out("pytorch.md", tmp_path)
    # Each trial imports torch; the fourth or fifth is the first that continues another.
    config = (tmp_path / "config.yaml").read_text()
    (tmp_path / "config.yaml").write_text(config.replace("maxTrialNumber: 8", "maxTrialNumber: 5"))
    out = run([*create, "--json"], tmp_path, path=torch)
    profile = json.loads(out[out.index("{") : out.rindex("}") + 1])
    assert profile["counts"]["SUCCEEDED"] == 5
    # The longer trials of a candidate began where its shorter ones had ended.
    trials = json.loads(run(["nnictl", "trial", "ls", profile["id"], "--json"], tmp_path))
    assert {trial["value"]["first"] for trial in trials} > {0}
