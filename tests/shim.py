"""Imports nnilite's `nni` in a test, without a trace of it for other tests."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType

from nnilite._keeper import SHIM


@contextmanager
def nni_modules() -> Iterator[Callable[[str], ModuleType]]:
    """Yields the function that imports a module of `nni`."""
    path, finders, kept = list(sys.path), list(sys.meta_path), _take_out()
    sys.path.insert(0, str(SHIM))
    try:
        yield importlib.import_module
    finally:
        sys.path[:], sys.meta_path[:] = path, finders
        _take_out()
        sys.modules.update(kept)


def _take_out() -> dict[str, ModuleType]:
    names = [name for name in sys.modules if name.partition(".")[0] == "nni"]
    return {name: sys.modules.pop(name) for name in names}
