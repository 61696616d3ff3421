"""What people have written about an experiment: another name, tags, a note. They are in its folder, in `remarks.json`.

Nothing but this file is written, so it does not matter whether a manager runs. Each content has a number, the
`revision`: a change names the revision that it is based on, so that no text is overwritten unseen. One process writes
at a time, the one that serves the page of all experiments.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from nnilite._experiments.documents import read_document, write_json
from nnilite.errors import ConfigError, Conflict, DamagedFile, NotFound, Place, UnreadableFile

FILE_NAME = "remarks.json"
NAME_MAX = 200
TAG_MAX = 40
TAGS_MAX = 20
NOTE_MAX = 20_000

_CURE = "remove it, and the experiment has its first name again and no tags"


@dataclass(frozen=True)
class Remarks:
    """`name` replaces that of the config; "" leaves it. `trouble`: a sentence if the file cannot be read."""

    name: str = ""
    tags: tuple[str, ...] = ()
    note: str = ""
    revision: int = 0
    trouble: str = ""


def checked(name: object, tags: object, note: object) -> Remarks:
    """Return remarks as a person gave them, without surrounding blanks and duplicates.

    Raises: ConfigError with the field.
    """
    if not isinstance(tags, list | tuple) or len(tags) > TAGS_MAX:
        raise ConfigError(f"must be a list of at most {TAGS_MAX} tags", Place(field="tags"))
    words = tuple(dict.fromkeys(_line(tag, "tags", TAG_MAX) for tag in tags))
    if "" in words:
        raise ConfigError("must not have an empty tag", Place(field="tags"))
    if not isinstance(note, str) or len(note) > NOTE_MAX:
        raise ConfigError(f"must be text of at most {NOTE_MAX} characters", Place(field="note"))
    return Remarks(_line(name, "name", NAME_MAX), words, note.strip())


def _line(text: object, field: str, most: int) -> str:
    if not isinstance(text, str) or len(text) > most or any(ord(letter) < 32 for letter in text):
        raise ConfigError(f"must be one line of at most {most} characters", Place(field=field))
    return text.strip()


def read(directory: Path) -> Remarks:
    """Return the remarks in an experiment's folder. If the file cannot be read, only the error is known."""
    try:
        document = read_document(directory / FILE_NAME, _CURE)
        tags = document.fields.get("tags", [])
        try:
            known = checked(document.text("name") or "", tags, document.text("note") or "")
        except ConfigError as error:
            raise document.wrong(error.place.field or "", error.message.removeprefix("must be ")) from None
        revision = document.whole("revision", 0, 2**53) or 0
    except FileNotFoundError:
        return Remarks()
    except (DamagedFile, UnreadableFile) as error:
        return Remarks(trouble=str(error))
    return Remarks(known.name, known.tags, known.note, revision)


def write(directory: Path, remarks: Remarks, based_on: int) -> Remarks:
    """Replace the remarks of revision `based_on`. Return them with their revision.

    Raises: Conflict if there are other ones by now, or they cannot be read; NotFound if the folder is gone; OSError.
    """
    now = read(directory)
    if now.trouble:
        raise Conflict(now.trouble)
    if now.revision != based_on:
        raise Conflict("these remarks have changed in the meantime; load them again before you change them")
    fresh = Remarks(remarks.name, remarks.tags, remarks.note, now.revision + 1)
    content = {"name": fresh.name, "tags": list(fresh.tags), "note": fresh.note, "revision": fresh.revision}
    try:
        write_json(directory / FILE_NAME, content)
    except FileNotFoundError:
        raise NotFound(f"{directory}, the experiment's folder, is gone (deleted, moved or not mounted).") from None
    return fresh
