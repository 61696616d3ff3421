"""The figures that README and docs show: one file, which a whole run of `make bench` writes, and their places.

A page shows a figure between comments, which Markdown hides:

    <!-- bench: measured of no-op Python trial, concurrency 2: wall -->14.1 ms<!-- /bench -->

That is the column `measured` of a row of the table. `<!-- bench: all -->` is the whole table, `<!-- bench: peers -->`
that of `benchmarks.peers`. `python -m benchmarks.figures` fills all pages from the file, as each measurement does.
"""

from __future__ import annotations

import json
import os
import platform
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path

from benchmarks.table import Result, show

ROOT = Path(__file__).parents[1]
FILE = Path(__file__).with_name("figures.json")
_PLACE = re.compile(r"(<!-- bench: ([^>]*) -->)(.*?)(<!-- /bench -->)", re.DOTALL)
_COLUMNS = tuple(one.name for one in fields(Result) if one.name not in ("what", "met"))


@dataclass(frozen=True)
class Figures:
    """What was measured: the rows of one whole run, the machine of that run, and the table of peers as Markdown."""

    rows: Sequence[Result] = ()
    machine: str = ""
    peers: str = ""

    def text(self, name: str) -> str:
        """Return what a place shows. Raises: LookupError if the file does not have it."""
        blocks = {"all": show(self.rows), "peers": self.peers.rstrip("\n")}
        if name in blocks:
            return f"\n{blocks[name]}\n"
        if name == "machine":
            return self.machine
        column, _, what = name.partition(" of ")
        found = [getattr(row, column) for row in self.rows if row.what == what and column in _COLUMNS]
        if len(found) != 1 or not found[0]:
            raise LookupError(f"{FILE.name} has no figure {name!r}")
        return str(found[0])

    def filled(self, page: str) -> str:
        """Return a page with its figures. Raises: LookupError for a place that names none."""
        return _PLACE.sub(lambda place: f"{place[1]}{self.text(place[2])}{place[4]}", page)


def load() -> Figures:
    """Read the file. Raises: OSError, ValueError, TypeError."""
    stored = json.loads(FILE.read_text("utf-8"))
    return Figures([Result(**row) for row in stored["rows"]], stored["machine"], stored["peers"])


def save(figures: Figures) -> None:
    """Write the file, and the figures into all pages. Raises: LookupError, and then no page is changed."""
    pages = {path: figures.filled(path.read_text("utf-8")) for path in list_pages()}
    text = json.dumps(asdict(figures), indent=1, ensure_ascii=False)
    FILE.write_text(text + "\n", "utf-8")
    for path, page in pages.items():
        path.write_text(page, "utf-8")


def keep_rows(rows: Sequence[Result]) -> None:
    """Keep the rows of a whole run. Raises: LookupError if a page shows one that is missing."""
    machine = f"{os.cpu_count()} processors, Python {platform.python_version()}"
    save(replace(load(), rows=rows, machine=machine))


def keep_peers(table: str) -> None:
    """Keep the table of peers, as Markdown."""
    save(replace(load(), peers=table))


def list_pages() -> Iterator[Path]:
    """Yield README and all pages of the docs."""
    yield ROOT / "README.md"
    yield from sorted((ROOT / "docs").rglob("*.md"))


if __name__ == "__main__":
    save(load())
