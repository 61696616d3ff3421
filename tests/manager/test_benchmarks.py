"""The benchmark of a large experiment writes its database itself: what the tables have gained must not break it."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from nnilite._store.writer import Store


def test_the_large_experiment_can_be_filled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2]))
    scale = importlib.import_module("benchmarks.scale")
    path = tmp_path / "nnilite.sqlite"
    Store.create(path, "abcdef12", 0.0).close()
    scale.fill(path, 3)
    store = Store(path)
    store.open()
    assert len(store.calls(100)) == 4
    assert store.snapshot(maximize=True).best is not None
    store.close()
