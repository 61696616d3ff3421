"""Modules that have moved are found by their old names for one version."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

import pytest

import nnilite
from nnilite import platform_http
from nnilite.services import callback_address, delivery, slots, worker_side
from nnilite.services.batch_service import BatchService

OLD_NAMES = sorted(path.stem for path in Path(nnilite.__file__).with_name("_old_names").glob("*.py"))


@pytest.mark.parametrize("name", OLD_NAMES)
def test_an_old_name_is_the_same_module_and_warns(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, f"nnilite.{name}", raising=False)
    with pytest.warns(DeprecationWarning, match=f"import nnilite.services.{name}") as warned:
        module = importlib.import_module(f"nnilite.{name}")
    assert module is importlib.import_module(f"nnilite.services.{name}")
    assert warned[0].filename == __file__ or "importlib" in warned[0].filename


@pytest.mark.parametrize(
    ("module", "old", "name"),
    [
        (slots, "SlotDesk", "SlotAllocator"),
        (slots, "SlotTrouble", "SlotError"),
        (callback_address, "GivenCallbackAddress", "ExternalCallbackAddress"),
        (delivery, "Deliveries", "DeliveryCache"),
        (worker_side, "NotOrdinary", "NotRegularFile"),
        (worker_side, "SlowFolder", "FolderHangs"),
        (worker_side, "is_laid_by_others", "is_made_by_others"),
        (worker_side, "open_ordinary", "open_regular"),
        (BatchService, "way_back", "job_callback_url"),
        (platform_http, "make_endable", "make_abortable"),
    ],
)
def test_the_old_name_is_the_same_object(module: ModuleType | type, old: str, name: str) -> None:
    assert getattr(module, old) is getattr(module, name)
