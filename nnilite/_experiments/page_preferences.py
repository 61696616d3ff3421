"""What a user wants the pages to remember: the columns of each table, and views that have a name.

It is one file for all experiments of a user, `.nnilite/page/memory.json` below the folder of experiments. A browser
could not remember it: each start of a server has an origin of its own. The managers and the hub change it one after the
other, under a lock. Views of a place, such as an experiment, and tables are dropped where there are too many, the one
that was changed first before others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from nnilite._experiments import registry
from nnilite._experiments.documents import as_json, read_document, write_json
from nnilite._experiments.locking import hold
from nnilite._experiments.new_folders import make_own_folder
from nnilite.errors import ConfigError, Conflict, NniliteError, Place
from nnilite.records import Json

VIEWS_MAX = 50
"""Of one place."""
COLUMNS_MAX = 500
"""Of one table."""
NAME_MAX, KEY_MAX, ADDRESS_MAX = 80, 1000, 8000
"""Lengths of texts, in characters."""

_PLACES_MAX = 200
_TABLES_MAX = 100
_MOST_BYTES = 8 << 20
_CURE = "remove it: only the named views and the chosen columns of the pages are lost"


Kept = TypeVar("Kept", list[str], dict[str, str])


@dataclass(frozen=True)
class PagePreferences:
    """`columns`: keys of columns by table. `views`: addresses, as they stand behind the #, by name and place."""

    columns: dict[str, list[str]] = field(default_factory=dict)
    views: dict[str, dict[str, str]] = field(default_factory=dict)


def folder() -> Path:
    """Return the folder of the file and of its lock."""
    return registry.root() / ".nnilite" / "page"


def read() -> PagePreferences:
    """Return what is remembered; nothing where nothing was chosen. Raises: DamagedFile, UnreadableFile."""
    try:
        document = read_document(folder() / "memory.json", _CURE)
    except FileNotFoundError:
        return PagePreferences()
    preferences = PagePreferences()
    for name, part, is_whole in (
        ("columns", preferences.columns, _is_keys),
        ("views", preferences.views, _is_texts),
    ):
        given = document.fields.get(name, {})
        if not isinstance(given, dict) or not all(map(is_whole, given.values())):
            raise document.wrong(name, "an object of chosen columns" if name == "columns" else "an object of views")
        part.update(given)  # of the types that the line above has checked
    return preferences


def _is_keys(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(key, str) for key in value)


def _is_texts(given: Json) -> bool:
    return isinstance(given, dict) and all(isinstance(one, str) for one in given.values())


def keep_columns(table: object, columns: object) -> PagePreferences:
    """Remember the columns of a table; none stands for its usual ones. Raises: ConfigError, Conflict, OSError."""
    key = _check_key(table, "table")
    if not isinstance(columns, list) or len(columns) > COLUMNS_MAX:
        raise ConfigError(f"must be a list of at most {COLUMNS_MAX} columns", Place(field="columns"))
    keys = [_check_key(one, "columns") for one in columns]
    return _change(lambda known: _put_last(known.columns, key, keys, _TABLES_MAX))


def keep_view(place: object, name: object, address: object) -> PagePreferences:
    """Remember a view, or forget it with an empty address. Raises: ConfigError, Conflict, OSError."""
    where, word = _check_line(place, "place", KEY_MAX), _check_line(name, "name", NAME_MAX)
    if not isinstance(address, str) or len(address) > ADDRESS_MAX or not (address.isascii() and _prints(address)):
        raise ConfigError(
            f"must be the part of an address behind its #, of at most {ADDRESS_MAX} characters", Place(field="address")
        )

    def change(known: PagePreferences) -> None:
        views = dict(known.views.get(where, {}))
        if address:
            if word not in views and len(views) >= VIEWS_MAX:
                raise ConfigError(f"there are {VIEWS_MAX} views already; remove one of them first", Place(field="name"))
            views[word] = address
        else:
            views.pop(word, None)
        _put_last(known.views, where, views, _PLACES_MAX)

    return _change(change)


def _change(change: Callable[[PagePreferences], None]) -> PagePreferences:
    directory = folder()
    try:
        make_own_folder(directory)
        with hold(directory / "lock"):
            known = read()
            change(known)
            _shorten(known)
            write_json(directory / "memory.json", _as_content(known))
    except BlockingIOError:
        raise Conflict("another page changes the views at this moment; try again") from None
    except OSError as error:
        raise NniliteError(f"{directory / 'memory.json'} cannot be written: {error.strerror}") from error
    return known


def _as_content(known: PagePreferences) -> dict[str, Json]:
    return {"columns": {**known.columns}, "views": {**known.views}}


def _shorten(known: PagePreferences) -> None:
    """Drop what was changed first while the file would grow too large, which could not be read again."""
    while len(as_json(_as_content(known))) > _MOST_BYTES:
        part: dict[str, list[str]] | dict[str, dict[str, str]] = known.views if len(known.views) > 1 else known.columns
        del part[next(iter(part))]


def _put_last(part: dict[str, Kept], key: str, value: Kept, most: int) -> None:
    """Replace one entry, which becomes the latest; an empty one is dropped, as the oldest of too many are."""
    part.pop(key, None)
    if value:
        part[key] = value
    while len(part) > most:
        del part[next(iter(part))]


def _check_key(text: object, name: str) -> str:
    """Return a text that consists of names of parameters, which may be of any characters."""
    if not isinstance(text, str) or not 1 <= len(text) <= KEY_MAX or _has_half(text):
        raise ConfigError(f"must be a text of 1 to {KEY_MAX} characters", Place(field=name))
    return text


def _check_line(text: object, name: str, most: int) -> str:
    if not isinstance(text, str) or not text.strip() or len(text) > most or not _prints(text):
        raise ConfigError(f"must be one line of 1 to {most} characters", Place(field=name))
    return text.strip()


def _prints(text: str) -> bool:
    return all(ord(letter) >= 32 for letter in text) and not _has_half(text)


def _has_half(text: str) -> bool:
    """Return whether a text has halves of characters, which no file can have."""
    return any(0xD800 <= ord(letter) < 0xE000 for letter in text)
