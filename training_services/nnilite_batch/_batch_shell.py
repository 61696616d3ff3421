"""The shell scripts that call a scheduler, which are in `_sh`. Each has the folder of all files as $1, but `programs`.

Those named `job_` are parts of the script that a node runs (see `_batch_script`).
"""

from __future__ import annotations

from functools import partial

from nnilite.services.cluster.shell_scripts import read_script

_script = partial(read_script, __file__)

PROGRAMS = _script("programs")
SUBMIT = _script("submit")
CANCEL = _script("cancel")
RUN = _script("run")

JOB_WATCHED = _script("job_watched")
