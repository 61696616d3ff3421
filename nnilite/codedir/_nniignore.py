"""What `.nniignore` files leave out, entry by entry on the way down a tree, as git does it.

A walk asks about one entry at a time and never enters a folder that is left out, so a pattern counts only where it
matches the entry itself. Most patterns are a name, a path, or have one star at an end: these are looked up, and only
the others are tried one after the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from nnilite.codedir._git_pattern import NamePattern, NoPattern, PathPattern, read_name, read_path

FILE_NAME = ".nniignore"


@dataclass(frozen=True)
class _Rule:
    pattern: NamePattern | PathPattern
    leaves_out: bool
    only_folders: bool

    @cached_property
    def key(self) -> _RuleKey | None:
        """What the rule is looked up by; None for one that has to be tried."""
        if isinstance(self.pattern, PathPattern):
            names = self.pattern.plain
            return None if names is None else _RuleKey("path", names)
        texts = [piece.text for piece in self.pattern.pieces]
        match texts:
            case [str(name)]:
                return _RuleKey("name", name)
            case ["", str(end)]:
                return _RuleKey("end", end)
            case [str(begin), ""]:
                return _RuleKey("begin", begin)
        return None

    def matches(self, names: Sequence[str], is_folder: bool) -> bool:
        """Return whether the rule matches the path with these names."""
        if self.only_folders and not is_folder:
            return False
        if isinstance(self.pattern, NamePattern):
            return self.pattern.matches(names[-1])
        return self.pattern.matches(names)


class _RuleKey(NamedTuple):
    kind: str
    text: str | tuple[str, ...]


class _RuleIndex:
    """The places of rules in their list, by what can be looked up."""

    def __init__(self, rules: Sequence[_Rule]) -> None:
        self.tried: list[int] = []
        self._last: dict[_RuleKey, int] = {}
        self._last_for_files: dict[_RuleKey, int] = {}
        for place, rule in enumerate(rules):
            if rule.key is None:
                self.tried.append(place)
            else:
                self._last[rule.key] = place
                if not rule.only_folders:
                    self._last_for_files[rule.key] = place
        self._begins = {len(key.text) for key in self._last if key.kind == "begin"}
        self._ends = {len(key.text) for key in self._last if key.kind == "end"}

    def find_last(self, names: Sequence[str], is_folder: bool) -> int:
        """Return the place of the last rule that is found by its text; -1 if there is none."""
        name, last = names[-1], self._last if is_folder else self._last_for_files
        keys = [_RuleKey("name", name), _RuleKey("path", tuple(names))]
        keys += [_RuleKey("begin", name[:size]) for size in self._begins if size <= len(name)]
        keys += [_RuleKey("end", name[len(name) - size :]) for size in self._ends if size <= len(name)]
        return max(last.get(key, -1) for key in keys)


@dataclass(frozen=True)
class IgnoreRules:
    """The rules in force in one folder: those of its ignore file, then those of the folders above."""

    prefix: str  # prefix of the paths to which `rules` apply: "" or "folder/"
    rules: tuple[_Rule, ...]  # the last match counts
    outer: IgnoreRules | None = None

    @cached_property
    def _index(self) -> _RuleIndex:
        return _RuleIndex(self.rules)

    @property
    def tried(self) -> int:
        """The number of rules that have to be tried one after the other."""
        return len(self._index.tried)

    @classmethod
    def parse(cls, lines: Iterable[str], folder: str = "", outer: IgnoreRules | None = None) -> IgnoreRules:
        """Return the rules of an ignore file in `folder` ("" is the root), which win over those of `outer`."""
        rules = tuple(rule for rule in map(_read_rule, lines) if rule is not None)
        return cls(f"{folder}/" if folder else "", rules, outer)

    def leave_out(self, path: str, is_folder: bool) -> bool:
        """Return whether the entry at `path` (relative to the root, with "/") is to be left out."""
        names = path[len(self.prefix) :].split("/")
        found = self._index.find_last(names, is_folder)
        for place in reversed(self._index.tried):
            if place < found:
                break
            if self.rules[place].matches(names, is_folder):
                found = place
                break
        if found >= 0:
            return self.rules[found].leaves_out
        return self.outer is not None and self.outer.leave_out(path, is_folder)


def _read_rule(line: str) -> _Rule | None:
    """Return the rule of a line; None for a comment, and for what is not a pattern."""
    text = "" if line.startswith("#") else _without_end(line.removesuffix("\r"))
    leaves_out = not text.startswith("!")
    text = text if leaves_out else text[1:]
    only_folders = text.endswith("/")
    text = text[:-1] if only_folders else text
    try:
        pattern = read_path(text.removeprefix("/")) if "/" in text else read_name(text)
    except NoPattern:
        return None
    return _Rule(pattern, leaves_out, only_folders) if text else None


def _without_end(line: str) -> str:
    """Return a line without the spaces at its end; those after a backslash are meant."""
    kept = line.rstrip(" ")
    backslashes = len(kept) - len(kept.rstrip("\\"))
    return kept + " " if backslashes % 2 and kept != line else kept


def split_lines(text: bytes) -> list[str]:
    """Return the lines of an ignore file; names that are not UTF-8 come as Python's file functions give them."""
    return text.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "surrogateescape").split("\n")
