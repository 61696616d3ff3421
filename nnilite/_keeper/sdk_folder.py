"""Where trials find `import nnilite` and `import nni`: a folder of their own with just the SDK.

It is unpacked once beside the zipapp, for all trials of this worker; in the attempt's folder where that cannot be
written or is not safe; and in a temporary folder where these have a colon in their names, which PYTHONPATH cannot say.
"""

from __future__ import annotations

import os
import shutil
import stat
import sys
from typing import Dict

from . import BUILD


def place(inner: str) -> str:
    """The folder to put on PYTHONPATH; `inner`: where one can be made for this attempt alone. Raises: OSError."""
    archive = os.path.abspath(sys.argv[0])
    name = ".nnilite-sdk-" + BUILD
    if BUILD and os.path.isfile(archive):
        shared = os.path.join(os.path.dirname(archive), name)
        if os.pathsep not in shared and (_is_ours(shared) or _made(shared)):
            return shared
    own = os.path.join(inner, "sdk")
    if os.pathsep in own:
        return _temporary(name)
    if not os.path.isdir(own):
        _unpack(own)
    return own


def _temporary(name: str) -> str:
    import tempfile

    folder = os.path.join(tempfile.gettempdir(), "{}-{}".format(name, os.geteuid()))
    if BUILD and (_is_ours(folder) or _made(folder)):
        return folder
    own = os.path.join(tempfile.mkdtemp(prefix="nnilite-sdk-"), "sdk")
    _unpack(own)
    return own


def _is_ours(folder: str) -> bool:
    """Whether nobody else could have put something there for us to run."""
    try:
        facts = os.lstat(folder)
    except OSError:
        return False
    return stat.S_ISDIR(facts.st_mode) and facts.st_uid == os.geteuid() and not facts.st_mode & 0o022


def _made(folder: str) -> bool:
    try:
        _unpack(folder)
    except OSError:
        return _is_ours(folder)  # another keeper may have been faster
    return True


def _unpack(folder: str) -> None:
    draft = "{}.{}.new".format(folder, os.getpid())
    try:
        for name, data in _files().items():
            path = os.path.join(draft, *name.split("/"))
            os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
            with open(path, "wb") as file:
                file.write(data)
        os.chmod(draft, 0o700)
        os.rename(draft, folder)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _files() -> Dict[str, bytes]:
    """The SDK's files, from the zipapp that this runs from, or from the source tree."""
    if not BUILD:
        from . import sdk_sources

        return sdk_sources()
    import zipfile

    with zipfile.ZipFile(os.path.abspath(sys.argv[0])) as archive:
        names = [name for name in archive.namelist() if name.startswith("sdk/")]
        return {name[len("sdk/") :]: archive.read(name) for name in names}
