"""YAML from any source: it is refused before it uses much memory or time.

An alias (`*name`) costs three bytes and stands for everything below its anchor, so a small file can stand for billions
of values. Each alias counts as many values as it stands for, and the count is checked while the text is read, before
anything is made of it. Ordinary anchors and merges (`<<: *name`) stay far below the limits.
"""

from __future__ import annotations

import codecs
import re
from pathlib import Path
from typing import Any

import yaml

from nnilite.errors import ConfigError, Place
from nnilite.services.keeper_events import MAX_DEPTH, MAX_DIGITS

__all__ = ["MOST_BYTES", "MOST_VALUES", "BoundedLoader", "TooMuchYaml", "load_yaml", "read_text"]

MOST_VALUES = 100_000
"""So many values may be in a document, those that its aliases repeat included. More can be read from JSON."""

MOST_BYTES = 256 << 20
"""No longer text is taken into memory."""
_PIECE_BYTES = 1 << 20

_TAG = "tag:yaml.org,2002:"
_JSON_TAGS = {None, *(_TAG + name for name in ("null", "bool", "int", "float", "str", "seq", "map"))}
_NUMBERS = (_TAG + "int", _TAG + "float")


class TooMuchYaml(yaml.MarkedYAMLError):
    """A document that is larger or deeper than the limits, or contains itself."""

    def __init__(self, problem: str, mark: Any) -> None:
        super().__init__(problem=problem, problem_mark=mark)
        self.line = int(mark.line) + 1


def _without_base_60(tag: str, rule: re.Pattern[str]) -> tuple[str, re.Pattern[str]]:
    return tag, re.compile(f"(?!.*:){rule.pattern}", re.VERBOSE) if tag in _NUMBERS else rule


class BoundedLoader(yaml.SafeLoader):
    """Loads YAML 1.1 within the limits, and only what JSON has, too: no dates, sets or bytes.

    1:30 is a text here; YAML 1.1 reads it as 90, a number in base 60.
    """

    def __init__(self, stream: Any) -> None:
        super().__init__(stream)
        self._values = 0  # read so far, each alias as the value that it refers to
        self._level = 0  # depth of the node being read
        self._deepest = 0  # the deepest level so far, within that node
        # By the id of a node: how many values it has, and how many levels below it.
        self._anchored: dict[int, tuple[int, int]] = {}

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """Compose a node, and count it. Raises: TooMuchYaml, yaml.YAMLError."""
        event: Any = self.peek_event()  # type: ignore[no-untyped-call]
        before, deepest = self._values, self._deepest
        self._level += 1
        if isinstance(event, yaml.AliasEvent):
            node = super().compose_node(parent, index)
            if id(node) not in self._anchored:
                raise TooMuchYaml("contains itself", event.start_mark)
            values, levels = self._anchored[id(node)]
            self._count(values, self._level + levels, event)
        else:
            self._deepest = 0
            self._count(1, self._level, event)
            node = super().compose_node(parent, index)
            if event.anchor is not None:
                self._anchored[id(node)] = (self._values - before, self._deepest - self._level)
        self._deepest = max(deepest, self._deepest)
        self._level -= 1
        return node

    def _count(self, values: int, level: int, event: Any) -> None:
        self._values += values
        self._deepest = max(self._deepest, level)
        if level > MAX_DEPTH:
            raise TooMuchYaml(f"is nested too deep: at most {MAX_DEPTH} levels are read", event.start_mark)
        if self._values <= MOST_VALUES:
            return
        if isinstance(event, yaml.AliasEvent):
            problem = (
                f"stands for more than {MOST_VALUES:,} values, since *{event.anchor} repeats what has aliases itself"
            )
            raise TooMuchYaml(f"{problem}; write out fewer of them", event.start_mark)
        problem = f"has more than {MOST_VALUES:,} values; write large values as JSON"
        raise TooMuchYaml(f"{problem}, a search space in a file of its own (searchSpaceFile)", event.start_mark)

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        """Make the value of a node. Raises: yaml.YAMLError, also for a value that does not fit its tag."""
        # A number is computed in a time that grows with the square of its length.
        if node.tag in _NUMBERS and len(node.value) > MAX_DIGITS:
            problem = f"a number has more than {MAX_DIGITS} digits"
            raise yaml.constructor.ConstructorError(problem=problem, problem_mark=node.start_mark)
        try:
            return super().construct_object(node, deep)
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            problem = f"the value does not fit its tag {str(node.tag).replace(_TAG, '!!')!r:.60}"
            raise yaml.constructor.ConstructorError(problem=problem, problem_mark=node.start_mark) from error


BoundedLoader.yaml_implicit_resolvers = {
    first: [_without_base_60(*rule) for rule in rules if rule[0] in _JSON_TAGS or rule[0] == _TAG + "merge"]
    for first, rules in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
BoundedLoader.yaml_constructors = {
    tag: construct for tag, construct in yaml.SafeLoader.yaml_constructors.items() if tag in _JSON_TAGS
}


def read_text(path: Path) -> str:
    """Return the text of a user's file. Raises: ConfigError."""
    place = Place(str(path))
    content = bytearray()
    try:
        with path.open("rb") as file:
            # One call for all would ask for memory of the largest size, which a limit (`ulimit -v`) may refuse.
            while len(content) <= MOST_BYTES and (piece := file.read(_PIECE_BYTES)):
                content += piece
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot be read: {getattr(error, 'strerror', None) or error}", place) from error
    if len(content) > MOST_BYTES:
        raise ConfigError(f"is larger than {MOST_BYTES >> 20} MB; is it the right file?", place)
    try:
        # PowerShell's `>` writes UTF-16, which these two bytes say.
        return content.decode(
            "utf-16" if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else "utf-8-sig"
        )
    except UnicodeDecodeError as error:
        place = Place(str(path), content.count(b"\n", 0, error.start) + 1)
        raise ConfigError(
            f"is not text in UTF-8 (byte {error.start}); save it as UTF-8 in your editor", place
        ) from error


def load_yaml(path: Path) -> Any:
    """Return the content of a YAML file. Raises: ConfigError with the line.

    Example: `job = load_yaml(Path("job.yaml"))`
    """
    text = read_text(path)
    try:
        return yaml.load(text, Loader=BoundedLoader)
    except TooMuchYaml as error:
        raise ConfigError(str(error.problem), Place(str(path), error.line)) from error
    except yaml.MarkedYAMLError as error:
        problem = " ".join(part for part in (error.context, error.problem) if part)
        raise ConfigError(f"is not YAML: {problem}", Place(str(path), _line(error))) from error
    except yaml.YAMLError as error:
        raise ConfigError(f"is not YAML: {' '.join(str(error).split())}", Place(str(path))) from error


def _line(error: yaml.MarkedYAMLError) -> int | None:
    mark = error.problem_mark or error.context_mark
    return None if mark is None else int(mark.line) + 1
