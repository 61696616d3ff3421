"""What `.nniignore` files leave out, entry by entry on the way down a tree, as git does it.

A walk asks about one entry at a time and never enters a folder that is left out, so a pattern counts only where it
matches the entry itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from nnilite.codedir._git_pattern import NamePattern, NoPattern, PathPattern, read_name, read_path

FILE_NAME = ".nniignore"


@dataclass(frozen=True)
class _Rule:
    pattern: NamePattern | PathPattern
    leaves_out: bool
    only_folders: bool

    def matches(self, names: Sequence[str], is_folder: bool) -> bool:
        """Return whether the rule matches the path with these names."""
        if self.only_folders and not is_folder:
            return False
        if isinstance(self.pattern, NamePattern):
            return self.pattern.matches(names[-1])
        return self.pattern.matches(names)


@dataclass(frozen=True)
class IgnoreRules:
    """The rules in force in one folder: those of its ignore file, then those of the folders above."""

    prefix: str  # of the paths that `rules` are about: "" or "folder/"
    rules: tuple[_Rule, ...]  # the last match counts
    outer: IgnoreRules | None = None

    @classmethod
    def parse(cls, lines: Iterable[str], folder: str = "", outer: IgnoreRules | None = None) -> IgnoreRules:
        """Return the rules of an ignore file in `folder` ("" is the root), which win over those of `outer`."""
        rules = tuple(rule for rule in map(_read_rule, lines) if rule is not None)
        return cls(f"{folder}/" if folder else "", rules, outer)

    def leave_out(self, path: str, is_folder: bool) -> bool:
        """Return whether the entry at `path` (relative to the root, with "/") is to be left out."""
        names = path[len(self.prefix) :].split("/")
        for rule in reversed(self.rules):
            if rule.matches(names, is_folder):
                return rule.leaves_out
        return self.outer is not None and self.outer.leave_out(path, is_folder)


def _read_rule(line: str) -> _Rule | None:
    """Return the rule of a line; None for a comment, and for what is no pattern."""
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
