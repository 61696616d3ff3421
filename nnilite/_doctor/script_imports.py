"""Finds which installed modules the script of a trial command imports, as candidates for `preload`."""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from nnilite._keeper.plain_file import open_code_file
from nnilite._keeper.python_command import read_python_command

_OURS = ("nni", "nnilite")
_MOST_BYTES = 1 << 20


def find_imports(command: str, folder: Path) -> list[str]:
    """Return the modules, sorted; nothing where the command starts no script of that folder that can be read.

    Modules of the standard library and of the folder itself are left out.
    """
    found = read_python_command(command, {"PATH": os.defpath})
    if found is None:
        return []
    first, *rest = found.words
    path = folder / (rest[0].replace(".", "/") + ".py" if first == "-m" else first)
    try:
        with open_code_file(path) as file:
            source = file.read(_MOST_BYTES + 1)
        tree = ast.parse(source if len(source) <= _MOST_BYTES else b"")
    except (OSError, ValueError, SyntaxError, RecursionError, MemoryError):
        return []
    return sorted({name for name in _list_modules(tree) if _is_installed(name.partition(".")[0], path.parent)})


def _list_modules(tree: ast.Module) -> Iterator[str]:
    for node in tree.body:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module


def _is_installed(package: str, folder: Path) -> bool:
    is_own = (folder / f"{package}.py").exists() or (folder / package).is_dir()
    return package not in sys.stdlib_module_names and package not in _OURS and not is_own
