"""The message about a code directory over the cap: its largest parts, and the lines that leave them out."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath

_LINES = 5
_DOMINATES = 0.8  # a part with this share of its folder is named instead of the folder
_ALIKE = 4  # folders that differ only in their numbers share a line from this many on
_NUMBER = re.compile(r"[0-9]+")


@dataclass(frozen=True)
class Size:
    """A number of files and of bytes: of a tree, or the most that is allowed."""

    files: int = 0
    n_bytes: int = 0

    def __add__(self, other: Size) -> Size:
        return Size(self.files + other.files, self.n_bytes + other.n_bytes)

    def __sub__(self, other: Size) -> Size:
        return Size(self.files - other.files, self.n_bytes - other.n_bytes)

    def is_within(self, cap: Size) -> bool:
        return self.files <= cap.files and self.n_bytes <= cap.n_bytes

    def __str__(self) -> str:
        return f"{self.files:,} files, {megabytes(self.n_bytes)}"


def megabytes(n_bytes: int) -> str:
    """Return "300 MB", "1.5 MB", "12.3 kB"; a MB is 1024 kB, a kB 1024 bytes."""
    number, unit = (n_bytes / 1024**2, "MB") if n_bytes >= 1024**2 / 10 else (n_bytes / 1024, "kB")
    return f"{number:,.1f}".removesuffix(".0") + f" {unit}"


def escape_path(path: str) -> str:
    """Return a path as it can be printed: line ends and bytes that are not characters become escapes."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in path)


class Tree:
    """Sizes of all parts of a tree.

    Files of the root are grouped by ending, as if "/*.png" were a folder, and so are folders side by side that only
    their numbers tell apart: "/runs/run[0-9]*/". A part that begins with "/" is such a group, and a pattern.
    """

    def __init__(self, files: Collection[tuple[str, int]], cap: Size) -> None:
        self._sizes: dict[str, Size] = defaultdict(Size)
        self._inside: dict[str, set[str]] = defaultdict(set)
        self._above: dict[str, str] = {}
        self._cap = cap
        self._groups = _group_numbered(path for path, _ in files)
        for path, n_bytes in files:
            self._add(path, Size(1, n_bytes))
        self.total = self._sizes[""]
        self._over = Size(int(self.total.files > cap.files), int(self.total.n_bytes > cap.n_bytes))

    def _add(self, path: str, size: Size) -> None:
        folder = ""
        for part in self._parts(path):
            self._sizes[folder] += size
            self._inside[folder].add(part)
            self._above[part] = folder
            folder = part
        self._sizes[folder] += size

    def _parts(self, path: str) -> Iterator[str]:
        """Yield the parts of a path: "a/b/c" -> "a/", "a/b/", "a/b/c"; "x.png" -> "/*.png", "x.png"."""
        ending = PurePosixPath(path).suffix
        if ending and "/" not in path:
            yield "/*" + _escape(ending)
        for folder in _folders(path):
            if folder in self._groups:
                yield self._groups[folder]
            yield folder
        yield path

    def _compute_weight(self, part: str) -> float:
        """Return the size in units of the cap, counting only what exceeds it."""
        size = self._sizes[part]
        weight = self._over.files * size.files / max(self._cap.files, 1)
        return weight + self._over.n_bytes * size.n_bytes / max(self._cap.n_bytes, 1)

    def largest(self) -> list[tuple[str, Size]]:
        """Return the parts to leave out, largest first, until the rest fits; at most five. Folders end in "/"."""
        parts: list[tuple[str, Size]] = []
        while self._inside[""] and not self._sizes[""].is_within(self._cap) and len(parts) < _LINES:
            part = self._find_heaviest()
            parts.append((part, self._sizes[part]))
            self._remove(part)
        return parts

    def _find_heaviest(self) -> str:
        part = ""
        while inside := self._inside.get(part):
            best = max(sorted(inside), key=self._compute_weight)
            if part and self._compute_weight(best) < _DOMINATES * self._compute_weight(part):
                break
            part = best
        return part

    def _remove(self, part: str) -> None:
        size = self._sizes[part]
        self._inside[self._above[part]].discard(part)
        while part:
            part = self._above[part]
            self._sizes[part] -= size


def _folders(path: str) -> list[str]:
    """Return the folders on the way to a file: "a/b/c" -> "a/", "a/b/"."""
    names = path.split("/")
    return ["/".join(names[:n]) + "/" for n in range(1, len(names))]


def _group_numbered(paths: Iterable[str]) -> dict[str, str]:
    """Return the groups of folders that only their numbers tell apart: a pattern for each folder in a group.

    A pattern fits no other folder of the same parent.
    """
    beside: dict[str, set[str]] = defaultdict(set)
    for path in paths:
        above = ""
        for folder in _folders(path):
            beside[above].add(folder)
            above = folder
    found: dict[str, str] = {}
    for siblings in beside.values():
        alike: dict[str, list[str]] = defaultdict(list)
        for folder in siblings:
            above, name = _split(folder)
            alike[above + _NUMBER.sub("0", name)].append(folder)
        for folders in alike.values():
            found |= _make_group(folders, siblings) if len(folders) >= _ALIKE else {}
    return found


def _make_group(folders: list[str], siblings: set[str]) -> dict[str, str]:
    above, name = _split(folders[0])
    pieces = _NUMBER.split(name)
    fits = re.compile(re.escape(above) + "[0-9][^/]*".join(map(re.escape, pieces)))
    if any(fits.fullmatch(other) for other in siblings.difference(folders)):
        return {}
    pattern = "/" + _escape(above) + "[0-9]*".join(map(_escape, pieces))
    return dict.fromkeys(folders, pattern)


def _split(folder: str) -> tuple[str, str]:
    """Return the folder above with its "/", and the name with its "/"."""
    above, slash, name = folder[:-1].rpartition("/")
    return above + slash, name + "/"


def ignore_line(part: str) -> str:
    """Return the `.nniignore` line that leaves out `part` and nothing else."""
    return part if part.startswith("/") else "/" + _escape(part)


def _escape(text: str) -> str:
    text = re.sub(r"([\\*?\[])", r"\\\1", text).replace("\n", "?")
    return re.sub(r" +$", lambda spaces: spaces[0].replace(" ", "\\ "), text)


def advice(files: Iterable[tuple[str, int]], cap: Size, root: str) -> str:
    """Return the error's text: how large the tree is, what is largest in it, and which lines would help."""
    tree = Tree([*files], cap)
    parts = tree.largest()
    named = ", ".join(f"{escape_path(part.lstrip('/'))} ({size})" for part, size in parts)
    lines = "\n".join(f"  {ignore_line(part)}" for part, _ in parts)
    root = escape_path(root)
    return (
        f"{root} has {tree.total}: more than the {cap} that may be sent to workers. Largest: {named}. "
        f"Leave out what trials do not need by lines in {root}/.nniignore, such as\n{lines}\n"
        f"or allow more by codeLimits (maxFiles, maxSize)."
    )
