"""What the programs of plugins on workers share with the keeper. Python 3.8 and the standard library alone.

Such a program cannot count on nnilite where it runs, so it is sent with the texts of `sources`: there, too, this
module and those below it are then found by their names.
"""

from __future__ import annotations

from pathlib import Path
from typing import Dict

from nnilite._keeper.attempt_files import (
    DELIVERY_S,
    MOST_DELIVERIES,
    TAKEN_CARE_OF,
    AttemptFiles,
    deliver_command,
    end_state,
    fetch_command,
    read_json,
    write_private,
)
from nnilite._keeper.attempt_kill import PATIENCE_S, USUAL_GRACE_S, is_stopped, kill_groups, running_groups
from nnilite._keeper.enclosed import FOLDER, EnclosedFolder, UnsafeName
from nnilite._keeper.folder import WRITER_SUFFIX
from nnilite._keeper.folder_looks import FolderHangs, FolderLook, FolderLooks, LookResult
from nnilite._keeper.folder_owner import is_made_by_others
from nnilite._keeper.plain_file import NotRegularFile, is_folder_there, is_there, open_regular
from nnilite._keeper.process import boot_id, identity, is_running, started_at
from nnilite._keeper.tar_stream import DamagedTar, unpack_checkpoint
from nnilite._keeper.tree_removal import remove_tree
from nnilite._keeper.trials_folder import make_attempt_folder
from nnilite.services._host_use import HostMeter

__all__ = [
    "DELIVERY_S",
    "FOLDER",
    "MOST_DELIVERIES",
    "PATIENCE_S",
    "TAKEN_CARE_OF",
    "USUAL_GRACE_S",
    "WRITER_SUFFIX",
    "AttemptFiles",
    "DamagedTar",
    "EnclosedFolder",
    "FolderHangs",
    "FolderLook",
    "FolderLooks",
    "HostMeter",
    "LookResult",
    "NotRegularFile",
    "UnsafeName",
    "boot_id",
    "deliver_command",
    "end_state",
    "fetch_command",
    "identity",
    "is_folder_there",
    "is_made_by_others",
    "is_running",
    "is_stopped",
    "is_there",
    "kill_groups",
    "make_attempt_folder",
    "open_regular",
    "read_json",
    "remove_tree",
    "running_groups",
    "sources",
    "started_at",
    "unpack_checkpoint",
    "write_private",
]

_MODULES = (
    "_cpython.py",
    "_keeper/plain_file.py",
    "_keeper/tree_removal.py",
    "_keeper/enclosed.py",
    "_keeper/tar_stream.py",
    "_keeper/signals.py",
    "_keeper/folder.py",
    "_keeper/process.py",
    "_keeper/trials_folder.py",
    "_keeper/attempt_files.py",
    "_keeper/folder_looks.py",
    "_keeper/folder_owner.py",
    "_keeper/attempt_kill.py",
    "services/_host_use.py",
    "services/worker_side.py",
    "services/slots.py",
)


def sources() -> Dict[str, str]:
    """Return the texts of these modules by their names, packages with "", each after those that it imports."""
    folder = Path(__file__).parent.parent
    names = {name: name[: -len(".py")].replace("/", ".") for name in _MODULES}
    texts = {"nnilite." + names[name]: (folder / name).read_text(encoding="ascii") for name in _MODULES}
    return dict({"nnilite": "", "nnilite._keeper": "", "nnilite.services": ""}, **texts)


# The old names, which go with version 0.2.
NotOrdinary = NotRegularFile
SlowFolder = FolderHangs
is_laid_by_others = is_made_by_others
open_ordinary = open_regular
