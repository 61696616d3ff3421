"""What `.nniignore` files leave out, entry by entry on the way down a tree, as git does it.

pathspec turns each line into a regular expression. Its own evaluation also matches everything below a matched
folder, which makes the well-known `*`, `!*/`, `!*.py` leave out all of it. Here a walk asks about one entry
at a time and never enters a folder that is left out, so a pattern counts only where it matches the entry
itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

FILE_NAME = ".nniignore"


@dataclass(frozen=True)
class _Rule:
    expression: re.Pattern[str]
    leaves_out: bool

    def matches(self, path: str, is_folder: bool) -> bool:
        """Return whether the rule matches a path.

        pathspec marks the slash after a matched folder by the expression's only group.
        """
        whole = self.expression.search(path)
        if whole is not None and whole.lastindex is None:
            return True
        if not is_folder:
            return False
        slash = len(path)
        return any(m.lastindex and m.start(1) == slash for m in self.expression.finditer(path + "/"))


@dataclass(frozen=True)
class IgnoreRules:
    """The rules in force in one folder: those of its ignore file, then those of the folders above."""

    prefix: str  # of the paths that `rules` are about: "" or "folder/"
    rules: tuple[_Rule, ...]  # the last match counts
    outer: IgnoreRules | None = None

    @classmethod
    def parse(cls, lines: Iterable[str], folder: str = "", outer: IgnoreRules | None = None) -> IgnoreRules:
        """Return the rules of an ignore file in `folder` ("" is the root), which win over those of `outer`."""
        from pathspec import GitIgnoreSpec

        patterns = GitIgnoreSpec.from_lines([_rewrite_as_git_reads(line) for line in lines]).patterns
        rules = tuple(_Rule(p.regex, p.include) for p in patterns if p.include is not None and p.regex is not None)
        return cls(f"{folder}/" if folder else "", rules, outer)

    def leave_out(self, path: str, is_folder: bool) -> bool:
        """Return whether the entry at `path` (relative to the root, with "/") is to be left out."""
        own = path[len(self.prefix) :].replace("\n", "\x01")  # "." and "$" treat a line's end in their own way
        for rule in reversed(self.rules):
            if rule.matches(own, is_folder):
                return rule.leaves_out
        return self.outer is not None and self.outer.leave_out(path, is_folder)


def _rewrite_as_git_reads(line: str) -> str:
    """Return the line without what pathspec reads differently from git: a carriage return, and "a/**/".

    For git, "a/**/" means the folders below a but not a itself.
    """
    line = line.rstrip("\r")
    return f"{line}*/" if line.endswith("/**/") else line


def split_lines(text: bytes) -> list[str]:
    """Return the lines of an ignore file; names that are not UTF-8 come as Python's file functions give them."""
    return text.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "surrogateescape").split("\n")
