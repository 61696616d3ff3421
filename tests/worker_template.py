"""The process from which workers of a Redis pool are forked: `python worker_template.py FD`. See `forking_template`.

Tests start more than a hundred workers, each of which would import for half a second of processor time.
"""

from __future__ import annotations

import os
import socket
import sys
from typing import NoReturn

import nnilite_redis._command  # noqa: F401 - what `nnictl worker` imports once it has read its command line
from forking_template import Template
from nnilite import _cli
from nnilite._cli import nnictl, worker  # noqa: F401 - the same
from nnilite._side_processes.forked_process import run_in_copy


def begin_worker(files: list[int], words: list[str]) -> NoReturn:
    def run() -> int:
        os.dup2(2, 1)
        sys.argv = ["nnictl", *words]
        return _cli._main()

    [log] = files
    run_in_copy(run, os.open(os.devnull, os.O_RDONLY), log, log)


if __name__ == "__main__":
    Template(socket.socket(fileno=int(sys.argv[1])), begin_worker).serve()
