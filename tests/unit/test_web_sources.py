"""How the sources of the page are laid out."""

from __future__ import annotations

import re
from pathlib import Path

WEB = Path(__file__).parents[2] / "nnilite" / "_web"
MOST = 200  # characters of a line of markup, which the formatter leaves alone


def test_no_line_of_the_page_is_too_long_to_read() -> None:
    modules = [path for path in WEB.rglob("*.js") if "vendor" not in path.parts]
    assert len(modules) > 50
    found = [
        (path.name, line[:60]) for path in modules for line in path.read_text("utf-8").splitlines() if len(line) > MOST
    ]
    assert found == []


def test_a_colour_of_the_page_is_defined_once() -> None:
    names = re.findall(r"^ +(--[\w-]+):", (WEB / "style" / "base.css").read_text("utf-8"), re.MULTILINE)
    assert len(names) > 30
    assert sorted(names) == sorted(set(names))
