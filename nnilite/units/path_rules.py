"""Paths as people write them in YAML: what must be there, and what can only be a mistake."""

from __future__ import annotations

import os
import re
from enum import Enum
from pathlib import Path

__all__ = ["PathRule", "expand_home", "refuse_unfilled"]

_OF_WINDOWS = re.compile(r"[A-Za-z]:[\\/]|\\\\|\.{1,2}\\")
"""The begin of a path of Windows: a drive, a server's name, or a folder relative to this one."""

_UNFILLED = re.compile(r"\$\{[^{}]*\}|\$\w+|%\w+%|\{[^{}]*\}|<[^<>]+>")
"""A variable or a placeholder in a path."""

_LONGEST_NAME = 255
_MOST_NAMES = 10_000


def refuse_unfilled(value: object, base: Path) -> None:
    """Refuse a text with a variable, which nothing replaces, or with a placeholder of an example.

    What is really called so may be used, and what is in such a folder. A Path is used as it is: that of a program, or
    the default, which a shell has made. Raises: ValueError with a sentence.
    """
    text = value if isinstance(value, str) else ""
    for found in _UNFILLED.finditer(text):
        end = text.find("/", found.end())
        if os.path.lexists(base / (text if end < 0 else text[:end])):
            continue
        raise ValueError(f"{text!r} has {found[0]}, which is not replaced here; write the path itself")


def _refuse_odd_path(text: str, base: Path) -> None:
    """Refuse addresses, paths of Windows and the like: a folder would get such a name. Raises: ValueError."""
    if os.path.lexists(base / text):
        return
    if any(len(os.fsencode(name)) > _LONGEST_NAME for name in text.split("/")):
        raise ValueError(f"'{text[:40]}...' has a name of more than {_LONGEST_NAME} bytes; shorten it")
    if re.match(r"\.{1,2}\\", text):
        raise ValueError(f"{text!r} is a path of Windows; write {text.replace(chr(92), '/')!r}")
    if _OF_WINDOWS.match(text):
        raise ValueError(f"{text!r} is a path of Windows; write one of this machine (in WSL, /mnt/d/x for D:\\x)")
    if re.match(r"[a-z][a-z0-9+.-]*://|[\w.-]+@[\w.-]+:", text):
        raise ValueError(f"{text!r} is an address; write the path of a folder or file on this machine")
    # Folders that are there already may have any name.
    new = (base / text).relative_to(next(folder for folder in (base / text).parents if os.path.lexists(folder)))
    if any(sign in str(new) for sign in "\N{LEFT DOUBLE QUOTATION MARK}\N{RIGHT DOUBLE QUOTATION MARK}\n\t"):
        raise ValueError(f"{text!r} has signs that hardly belong to a path; remove quotation marks and line ends")
    if text != text.strip():
        raise ValueError(f"{text!r} has spaces around it; write {text.strip()!r}")


def expand_home(path: str | os.PathLike[str]) -> Path:
    """Return a path with the home folder in place of `~`. Where no such user exists, it stays as it is.

    >>> expand_home("~nobody-here/x")
    PosixPath('~nobody-here/x')
    """
    try:
        return Path(path).expanduser()
    except RuntimeError:
        return Path(path)


def find_home() -> Path | None:
    """Return the home folder; None where HOME is not set, and the system does not know the user, as in containers."""
    home = expand_home("~")
    return home if home.is_absolute() else None


class PathRule(Enum):
    """What must be at a path."""

    FILE = "file"
    DIRECTORY = "directory"
    KEY = "key"  # a file, or a missing one whose public half is there: ssh-agent has the private one
    ANY = "path"  # may be missing

    def resolve(self, value: object, base: Path) -> Path:
        """Return an absolute path, `~` and links resolved, relative to `base`. Raises: ValueError with a sentence."""
        if not isinstance(value, (str, os.PathLike)) or not str(value):
            raise ValueError(f"{value!r} is not a path; write it as text")
        _refuse_odd_path(str(value), base)
        try:
            path = Path(os.path.realpath(base / Path(value).expanduser()))
        except (RuntimeError, ValueError) as error:  # no such user, a null character
            own = str(value).partition("/")[0] == "~"
            why = f"user {os.geteuid()} has no home folder: set HOME, or write the whole path" if own else str(error)
            raise ValueError(f"{str(value)!r} is not a usable path: {why}") from error
        found = path.is_file() or (self is PathRule.KEY and path.with_name(f"{path.name}.pub").is_file())
        if self in (PathRule.FILE, PathRule.KEY) and not found:
            raise ValueError(_describe_missing("file", path))
        if self is PathRule.DIRECTORY and not path.is_dir():
            raise ValueError(_describe_missing("folder", path))
        return path


def _describe_missing(what: str, path: Path) -> str:
    """Return a sentence on a missing file or folder, with the name that was probably meant."""
    if path.exists():
        return f"{str(path)!r} is no {what}"
    import difflib  # a config without a mistake does not wait for it

    try:
        there = [one.name for one in os.scandir(path.parent) if one.is_dir() == (what == "folder")]
    except OSError:
        there = []
    names = {name.lower(): name for name in there[:_MOST_NAMES]}  # other systems know one name in any case
    close = difflib.get_close_matches(path.name.lower(), names, 1, 0.8)
    return f"the {what} {str(path)!r} does not exist" + (f"; did you mean {names[close[0]]!r}?" if close else "")
