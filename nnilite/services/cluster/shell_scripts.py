"""The shell scripts that are run where the scheduler's commands are, and the parts of the script of a job.

They are in `_sh`. Those that are run where the scheduler's commands are get the folder of all files as $1, and say what
their other arguments are. Those named `job_` are parts of the script that a node runs (see `job_script`).
"""

from __future__ import annotations

from functools import partial
from pathlib import Path


def read_script(module: str, name: str) -> str:
    """Return a script of the folder `_sh` next to a module. `module`: its `__file__`."""
    return (Path(module).with_name("_sh") / f"{name}.sh").read_text("ascii")


_script = partial(read_script, __file__)

PREPARE = _script("prepare")
UPLOAD = _script("upload")
TAKE_CODE = _script("take_code")
WRITE_SPEC = _script("write_spec")
POLL = _script("poll")
AWAIT_FILE = _script("await_file")
TRY_FOLDERS = _script("try_folders")
TAKE = _script("take")
PIECES = _script("pieces")
FETCH = _script("fetch")
FILES = _script("files")
FILE = _script("file")
CALLBACK = _script("callback")
MARK_CANCELED = _script("mark_canceled")
REMOVE = _script("remove")
FINISH = _script("finish")

JOB_ENTER = _script("job_enter")
JOB_CLAIM = _script("job_claim")
JOB_START = _script("job_start")
