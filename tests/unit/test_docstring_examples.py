"""The examples in docstrings (`>>>`) give what is written below them."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE_ROOTS = {"nnilite": ROOT, "training_services": ROOT / "training_services", "tuners": ROOT / "tuners"}
MODULES = sorted(
    ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")
    for folder, root in SOURCE_ROOTS.items()
    for path in (ROOT / folder).rglob("*.py")
    if ">>> " in path.read_text("utf-8")
)


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_in_docstrings_are_true(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)  # the examples name folders of this repository
    assert doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS).failed == 0
