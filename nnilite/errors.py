"""Every error that nnilite raises on purpose.

    NniliteError                    catch this one to catch them all
    ├── ConfigError                 the user's input cannot work; says where it is and what would be right
    │   ├── SpaceError              ... in the search space
    │   └── JobRefused              ... in the words of a platform that does not take a job
    ├── CodeDirError                the code directory cannot be packed (too large, unreadable, missing)
    ├── PluginError                 a tuner, assessor or training service is not installed or cannot be imported
    ├── ServiceError                a platform cannot do it now; trying again later may help
    │   └── NoCapacity              ... because nothing is free; the reason is shown on the waiting trial
    ├── TunerError                  the user's tuner or assessor raised, hung or died
    ├── StoreError                  the experiment's database is broken, foreign, locked or on a full disk
    ├── DamagedFile                 a file that nnilite wrote for itself is not as it wrote it
    ├── UnreadableFile              ... cannot be read now, which says nothing about its content
    ├── NotFound                    no such experiment, trial or file
    ├── Conflict                    asked for something that the present state does not allow
    ├── NoMoreTrialError            raised by a tuner: the search space is exhausted (NNI's name)
    └── TrialStopped                raised in the objective of a `Search`: its trial should end now

A message is one or two plain sentences: what is wrong, where, and what would help.
"""

from __future__ import annotations

import errno
import os
import sys
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping


_FULL = (errno.ENOSPC, errno.EDQUOT)
_CURES = {
    **dict.fromkeys(_FULL, "; free some disk space, then try again"),
    errno.EMFILE: "; raise the limit of open files (`ulimit -n`), then try again",
}
_CURES_OF_MANAGER = {
    **dict.fromkeys(_FULL, "; free some disk space"),
    errno.EMFILE: "; raise the limit of open files (`ulimit -n`), then stop and resume the experiment",
}


class NniliteError(Exception):
    """Base of all errors that nnilite raises on purpose."""


class Place(NamedTuple):  # a dataclass would double the time of `nnictl --help`
    """The place of bad input: any part may be unknown. `line` counts from 1; `field` is a dotted path."""

    file: str | None = None
    line: int | None = None
    field: str | None = None

    def __str__(self) -> str:
        where = self.file or ""
        if self.line is not None:
            where += f":{self.line}"
        return ": ".join(part for part in (where, self.field) if part)


class ConfigError(NniliteError):
    """Input that cannot work. `str()` gives `file:line: field: what is wrong; what would be right`.

    So the message does not repeat the field: "must be a whole number".
    """

    def __init__(self, message: str, place: Place | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.place = place or Place()

    def __str__(self) -> str:
        where = str(self.place)
        return f"{where}: {self.message}" if where else self.message


class JobRefused(ConfigError):
    """A platform does not take a job, and has said why.

    It ends the first trial of an experiment. Once the service has taken one, only the platform can have changed: a
    queue was closed, a right withdrawn. That says nothing about parameters, so trials wait with the reason.
    """


class SpaceError(ConfigError):
    """A search space that no tuner could use."""


class CodeDirError(NniliteError):
    """The code directory cannot be packed as it is."""


class PluginError(NniliteError):
    """A plugin is not installed, or importing it failed."""


class ServiceError(NniliteError):
    """A training service cannot do what was asked now; the manager will try again."""


class NoCapacity(ServiceError):
    """Nothing is free for this job at the moment. The message is the reason shown on the waiting trial."""


class TunerError(NniliteError):
    """A tuner or assessor raised, hung or died; the message holds the user's own traceback where there is one."""


class StoreError(NniliteError):
    """The experiment's database cannot be used. `busy`: it may work later (disk full, locked)."""

    def __init__(self, message: str, busy: bool = False) -> None:
        super().__init__(message)
        self.busy = busy


class DamagedFile(NniliteError):
    """A small file of nnilite's own holds what nnilite never writes. The sentence ends with a cure."""

    def __init__(self, path: object, what: str, cure: str) -> None:
        super().__init__(f"{path} is damaged ({what}); {cure}.")


class UnreadableFile(NniliteError):
    """A small file of nnilite's own cannot be read now: the disk fails, or file descriptors or rights are missing."""

    def __init__(self, path: object, what: str | None, cure: str = "") -> None:
        super().__init__(f"{path} cannot be read now ({what}); {cure or 'try again later, or see who may read it'}.")


class NotFound(NniliteError):
    """No such experiment, trial or file."""


class Conflict(NniliteError):
    """What was asked is not possible in the present state."""


class NoMoreTrialError(NniliteError):
    """Raised by a tuner that has no further parameters to propose."""

    def __init__(self, message: str = "Search space fully explored") -> None:
        super().__init__(message)


class TrialStopped(NniliteError):
    """Raised by `report` in an objective that should end now: the assessor, or the time limit, stops its trial."""


def explain_os_error(error: OSError) -> str:
    """Return what the system says, with the file if known, and a cure for a full disk or too many open files."""
    if error.errno == errno.ENOENT and not error.filename and _is_folder_gone():
        return "The current folder is gone; change to another one (`cd`)."
    words = error.strerror or str(error) or type(error).__name__
    place = f"{error.filename}: " if error.filename else ""
    return f"{place}{words}{_CURES.get(error.errno or 0, '')}."


def _is_folder_gone() -> bool:
    try:
        os.getcwd()  # noqa: PTH109  pathlib calls this, too
    except FileNotFoundError:
        return True
    return False


def describe_os_error(error: OSError) -> str:
    """Return what the system says to a manager, which tries again by itself, with the cure for what would stay so."""
    return f"{error.strerror or error}{_CURES_OF_MANAGER.get(error.errno or 0, '')}"


def explain_missing_package(output: str) -> str:
    """Return the cure if a process of this Python did not find nnilite, by its output; "" if that is not so.

    A program finds what it has put on `sys.path` itself, and one that was packed by pex or shiv what is packed there.
    Its processes do not.
    """
    if "No module named 'nnilite" not in output:
        return ""
    folder = __file__.rpartition("/nnilite/")[0]
    return (
        f"nnilite is in {folder}, where {sys.executable} does not look by itself: "
        "set PYTHONPATH to this folder, or install nnilite into a virtual environment and run it from there"
    )


def no_attribute(kind: str, of: object, name: str, words: Mapping[str, str]) -> AttributeError:
    """Return the error of a name that `of` does not have. `words`: what to write here for names of other libraries."""
    meant = words.get(name)
    message = f"{kind} has no attribute {name!r}" + (f"; write {meant}" if meant else "")
    return AttributeError(message, name=name, obj=of)  # with these Python adds the nearest name
