"""The shell scripts of Slurm, which are in `_sh`.

Those that run beside the commands of Slurm get the folder of all files as $1, and say what their other arguments are.
Those named `job_` are parts of the script that a node runs (see `_script`).
"""

from __future__ import annotations

from pathlib import Path

_FOLDER = Path(__file__).with_name("_sh")


def _script(name: str) -> str:
    return (_FOLDER / f"{name}.sh").read_text("ascii")


PREPARE = _script("prepare")
UPLOAD = _script("upload")
TAKE_CODE = _script("take_code")
WRITE_SPEC = _script("write_spec")
SUBMIT = _script("submit")
WRITE_TASKS = _script("write_tasks")
POLL = _script("poll")
TRY_FOLDERS = _script("try_folders")
TAKE = _script("take")
PIECES = _script("pieces")
FETCH = _script("fetch")
FILES = _script("files")
FILE = _script("file")
CANCEL = _script("cancel")
CALLBACK = _script("callback")
REMOVE = _script("remove")
FINISH = _script("finish")

JOB_BEGIN = _script("job_begin")
JOB_OF_ARRAY = _script("job_of_array")
JOB_ONCE = _script("job_once")
JOB_START = _script("job_start")
