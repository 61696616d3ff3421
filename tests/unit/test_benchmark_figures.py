"""The figures of README and docs come from the file that `make bench` writes, and no page has its own."""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from pathlib import Path

import pytest

from benchmarks import figures
from benchmarks.figures import Figures
from benchmarks.table import Result

ROW = Result("a trial: wall", "14.1 ms", "script: 7 ms", "0.50", "0.5", True)
TABLE = Figures([ROW], "2 processors, Python 3.11.7", "| peers |\n")
_PLACE = re.compile(r"<!-- bench: [^>]* -->.*?<!-- /bench -->", re.DOTALL)
_MEASURED = re.compile(r"\d[\d.,]* (?:ms|µs)\b|\d times (?:the|as)\b")
OTHER_NUMBERS = {
    ("README.md", "600 ms"): "NNI's",
    ("explanation/performance.md", "600 ms"): "NNI's",
    ("how-to/kubernetes.md", "50 ms"): "of a real cluster, which no benchmark has",
    ("how-to/kubernetes.md", "110 ms"): "of a real cluster, which no benchmark has",
    ("how-to/doctor.md", "140 ms"): "what an example prints",
    ("explanation/nothing-is-lost.md", "20 ms"): "what a test does to a disk",
    ("explanation/nothing-is-lost.md", "10 ms"): "what a test does to a disk",
}
"""Numbers that no run of `make bench` can have, and why."""


def test_every_page_shows_what_the_file_says() -> None:
    found = figures.load()
    for path in figures.list_pages():
        page = path.read_text("utf-8")
        assert page == found.filled(page), f"{path.name}: run `python -m benchmarks.figures`"


def test_no_page_has_figures_of_its_own() -> None:
    own = []
    for path in figures.list_pages():
        name = str(path.relative_to(figures.ROOT / "docs")) if path.name != "README.md" else path.name
        # The reports of searches and tuners are made by commands of their own.
        if not name.startswith("reference/tuners/quality/"):
            text = _PLACE.sub("", path.read_text("utf-8"))
            own += [(name, number) for number in _MEASURED.findall(text) if (name, number) not in OTHER_NUMBERS]
    assert own == []


def test_a_place_has_its_column_or_a_table() -> None:
    place = "<!-- bench: {} -->{}<!-- /bench -->"
    page = place.format("ratio of a trial: wall", "old") + place.format("peers", "") + place.format("machine", "x")
    filled = TABLE.filled(page)
    assert place.format("ratio of a trial: wall", "0.50") in filled
    assert place.format("peers", "\n| peers |\n") in filled
    assert place.format("machine", "2 processors, Python 3.11.7") in filled
    assert TABLE.filled(filled) == filled
    assert "| a trial: wall | 14.1 ms |" in TABLE.filled(place.format("all", ""))


@pytest.mark.parametrize("name", ["ratio of a trial: cpu", "met of a trial: wall", "price of a trial: wall", "nothing"])
def test_a_place_without_a_figure_is_refused(name: str) -> None:
    with pytest.raises(LookupError, match=re.escape(name)):
        TABLE.filled(f"<!-- bench: {name} --><!-- /bench -->")


def test_a_run_replaces_the_figures_and_keeps_the_peers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures, "FILE", tmp_path / "figures.json")
    monkeypatch.setattr(figures, "ROOT", tmp_path)
    (tmp_path / "README.md").write_text("<!-- bench: measured of a trial: wall --><!-- /bench -->, µ")
    figures.FILE.write_text(json.dumps({**asdict(TABLE), "rows": []}))
    figures.keep_rows([ROW])
    assert "-->14.1 ms<!-- /bench -->, µ" in (tmp_path / "README.md").read_text("utf-8")
    assert figures.load().peers == TABLE.peers
    assert list(figures.load().rows) == [ROW]
    before = figures.FILE.read_text("utf-8")
    with pytest.raises(LookupError):
        figures.keep_rows([])
    assert figures.FILE.read_text("utf-8") == before
