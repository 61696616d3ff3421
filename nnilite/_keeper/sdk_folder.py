"""The folder with only the SDK, in which trials find `import nnilite` and `import nni`.

It is unpacked once next to the zipapp, for all trials of this worker. If that place cannot be written or is not safe,
it goes to the attempt's folder, and to a temporary folder if these have a colon in their names, as PYTHONPATH allows
none.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
import zipimport

from nnilite._cpython import importing

from . import BUILD, SDK

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict


_NAME = ".nnilite-sdk-"


def place(inner: str) -> str:
    """Return the folder to put on PYTHONPATH. `inner`: a place for one that only this attempt uses. Raises: OSError."""
    shared = shared_place()
    if shared:
        return shared
    own = os.path.join(inner, "sdk")
    if os.pathsep in own:
        return _temporary()
    if not os.path.isdir(own):
        _unpack(own)
    return own


def shared_place() -> str:
    """Return the folder for all trials of this worker; "" if it cannot be made."""
    archive = os.path.abspath(sys.argv[0])
    shared = os.path.join(os.path.dirname(archive), _NAME + BUILD)
    usable = BUILD and os.path.isfile(archive) and os.pathsep not in shared and (_is_ours(shared) or _made(shared))
    return shared if usable else ""


def _temporary() -> str:
    import tempfile

    folder = os.path.join(tempfile.gettempdir(), "{}{}-{}".format(_NAME, BUILD, os.geteuid()))
    if BUILD and (_is_ours(folder) or _made(folder)):
        return folder
    own = os.path.join(tempfile.mkdtemp(prefix="nnilite-sdk-"), "sdk")
    _unpack(own)
    return own


def _is_ours(folder: str) -> bool:
    """Return whether no other user can have put files there, which this user would then run."""
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
    os.makedirs(draft, mode=0o700)  # fails if it exists: in a folder such as /tmp it may be another user's
    try:
        for name, data in _files().items():
            path = os.path.join(draft, *name.split("/"))
            os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
            with open(path, "wb") as file:
                file.write(data)
        if os.environ.get("PYTHONDONTWRITEBYTECODE"):
            _compile(draft, folder)
        os.chmod(draft, 0o700)
        os.rename(draft, folder)
    except BaseException:
        import shutil

        shutil.rmtree(draft, ignore_errors=True)
        raise


def _compile(draft: str, folder: str) -> None:
    """Write the bytecode of what each trial imports, for this version of Python.

    The user may have forbidden it to trials, which would then compile it each time, for a quarter of a short trial's
    time.
    """
    import marshal

    unchecked = (1).to_bytes(4, "little") + bytes(8)  # no look at the source, which never changes here
    for module in ("nnilite/__init__.py", "nnilite/_cpython.py", "nni/__init__.py"):
        name = os.path.join(*module.split("/"))
        with open(os.path.join(draft, name), "rb") as file:
            code = compile(file.read(), os.path.join(folder, name), "exec", dont_inherit=True)
        target = importing.cache_from_source(os.path.join(draft, name))
        os.makedirs(os.path.dirname(target), mode=0o700, exist_ok=True)
        with open(target, "wb") as file:
            file.write(importing.MAGIC_NUMBER + unchecked + marshal.dumps(code))


def _files() -> Dict[str, bytes]:
    """Return the SDK's files, from the zipapp of this keeper or from the source tree."""
    if not BUILD:
        from . import sdk_sources

        return sdk_sources()
    # `zipfile` would take longer to import than the files take to write.
    archive = os.path.abspath(sys.argv[0])
    try:
        loader = zipimport.zipimporter(archive)
    except ImportError as error:  # what zipimport makes of an OSError, such as too many open files
        raise OSError(errno.EIO, str(error)) from error
    return {name: loader.get_data(os.path.join(archive, *place.split("/"))) for name, place in SDK.items()}
