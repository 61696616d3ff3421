"""Reads and writes nnilite's own small files. They are read back as if a stranger had sent them.

    document = read_document(directory / "manager.json", "remove it")
    document.whole("port", 1, 65535)

Each field is checked when it is read, by the forms that REST has, too. A missing field, or null, is None; a value of
another type or outside its bounds raises DamagedFile with the path, the field and the cure. So no caller meets a type
that it does not expect. A file that cannot be read now is not damaged: that raises UnreadableFile.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import reprlib
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from nnilite._experiments.home_folder import explain_home
from nnilite._keeper.plain_file import find_mode
from nnilite.errors import DamagedFile, UnreadableFile
from nnilite.records import Json
from nnilite.records.record_types import TIME_MAX
from nnilite.records.shapes import TEXT, Form, integer, seconds_since_epoch

MOST_BYTES = 64 << 20
"""More than any configuration has. A larger file is not read into memory."""

_TIME = seconds_since_epoch(TIME_MAX)

_LONGEST_PATH, _LONGEST_NAME = 3800, 255
"""In bytes, as Linux has them, with room for the names of the files below."""

_NO_SUCH_NAME = (errno.ENAMETOOLONG, errno.ELOOP)

# Unlike `repr`, it neither copies a large value nor descends into a deep one.
_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = 60


@dataclass(frozen=True)
class Document:
    """The fields of one JSON object, and where it was read."""

    path: Path
    fields: dict[str, Json]
    cure: str

    def text(self, name: str) -> str | None:
        return cast("str | None", self._read(name, TEXT))

    def time(self, name: str) -> float | None:
        """Return the seconds since the epoch in a field."""
        return cast("float | None", self._read(name, _TIME))

    def whole(self, name: str, least: int, most: int) -> int | None:
        return cast("int | None", self._read(name, integer(least, most)))

    def _read(self, name: str, form: Form) -> Json:
        value = self.fields.get(name)
        if value is None or form.read is None:
            return value
        try:
            return form.read(value)
        except ValueError as error:
            raise self._make_damaged(name, str(error)) from None

    def folder(self, name: str) -> Path:
        """Return an absolute path. The field must be there."""
        value = self.text(name)
        if value is None or not value.startswith("/") or not may_be_path(value):
            raise self.wrong(name, "an absolute path")
        return Path(value)

    def wrong(self, name: str, wanted: str) -> DamagedFile:
        """Return the error to raise for a field."""
        return self._make_damaged(name, f"must be {wanted}")

    def _make_damaged(self, name: str, problem: str) -> DamagedFile:
        shown = _SHORT.repr(self.fields.get(name))
        return DamagedFile(self.path, f"`{name}` {problem}, not {shown:.60}", self.cure)


def read_document(path: Path, cure: str) -> Document:
    """Return the JSON object in a file. `cure`: what to do about a damaged one. Raises: as `read_content`."""
    data = read_json_file(path, cure)
    if not isinstance(data, dict):
        raise DamagedFile(path, "it is not a JSON object", cure)
    return Document(path, data, cure)


def list_documents(folder: Path) -> list[Path]:
    """Return the JSON files in a folder; none if there is no folder. Raises: UnreadableFile if that is unknown now."""
    try:
        found = list(folder.iterdir())  # `glob` finds nothing in a folder that cannot be read
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise UnreadableFile(folder, error.strerror) from error
    return [path for path in found if path.name.endswith(".json")]


def read_json_file(path: Path, cure: str) -> Json:
    """Return the JSON in a file. Raises: as `read_content`."""
    content = read_content(path, cure)
    try:
        return json.loads(content.decode("utf-8"))
    except UnicodeDecodeError:
        raise DamagedFile(path, "it is not UTF-8 text", cure) from None
    except ValueError as error:
        raise DamagedFile(path, f"it is not JSON: {error}", cure) from error
    except RecursionError:
        raise DamagedFile(path, "it is nested too deep", cure) from None


def read_content(path: Path, cure: str) -> bytes:
    """Return all bytes of an ordinary file, not of a pipe or device.

    Raises: FileNotFoundError, DamagedFile for what cannot be its content, UnreadableFile where the disk fails.
    """
    try:
        # Without O_NONBLOCK, opening a pipe would wait until another process writes to it.
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            facts = os.fstat(file)
            if not stat.S_ISREG(facts.st_mode):
                raise DamagedFile(path, "it is not a regular file", cure)
            # This is the most memory that is taken before anything is read.
            with os.fdopen(file, "rb", closefd=False) as opened:
                content = opened.read(min(facts.st_size, MOST_BYTES) + 1)
        finally:
            os.close(file)
    except (FileNotFoundError, NotADirectoryError):
        raise FileNotFoundError(path) from None
    except OSError as error:
        raise UnreadableFile(path, error.strerror, explain_home(path)) from error
    if len(content) > MOST_BYTES:
        raise DamagedFile(path, f"it is larger than {MOST_BYTES >> 20} MB", cure)
    return content


def is_folder(path: Path) -> bool:
    """Return whether a folder is at this path. Raises: UnreadableFile where the system does not say."""
    return stat.S_ISDIR(_find_mode(path))


def is_file(path: Path) -> bool:
    """Return whether an ordinary file is at this path. Raises: UnreadableFile where the system does not say."""
    return stat.S_ISREG(_find_mode(path))


def _find_mode(path: Path) -> int:
    try:
        return find_mode(path)
    except ValueError:  # no file has such a name
        return 0
    except OSError as error:
        if error.errno in _NO_SUCH_NAME:
            return 0
        raise UnreadableFile(path, error.strerror, explain_home(path)) from error


def may_be_path(text: str) -> bool:
    """Return whether a text can be the path of a file: without null bytes, lone surrogates and overlong names."""
    try:
        data = os.fsencode(text)
    except UnicodeEncodeError:
        return False
    is_short = len(data) <= _LONGEST_PATH and all(len(name) <= _LONGEST_NAME for name in data.split(b"/"))
    return is_short and b"\0" not in data


def write_content(path: Path, content: bytes) -> None:
    """Replace a file, its owner's alone, in one step: a reader never sees a part of it. Raises: OSError."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with contextlib.suppress(FileNotFoundError):
            if not stat.S_ISREG(draft.lstat().st_mode):
                draft.unlink()  # a folder that came from another person may have a link there
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        with os.fdopen(os.open(draft, flags, 0o600), "wb") as out:
            out.write(content)
        draft.replace(path)
    except OSError as error:  # on a full disk, a part of it may be there
        with contextlib.suppress(OSError):
            draft.unlink()
        error.filename = str(path)  # a failed write does not say of what, and the draft is gone
        raise


def write_json(path: Path, value: Json) -> None:
    """Replace a file by JSON in one step. Raises: OSError."""
    write_content(path, as_json(value))


def as_json(value: Json) -> bytes:
    """Return JSON in the form in which these files are written."""
    return json.dumps(value, indent=2).encode("ascii")
