"""Programs that travel as text import nothing of the keeper, and mark their events with the same word."""

from __future__ import annotations

import re
from pathlib import Path

import nnilite_ray
from nnilite._keeper.link import MARK

ROOT = Path(nnilite_ray.__file__).parents[2]
_ASSIGNED = re.compile(r'^_?(?:EVENT|MARK) = "([^"]*)"$', re.MULTILINE)


def test_all_programs_mark_events_with_the_same_word() -> None:
    files = [*(ROOT / "nnilite/_keeper").glob("*.py"), *(ROOT / "training_services").glob("*/_start*.py")]
    found = {
        str(file.relative_to(ROOT)): marks for file in files if (marks := _ASSIGNED.findall(file.read_text("utf-8")))
    }
    assert len(found) >= 6
    assert found == {name: [MARK] for name in found}
