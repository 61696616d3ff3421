"""Finds out what `className` was meant to be, from the files of the folder where the class should be."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from nnilite._keeper.plain_file import open_code_file
from nnilite.config._command_hints import parse_program
from nnilite.config.secrets import masked_text

_MOST_FILES = 200
_MOST_BYTES = 500_000


def explain_class(class_name: str, folder: Path) -> str:
    """Return why `class_name` is not the `module.Class` of a class in the folder; "" if it may be one."""
    module, _, name = class_name.rpartition(".")
    shown = masked_text(class_name)
    if name == "py":
        found = _list_classes(folder / class_name)
        return f"{shown!r} is a file; write {Path(class_name).stem}.{found[0] if found else 'CLASS'}"
    parts = module.split(".")
    if not module or not name.isidentifier() or not all(re.fullmatch(r"[\w-]+", part) for part in parts):
        home = next((path.stem for path in _find_files(folder) if class_name in _list_classes(path)), None)
        return f"{shown!r} is not of the form module.Class" + (f"; write {home}.{shown}" if home else "")
    return ""


def explain_missing_class(class_name: str, folder: Path) -> str:
    """Return why there is no such class in its module, which exists; "" if that is only known when it is imported."""
    module, _, name = class_name.rpartition(".")
    path = folder.joinpath(*module.split(".")).with_suffix(".py")
    tree = _parse(path)
    names = set() if tree is None else set(_list_names(tree))
    # With these two, a module may have any name.
    if tree is None or names & {name, "*", "__getattr__"}:
        return ""
    classes = [node.name for node in tree.body if isinstance(node, ast.ClassDef)]
    others = f"; its classes are {', '.join(classes[:10])}" if classes else "; it has none"
    return f"there is no class {name!r} in {str(path)!r}{others}"


def _find_files(folder: Path) -> list[Path]:
    try:
        return sorted(folder.glob("*.py"))[:_MOST_FILES]
    except OSError:
        return []


def _list_classes(path: Path) -> list[str]:
    tree = _parse(path)
    return [] if tree is None else [node.name for node in tree.body if isinstance(node, ast.ClassDef)]


def _parse(path: Path) -> ast.Module | None:
    try:
        with open_code_file(path) as file:
            source = file.read(_MOST_BYTES + 1)
        return parse_program(source) if len(source) <= _MOST_BYTES else None
    except (OSError, ValueError, SyntaxError, RecursionError, MemoryError):
        return None


def _list_names(tree: ast.Module) -> Iterator[str]:
    """Yield all names that a module may have, and "*" where it takes those of another one."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
            yield node.name
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            yield from ((one.asname or one.name).partition(".")[0] for one in node.names)
        elif isinstance(node, ast.Name):
            yield node.id
