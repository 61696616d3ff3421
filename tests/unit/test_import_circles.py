"""No two files import each other, not even by way of others: of Python and of the web page."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from nnilite.services.worker_side import sources

ROOT = Path(__file__).resolve().parents[2]
SOURCES = {"nnilite": ROOT, "training_services": ROOT / "training_services", "tuners": ROOT / "tuners"}
WEB = ROOT / "nnilite" / "_web"
JS_IMPORT = re.compile(r'^(?:import|export)\b[^;]*?\bfrom "(\.[^"]+)"|\bimport\("(\.[^"]+)"\)', re.MULTILINE)

Arrows = dict[str, set[str]]


def python_files() -> dict[str, Path]:
    """The files by the names of their modules."""
    found = {}
    for name, root in SOURCES.items():
        for path in (ROOT / name).rglob("*.py"):
            parts = path.relative_to(root).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def statements(node: ast.AST) -> Iterator[ast.Import | ast.ImportFrom]:
    """All imports at run time, those within functions as well. No expression holds one."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.Import, ast.ImportFrom)):
            yield child
        elif isinstance(child, ast.expr):
            continue
        elif not (isinstance(child, ast.If) and is_for_checkers(child.test)):
            yield from statements(child)
        else:
            yield from (found for other in child.orelse for found in statements(ast.Module([other], [])))


def is_for_checkers(test: ast.expr) -> bool:
    return any("TYPE_CHECKING" in (getattr(one, "id", ""), getattr(one, "attr", "")) for one in ast.walk(test))


def imported(statement: ast.Import | ast.ImportFrom, package: str) -> Iterator[str]:
    """The names that may be modules, the longest of each first."""
    if isinstance(statement, ast.Import):
        yield from (alias.name for alias in statement.names)
        return
    base = package.rsplit(".", statement.level - 1)[0] if statement.level else ""
    base = ".".join(filter(None, (base, statement.module)))
    yield from (f"{base}.{alias.name}" for alias in statement.names)


def python_arrows(files: dict[str, Path]) -> Arrows:
    """Who imports whom. A package hands on the names of its modules, so what it imports itself is left out."""
    arrows: Arrows = {}
    for module, path in files.items():
        if path.name == "__init__.py":
            continue
        package = module.rpartition(".")[0]
        tree = ast.parse(path.read_text("utf-8"))
        names = [name for statement in statements(tree) for name in imported(statement, package)]
        arrows[module] = {name if name in files else name.rpartition(".")[0] for name in names} & files.keys()
    return arrows


def web_arrows() -> Arrows:
    arrows: Arrows = {}
    for path in WEB.rglob("*.js"):
        names = [static or later for static, later in JS_IMPORT.findall(path.read_text("utf-8"))]
        arrows[str(path.relative_to(WEB))] = {str((path.parent / name).resolve().relative_to(WEB)) for name in names}
    return arrows


def circles(arrows: Arrows) -> list[list[str]]:
    """Files that reach each other."""
    reached = {file: reach(file, arrows) for file in arrows}
    groups = {tuple(sorted(other for other in reached[file] if file in reached.get(other, ()))) for file in arrows}
    return sorted(list(group) for group in groups if group)


def reach(start: str, arrows: Arrows) -> set[str]:
    found: set[str] = set()
    waiting = [start]
    while waiting:
        new = arrows.get(waiting.pop(), set()) - found
        found |= new
        waiting.extend(new)
    return found


def test_what_runs_on_workers_imports_only_what_is_sent_with_it() -> None:
    sent = list(sources())
    arrows = python_arrows(python_files())
    for place, module in enumerate(sent):
        assert arrows.get(module, set()) <= set(sent[:place]), f"{module}: add to `worker_side`, or import it nowhere"


def test_no_python_files_import_each_other() -> None:
    files = python_files()
    assert len(files) > 500
    assert circles(python_arrows(files)) == []


def test_no_files_of_the_web_page_import_each_other() -> None:
    arrows = web_arrows()
    assert "parts/layout.js" in set().union(*arrows.values())
    assert circles(arrows) == []


@pytest.mark.parametrize(
    ("arrows", "found"),
    [
        ({"a": {"b"}, "b": {"c"}, "c": set()}, []),
        ({"a": {"a"}}, [["a"]]),
        ({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}}, [["b", "c"]]),
    ],
)
def test_circles_are_found(arrows: Arrows, found: list[list[str]]) -> None:
    assert circles(arrows) == found
