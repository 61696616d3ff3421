"""The process from which managers are forked: `python manager_template.py FD`. See `forking_template`.

Tests start hundreds of managers, and what a manager imports takes most of the processor time of its start.
"""

from __future__ import annotations

import socket
import sys
from typing import NoReturn

import nnilite_local  # noqa: F401 - the platform of most tests
from forking_template import Template
from nnilite._manager.__main__ import begin
from nnilite._side_processes.forked_process import run_in_copy


def begin_manager(files: list[int], words: list[str]) -> NoReturn:
    heard, early_words, ready = files
    run_in_copy(lambda: begin([*words, str(ready)]), heard, early_words, ready)


if __name__ == "__main__":
    Template(socket.socket(fileno=int(sys.argv[1])), begin_manager).serve()
