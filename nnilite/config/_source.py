"""The place of each field of a config in its file."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from nnilite.config._fields import normalize_name
from nnilite.config.secrets import masked_text
from nnilite.errors import Place
from nnilite.space.space_checks import dotted

if TYPE_CHECKING:
    import yaml


class ConfigSource:
    """Finds the lines of fields. `origins` maps places in a converted config to those in the file."""

    def __init__(
        self,
        file: str | None = None,
        root: yaml.Node | None = None,
        origins: Mapping[tuple[str | int, ...], tuple[str | int, ...]] | None = None,
        older_names: Mapping[str, str] | None = None,
        older_places: Mapping[tuple[str | int, ...], tuple[str | int, ...]] | None = None,
    ) -> None:
        self.file = file
        self.root = root
        self.origins = origins or {}
        self._older_names = older_names or {}
        self._older_places = older_places or {}

    def spell(self, sentence: str) -> str:
        """Return a sentence with the names that its fields have in the file, by `older_names`."""
        if not self._older_names:
            return sentence
        names = "|".join(sorted(map(re.escape, self._older_names), key=len, reverse=True))
        return re.sub(rf"(?<![\w.'\"`])({names})(?![\w'\"`])", lambda found: self._older_names[found[1]], sentence)

    def place(self, path: tuple[str | int, ...]) -> Place:
        """Return the place of a field, or of the nearest field around it."""
        path = self._origin(path if path in self.origins else self.older_place(path))
        line = _line(self.root, path) if self.root is not None else None
        return Place(self.file, line, masked_text(dotted(path)) or None)

    def is_repeated(self, path: Sequence[str | int]) -> bool:
        """Return whether an alias (`*name`) elsewhere in the file stands for the field, or for a part of it."""
        found = self._find(path)
        if found is None or self.root is None:
            return False
        inside, everywhere = _count_uses(found), _count_uses(self.root)
        return any(everywhere[node] > inside[node] for node in inside)

    def is_given(self, path: Sequence[str | int]) -> bool:
        """Return whether the file names the field, perhaps without a value."""
        return self._find(path) is not None

    def _find(self, path: Sequence[str | int]) -> yaml.Node | None:
        found = self.root
        for part in path:
            entry = _entry(found, part) if found is not None else None
            found = entry and entry[1]
        return found

    def older_place(self, path: tuple[str | int, ...]) -> tuple[str | int, ...]:
        """Return where an older file would have a field that it has not set; for other files the path itself."""
        return self._older_places.get(path, path)

    def note_move(self, old: tuple[str | int, ...], new: tuple[str | int, ...]) -> None:
        """Note that a section is read as another one, so that places in that are those of this one in the file."""
        below = {(*new, *path[len(old) :]): place for path, place in self.origins.items() if path[: len(old)] == old}
        self.origins = {**self.origins, new: old, **below}

    def has_section_of(self, path: tuple[str | int, ...]) -> bool:
        """Return whether the field, or a section around it, has a place of its own in an older file.

        What follows from the name of the platform alone has none.
        """
        around = (path[:length] for length in range(len(path), 0, -1))
        nearest = next((self.origins[one] for one in around if one in self.origins), None)
        return nearest not in (None, ("trainingServicePlatform",))

    def _origin(self, path: tuple[str | int, ...]) -> tuple[str | int, ...]:
        for length in range(len(path), 0, -1):
            if path[:length] in self.origins:
                return self.origins[path[:length]] + path[length:]
        return path


def _line(node: yaml.Node, path: Sequence[str | int]) -> int:
    line = int(node.start_mark.line) + 1
    for part in path:
        found = _entry(node, part)
        if found is None:
            break
        key, node = found
        line = int(key.start_mark.line) + 1
    return line


def _count_uses(root: yaml.Node) -> Counter[int]:
    """Return how often each node below a root, and the root itself, is used there, by its id."""
    uses, waiting, seen = Counter({id(root): 1}), [root], set()
    while waiting:
        node = waiting.pop()
        if id(node) in seen or not isinstance(node.value, list):
            continue
        seen.add(id(node))
        # A mapping has pairs of nodes, a sequence nodes.
        parts = [part for item in node.value for part in (item if isinstance(item, tuple) else (item,))]
        uses.update(map(id, parts))
        waiting += parts
    return uses


def _entry(node: yaml.Node, part: str | int) -> tuple[yaml.Node, yaml.Node] | None:
    from yaml import MappingNode, SequenceNode  # already imported wherever there are nodes

    if isinstance(node, SequenceNode) and isinstance(part, int) and part < len(node.value):
        return node.value[part], node.value[part]
    if isinstance(node, MappingNode):
        exact = [pair for pair in node.value if pair[0].value == part]
        alike = [pair for pair in node.value if normalize_name(str(pair[0].value)) == normalize_name(str(part))]
        pairs: list[tuple[yaml.Node, yaml.Node]] = exact or alike
        return pairs[0] if pairs else None
    return None
