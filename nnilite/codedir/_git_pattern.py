"""One pattern of an ignore file, matched as git does.

A pattern comes with a code directory, maybe from another person. So matching needs time in proportion to pattern and
path at most: as a regular expression, `*a*a*a*a*b` takes minutes for a long name, and holds up the whole process. A
pattern is divided at its stars into pieces that each match a fixed number of characters. The first match of a piece is
as good as any later one, since the star behind it takes the rest, so nothing is tried twice.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

_ANY_FOLDERS = "**"
_SLASH = re.compile(r"\\?/")
_POSIX_SET = re.compile(r"\[:([^]]{0,40}):\]")
_POSIX = {
    "alnum": "0-9A-Za-z",
    "alpha": "A-Za-z",
    "blank": r" \t",
    "cntrl": r"\x00-\x1f\x7f",
    "digit": "0-9",
    "graph": r"!-~",
    "lower": "a-z",
    "print": r" -~",
    "punct": r"!-/:-@\[-`{-~",
    "space": r"\t-\r ",
    "upper": "A-Z",
    "xdigit": "0-9A-Fa-f",
}


class NoPattern(ValueError):
    """A text that git does not take for a pattern: it matches nothing."""


@dataclass(frozen=True)
class FixedPart:
    """What stands between two stars: a text, or an expression where it has sets or question marks."""

    length: int  # characters that it matches
    text: str | None
    expression: re.Pattern[str] | None = None

    def is_at(self, name: str, start: int) -> bool:
        if self.expression is None:
            return name.startswith(self.text or "", start)
        return self.expression.match(name, start) is not None

    def find(self, name: str, start: int, end: int) -> int:
        """Return the first place between the two; -1 if there is none."""
        if self.expression is None:
            return name.find(self.text or "", start, end)
        found = self.expression.search(name, start, end)
        return -1 if found is None else found.start()


@dataclass(frozen=True)
class NamePattern:
    """The pattern of one name, without slashes: its pieces, with a star between each two."""

    pieces: tuple[FixedPart, ...]

    def matches(self, name: str) -> bool:
        first, last = self.pieces[0], self.pieces[-1]
        end = len(name) - last.length
        if len(self.pieces) == 1:
            return end == 0 and first.is_at(name, 0)
        if end < first.length or not first.is_at(name, 0) or not last.is_at(name, end):
            return False
        place = first.length
        for piece in self.pieces[1:-1]:
            place = piece.find(name, place, end)
            if place < 0:
                return False
            place += piece.length
        return True


@dataclass(frozen=True)
class PathPattern:
    """A pattern of a path: runs of names, with any number of folders between each two runs."""

    runs: tuple[tuple[NamePattern, ...], ...]
    all_below: bool  # it ends in "/**", which means what is in the folder, but not the folder

    @property
    def plain(self) -> tuple[str, ...] | None:
        """The names of the path, where no part is a wildcard; else None."""
        names = [name.pieces[0].text if len(name.pieces) == 1 else None for run in self.runs for name in run]
        kept = tuple(name for name in names if name is not None)
        return kept if len(self.runs) == 1 and not self.all_below and len(kept) == len(names) else None

    def matches(self, names: Sequence[str]) -> bool:
        first, *others = self.runs
        last = others.pop() if others and not self.all_below else ()
        end = len(names) - (1 if self.all_below else len(last))
        if end < len(first) or not _are_at(first, names, 0):
            return False
        if len(self.runs) == 1 and not self.all_below:
            return end + len(last) == len(first)
        place = len(first)
        for run in others:
            starts = range(place, end - len(run) + 1)
            found = next((start for start in starts if _are_at(run, names, start)), None)
            if found is None:
                return False
            place = found + len(run)
        return self.all_below or _are_at(last, names, end)


def _are_at(run: Sequence[NamePattern], names: Sequence[str], start: int) -> bool:
    return all(pattern.matches(names[start + number]) for number, pattern in enumerate(run))


def read_name(text: str) -> NamePattern:
    """Read a pattern without slashes. Raises: NoPattern."""
    (name,) = _divide(text, at_slashes=False)
    return name if isinstance(name, NamePattern) else NamePattern((_make_piece([]), _make_piece([])))


def read_path(text: str) -> PathPattern:
    """Read a pattern of a path, which begins at the folder of the ignore file. Raises: NoPattern."""
    runs: list[list[NamePattern]] = [[]]
    parts = _divide(text, at_slashes=True)
    for part in parts:
        if isinstance(part, NamePattern):
            runs[-1].append(part)
        else:
            runs.append([])
    all_below = parts[-1] == _ANY_FOLDERS
    if all_below:
        runs.pop()
    return PathPattern(tuple(map(tuple, runs)), all_below)


def _divide(text: str, at_slashes: bool) -> list[NamePattern | str]:
    """Return the patterns of the names in a path, and "**" for any folders."""
    found: list[NamePattern | str] = []
    pieces: list[list[str]] = [[]]
    begin = at = 0
    while at < len(text):
        if at_slashes and (slash := _SLASH.match(text, at)):
            found.append(_make_name(text[begin:at], pieces))
            pieces, begin, at = [[]], slash.end(), slash.end()
        elif text[at] == "*":
            pieces.append([])
            at += 1
        else:
            one, at = _read_one(text, at)
            pieces[-1].append(one)
    return [*found, _make_name(text[begin:], pieces)]


def _make_name(text: str, pieces: list[list[str]]) -> NamePattern | str:
    if len(text) > 1 and not text.strip("*"):
        return _ANY_FOLDERS
    inner = [piece for piece in pieces[1:-1] if piece]
    kept = [pieces[0], *inner, pieces[-1]] if len(pieces) > 1 else pieces
    return NamePattern(tuple(map(_make_piece, kept)))


def _make_piece(parts: list[str]) -> FixedPart:
    """Make a piece of its characters; each is one character, or an expression that matches one."""
    if all(len(part) == 1 for part in parts):
        return FixedPart(len(parts), "".join(parts))
    source = "".join(re.escape(part) if len(part) == 1 else part for part in parts)
    return FixedPart(len(parts), None, re.compile(source, re.DOTALL))


def _read_one(text: str, at: int) -> tuple[str, int]:
    """Return what matches one character at a place, and where the next part begins."""
    if text[at] == "\\":
        if at + 1 == len(text):
            raise NoPattern("it ends in a backslash")
        return text[at + 1], at + 2
    if text[at] == "?":
        return "(?:.)", at + 1
    return _read_set(text, at + 1) if text[at] == "[" else (text[at], at + 1)


def _read_set(text: str, at: int) -> tuple[str, int]:
    """Read a set such as `[!a-z]` after its bracket. Raises: NoPattern if it has no end."""
    negated = text[at : at + 1] in ("!", "^")
    at += negated
    members: list[str] = []
    before = ""
    is_first = True
    while is_first or text[at : at + 1] != "]":
        is_first = False
        if name := _POSIX_SET.match(text, at):
            members.append(_read_posix(name.group(1)))
            before, at = "", name.end()
        elif text[at : at + 1] == "-" and before and text[at + 1 : at + 2] not in ("", "]"):
            until, at = _read_member(text, at + 1)
            members += [f"{re.escape(before)}-{re.escape(until)}"] if before <= until else []
            before = ""
        else:
            before, at = _read_member(text, at)
            members.append(re.escape(before))
    if not members:
        return ("(?:.)" if negated else "(?!.)."), at + 1
    return f"[{'^' if negated else ''}{''.join(members)}]", at + 1


def _read_posix(name: str) -> str:
    if name not in _POSIX:
        raise NoPattern(f"there is no class {name}")
    return _POSIX[name]


def _read_member(text: str, at: int) -> tuple[str, int]:
    at += text[at : at + 1] == "\\"
    if at >= len(text):
        raise NoPattern("a set has no end")
    return text[at], at + 1
