"""Modules that have moved are found by their old names for one version."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

import nnilite
from nnilite import platform_http
from nnilite.services import slots

OLD_NAMES = sorted(path.stem for path in Path(nnilite.__file__).with_name("_old_names").glob("*.py"))


@pytest.mark.parametrize("name", OLD_NAMES)
def test_an_old_name_is_the_same_module_and_warns(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, f"nnilite.{name}", raising=False)
    with pytest.warns(DeprecationWarning, match=f"import nnilite.services.{name}") as warned:
        module = importlib.import_module(f"nnilite.{name}")
    assert module is importlib.import_module(f"nnilite.services.{name}")
    assert warned[0].filename == __file__ or "importlib" in warned[0].filename


def test_the_old_name_of_the_slot_allocator_is_the_same_class() -> None:
    assert slots.SlotDesk is slots.SlotAllocator


def test_the_old_name_of_make_abortable_is_the_same_function() -> None:
    assert platform_http.make_endable is platform_http.make_abortable
