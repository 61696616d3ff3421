"""The keeper's command line."""

from __future__ import annotations

import os
import sys

from .attempt_run import deliver, run
from .spec import SpecError, load
from .wake import Wake

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Sequence

    from .spec import Spec

USAGE = """usage: keeper.pyz run SPEC.json        run an attempt of a trial (-: the specification comes on stdin)
       keeper.pyz deliver DIR SPEC.json  deliver what a dead keeper has left in DIR
       keeper.pyz serve                  fork keepers for specifications named on stdin
       keeper.pyz fetch ARCHIVE          bring a code package from the shared storage that stdin describes
       keeper.pyz job START.json ...     run an attempt as the bootstrap's instructions say
       keeper.pyz --version
"""
BAD_INPUT = 2


def main(arguments: List[str]) -> int:
    """Run the command. Return the keeper's exit code."""
    _open_streams()
    command, *rest = arguments or [""]
    if command == "run" and len(rest) == 1:
        return _run_with_spec(run, rest[0])
    if command == "deliver" and len(rest) == 2:
        return _deliver(rest[0], rest[1])
    if command == "serve" and not rest:
        from .fork_server import serve

        return serve()
    if command == "fetch" and len(rest) == 1:
        from . import code_fetch

        return code_fetch.main(rest[0])
    if command == "job" and rest:
        from . import job

        return job.run(rest)
    if command == "--version" and not rest:
        return _version()
    sys.stderr.write(USAGE)
    return BAD_INPUT


def become_job(start: Dict[str, Any], place: str, words: Sequence[str]) -> int:
    """Become the keeper in the process of the bootstrap. Return the keeper's exit code."""
    from . import job

    _open_streams()
    return job.attend(start, place, words)


def _run_with_spec(work: Callable[[Spec, Wake], int], source: str) -> int:
    wake = Wake()
    wake.listen()
    try:
        return work(load(source), wake)
    except SpecError as error:
        return _bad(error)


def _deliver(directory: str, source: str) -> int:
    directory = os.path.abspath(directory)
    return _run_with_spec(lambda spec, wake: deliver(spec.but(directory=directory), wake), source)


def _open_streams() -> None:
    """Open closed standard streams on /dev/null: otherwise the next opened files would become these streams."""
    for stream in range(3):
        try:
            os.fstat(stream)
        except OSError:
            os.open(os.devnull, os.O_RDWR)


def _version() -> int:
    from . import BUILD, version

    sys.stdout.write("nnilite keeper {}{}\n".format(version(), BUILD and " " + BUILD))
    return 0


def _bad(error: SpecError) -> int:
    sys.stderr.write("keeper: {}\n".format(error))
    return BAD_INPUT
