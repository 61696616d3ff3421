"""The shell scripts that call Slurm, which are in `_sh`. Each has the folder of all files as $1.

Those named `job_` are parts of the script that a node runs (see `_script`).
"""

from __future__ import annotations

from functools import partial

from nnilite.services.cluster import shell_scripts

_script = partial(shell_scripts.read_script, __file__)

SUBMIT = _script("submit")
WRITE_TASKS = _script("write_tasks")
CANCEL = shell_scripts.MARK_CANCELED + _script("ask_to_end")
JOIN = _script("join")
REMOVE = _script("end") + shell_scripts.REMOVE

JOB_OF_ARRAY = _script("job_of_array")
