"""Finds experiments of nnilite that lie in a folder of experiments, whether the registry has them or not.

A folder may have come from another machine, or the registry is lost. Only a folder that is whole is found: one that is
being made or deleted has no configuration or no database.
"""

from __future__ import annotations

from collections.abc import Container
from pathlib import Path

from nnilite._experiments.documents import is_file, read_document
from nnilite.errors import DamagedFile, UnreadableFile

CONFIG = "config.json"
DATABASE = "nnilite.sqlite"


def listed(root: Path, known: Container[str]) -> list[Path]:
    """Return the folders of experiments in this folder, except those whose names are known."""
    folders = (config.parent for config in root.glob(f"*/{CONFIG}"))
    return [folder for folder in folders if folder.name not in known and is_experiment(folder)]


def is_experiment(folder: Path) -> bool:
    """Return whether this is the folder of an experiment. A link, or one that cannot be examined now, is none."""
    try:
        return not folder.is_symlink() and is_file(folder / CONFIG) and is_file(folder / DATABASE)
    except UnreadableFile:
        return False


def name_and_platform(folder: Path) -> tuple[str, str]:
    """Return what the configuration in the folder says of both, "" for what it does not say."""
    try:
        config = read_document(folder / CONFIG, "").fields
    except (FileNotFoundError, DamagedFile, UnreadableFile):
        return "", ""  # opening the experiment tells what is wrong with the file
    services = config.get("trainingService")
    each = services if isinstance(services, list) else [services]
    platforms = [platform for one in each if isinstance(one, dict) and isinstance(platform := one.get("platform"), str)]
    name = config.get("experimentName")
    return name if isinstance(name, str) else "", ",".join(dict.fromkeys(platforms))
