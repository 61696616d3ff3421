"""How the sources of the page are laid out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

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


IMPORT = re.compile(r'(?:^|;)(?:import|export)\b[^;]*?"(\.[^"]+\.js)"', re.MULTILINE)


def modules_of(page: str) -> list[str]:
    """Return the modules that a page needs before it shows anything, those that it imports first in front."""
    app = re.search(r'data-app="([^"]+)"', page)
    found = ["boot.js", app[1] if app else "app.js"]
    for name in found:  # grows meanwhile
        imported = [(WEB / name).parent / other for other in IMPORT.findall((WEB / name).read_text("utf-8"))]
        found += [one for path in imported if (one := str(path.resolve().relative_to(WEB.resolve()))) not in found]
    return list(dict.fromkeys(found))


@pytest.mark.parametrize("name", ["index.html", "hub.html"])
def test_a_page_names_all_modules_that_it_loads_at_its_start(name: str) -> None:
    """So that a browser asks for them at once. Otherwise it finds the next ones in each that has come."""
    page = (WEB / name).read_text("utf-8")
    wanted = "".join(f'    <link rel="modulepreload" href="{one}">\n' for one in modules_of(page))
    assert "".join(re.findall(r'^ *<link rel="modulepreload".*\n', page, re.MULTILINE)) == wanted
