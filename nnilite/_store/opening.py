"""Opens or makes the database of an experiment's folder."""

from __future__ import annotations

from pathlib import Path

from nnilite._store.writer import FILE_NAME, Store


def open_store(directory: Path, new: bool, now: float) -> Store:
    """Open the experiment's database, or make it if the experiment is new. Raises: StoreError."""
    path = directory / FILE_NAME
    if new:
        return Store.create(path, directory.name, now)
    store = Store(path)
    store.open()
    return store
