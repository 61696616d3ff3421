"""The trial keeper: runs one attempt of a trial on a worker and tells the manager of it.

It imports nothing of nnilite but its own modules, needs Python 3.8 and the standard library only, and is shipped as
one file:

    python3 -I -S keeper.pyz run SPEC.json          run an attempt; `-` reads the specification from standard input
    python3 -I -S keeper.pyz deliver DIR SPEC.json  deliver what a dead keeper has left, after ending its trial
    python3 -I -S keeper.pyz serve                  fork a keeper for each line {"spec": "/path"} on standard input
    python3 -I -S keeper.pyz --version

SPEC.json holds a secret: mode 0600. Its fields, with defaults where one may leave them out:

    version 1, job, experiment, trial, command, directory (absolute, the attempt's own; made by the keeper)
    attempt 0, sequence 0, platform "local", parameters null (NNI's record)
    callback null (base URL of the manager), token "", callback_ca null (PEM text of its authority)
    callback_file null: a file with the base URL, read again for each try: a manager that moved is found
    report "rest", or "stdout": events are printed as lines `NNILITE_EVENT {json}`
    code null (run in the directory), {"in_place": folder}, {"archive": file} or {"download": hash}
    env {}: added to the trial's environment; null takes a variable away
    grace_s 10: from SIGTERM to SIGKILL; heartbeat_s 10; max_duration_s null
    linger_s 86400: how long to stay after the trial's end until all is delivered
    orphan_s null: the trial is ended when the manager has not been heard of for so long
    max_output_bytes 0: cap of each output file, 0 for none; send_output false: also send output as events
    checkpoint_dir null

Three threads of control: the main thread owns the trial's process, the courier thread talks to the manager, and the
trial itself writes its reports and output straight to files. So each can die or hang without the others' data.
SIGTERM asks for the trial's end, as an answer of the manager can. Exit codes: the trial's own (128 + signal number
as in a shell), 2 for a specification that cannot be used, 3 if another keeper is at work on the attempt, 4 if the
trial could not be started, 5 if the manager had given the attempt up, 6 if an earlier keeper of this attempt died
before its trial ended. `deliver`: 0 if the manager has everything now, 3, 5, or 7 if not.

Without a callback everything stays in the folder (see `folder`), for a service that reads it there.
"""

from __future__ import annotations

import hashlib
import os
import zipfile
from pathlib import Path
from typing import Dict

__all__ = ["BUILD", "SHIM", "build", "sdk_sources"]

BUILD = ""
"""Names the content of the zipapp this runs from; "" outside of one."""

SHIM = Path(__file__).parent / "sdk"
"""The folder to put on sys.path for `import nni`."""

_PACKAGE = Path(__file__).parent
_MAIN = """import sys

from nnilite_keeper.program import main

sys.exit(main(sys.argv[1:]))
"""
_INIT = '''"""The trial keeper."""

BUILD = "{build}"


def version():
    return "{version}"
'''
_EPOCH = (1980, 1, 1, 0, 0, 0)


def build(target: Path) -> Path:
    """Write the zipapp to `target`, the same bytes for the same sources. Returns `target`. Raises: OSError.

    >>> build(Path("/tmp/keeper.pyz"))
    PosixPath('/tmp/keeper.pyz')
    """
    files = {"__main__.py": _MAIN.encode()}
    files.update((f"nnilite_keeper/{path.name}", path.read_bytes()) for path in sorted(_PACKAGE.glob("[a-z]*.py")))
    files.update((f"sdk/{name}", data) for name, data in sdk_sources().items())
    digest = hashlib.sha256()
    for name in sorted(files):
        digest.update(f"{name}\0{len(files[name])}\0".encode() + files[name])
    init = _INIT.format(build=digest.hexdigest()[:16], version=version())
    files["nnilite_keeper/__init__.py"] = init.encode()
    draft = target.with_name(f".{target.name}.{os.getpid()}.new")
    _write(draft, files)
    draft.replace(target)
    return target


def sdk_sources() -> Dict[str, bytes]:
    """The files that trials import, by their path in the folder on PYTHONPATH."""
    nnilite = _PACKAGE.parent
    files = {f"nnilite/{name}": (nnilite / name).read_bytes() for name in ("__init__.py", "_version.py")}
    files.update((path.relative_to(SHIM).as_posix(), path.read_bytes()) for path in sorted(SHIM.rglob("*.py")))
    return files


def version() -> str:
    """nnilite's version."""
    text = (_PACKAGE.parent / "_version.py").read_text(encoding="ascii")
    return text.partition('"')[2].partition('"')[0]


def _write(path: Path, files: Dict[str, bytes]) -> None:
    """Uncompressed: that is read faster, and other versions of zlib cannot make other bytes of it."""
    with open(path, "wb") as stream:
        stream.write(b"#!/usr/bin/env python3\n")
        with zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as archive:
            for name in sorted(files):
                entry = zipfile.ZipInfo(name, _EPOCH)
                entry.external_attr = 0o644 << 16
                archive.writestr(entry, files[name])
