"""Deletes an experiment: its folder, and what this machine knows of it."""

from __future__ import annotations

from nnilite._experiments import registry
from nnilite._experiments.documents import is_folder
from nnilite._experiments.registry import RegistryEntry
from nnilite._keeper.tree_removal import remove_tree
from nnilite.errors import Conflict, NniliteError


def check_stopped(entry: RegistryEntry, wish: str) -> RegistryEntry:
    """Return the same entry. Raises: Conflict if its experiment is running, which `wish` ("deleted") does not allow."""
    if entry.is_running and not entry.alive:
        raise Conflict(f"{entry.id} is a search that a Python program runs; end that before it is {wish}.")
    if entry.alive:
        raise Conflict(
            f"Experiment {entry.id} {entry.activity}; stop it before it is {wish}: `nnictl stop {entry.id}`."
        )
    return entry


def delete(entry: RegistryEntry) -> None:
    """Delete the folder first: if that fails half-way, the experiment is still listed and can be deleted again.

    Raises: Conflict if it is running; UnreadableFile if its folder does not answer now; NniliteError if that does not
    look like one; OSError.
    """
    check_stopped(entry, "deleted")
    if not is_folder(entry.directory):  # it is gone, or where it is is unknown
        registry.remove(entry.id)
        return
    if entry.directory.is_symlink() or entry.directory.name != entry.id:
        raise NniliteError(
            f"{entry.directory} does not look like the folder of experiment {entry.id}; it is left alone."
        )
    remove_tree(str(entry.directory))
    registry.remove(entry.id)
