"""Reads the text of files as YAML or JSON, and says at which line it is neither."""

from __future__ import annotations

import importlib
import json
import re
from pathlib import Path
from typing import Any

import yaml
from yaml.reader import ReaderError

from nnilite.config._fields import normalize_name
from nnilite.config._source import ConfigSource
from nnilite.config.secrets import masked_problem, masked_text
from nnilite.errors import ConfigError, Place
from nnilite.services.keeper_events import MAX_DEPTH, MAX_DIGITS, deeper
from nnilite.yaml_files import BoundedLoader, TooMuchYaml, read_text

_EXPONENT = re.compile(r"[-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)[eE][-+]?[0-9]+")
_NO_YAML = "is not YAML"
_TOO_DEEP = f"is nested too deep: at most {MAX_DEPTH} levels are read"
_FREE_JSON = {"searchspace", "classargs"}  # fields in which 1e-5 can only be meant as a number


class _EndlessNumber(ValueError):
    """A number in JSON has too many digits."""


def _int(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise _EndlessNumber(f"has a number of more than {MAX_DIGITS} digits")
    return int(digits)


_JSON = json.JSONDecoder(parse_int=_int)


def read_yaml(path: Path) -> tuple[Any, ConfigSource]:
    """Return the content of a YAML (or JSON) file. Raises: ConfigError with the line."""
    return parse_yaml(read_text(path), str(path))


def read_toml(path: Path) -> tuple[Any, ConfigSource]:
    """Return the content of a TOML file. Raises: ConfigError."""
    try:
        tomllib = importlib.import_module("tomllib")
    except ImportError as error:
        raise ConfigError("is TOML, which needs Python 3.11 or later", Place(str(path))) from error
    try:
        return tomllib.loads(read_text(path)), ConfigSource(str(path), None)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"is not TOML: {error}", Place(str(path))) from error


def read_space(path: Path) -> tuple[Any, ConfigSource]:
    """Return the content of a search space file: JSON if it is JSON, otherwise YAML. Raises: ConfigError."""
    text = read_text(path)
    value, source = _loaded(text, path)
    # The JSON decoder accepts a repeated key and keeps the last one; the nodes of YAML show both.
    if source is None:
        root = _nodes(text)
        if root is not None:
            _Check(str(path)).node(root, False)
        source = ConfigSource(str(path), root)
    return value, source


def read_without_lines(path: Path) -> Any:
    """Return the content without its lines, which take half a minute to find in a hundred thousand results."""
    return _loaded(read_text(path), path)[0]


def _loaded(text: str, path: Path) -> tuple[Any, ConfigSource | None]:
    """Return the content, and the source if it is YAML rather than JSON."""
    try:
        value = _JSON.decode(text)
    except json.JSONDecodeError as error:
        return _read_leniently(text, path, error)
    except _EndlessNumber as error:
        raise ConfigError(str(error), Place(str(path))) from None
    except RecursionError:
        raise ConfigError(_TOO_DEEP, Place(str(path))) from None
    if deeper(value, MAX_DEPTH):
        raise ConfigError(_TOO_DEEP, Place(str(path)))
    return value, None


def _read_leniently(text: str, path: Path, error: json.JSONDecodeError) -> tuple[Any, ConfigSource]:
    """Read YAML, or JSON with trailing commas. For text that was meant as JSON, the error is that of JSON."""
    # JSON may be indented with tabs, and cannot have them in a text.
    plain = text.replace("\t", "    ") if text.lstrip().startswith(("{", "[")) else text
    is_json, cure = path.suffix.lower() == ".json", _cure_json(text, error.pos)
    try:
        # To YAML, a comment of JavaScript is a part of the name that follows it.
        if not (is_json and cure):
            return parse_yaml(plain, str(path), numbers=True)
    except ConfigError as other:
        is_yaml = not other.message.startswith(_NO_YAML) and not isinstance(other.__cause__, TooMuchYaml)
        if not is_json or is_yaml:
            raise
    problem = f"is not JSON: {error.msg}, column {error.colno}{cure or _cure_separator(text, error.pos)}"
    raise ConfigError(problem, Place(str(path), error.lineno)) from error


def _cure_json(text: str, position: int) -> str:
    """Return what to do about text that is not JSON from a position on: the end of a sentence."""
    if text[position:].startswith(("//", "/*")):
        return "; JSON has no comments: remove them, or begin them with #"
    if text[position:].startswith("\\"):
        return "; write \\\\ for each \\, or / in paths"
    if re.match(r"\s*\w+\s*=\s*[{\[]", text):
        return "; remove what is in front of the first {"
    if text[position:].lstrip().startswith("{") and text[:position].strip():
        return "; put all parameters into one object, with commas between them"
    return ""


def _cure_separator(text: str, position: int) -> str:
    """Return what to do where a comma or a bracket is missing: the end of a sentence."""
    if text[position:].startswith('"') and not text[:position].rstrip().endswith(","):
        return "; write a comma at the end of the line before"
    return "; a bracket before is not closed" if text[position : position + 1] in ("}", "]", "") else ""


def _nodes(text: str) -> yaml.Node | None:
    """Return the nodes of JSON with their lines; None if it is not YAML as well, or too large for that."""
    try:
        # JSON may be indented with tabs, which YAML does not accept.
        return yaml.compose(text.replace("\t", "    "), Loader=BoundedLoader)
    except yaml.YAMLError:
        return None


def parse_yaml(text: str, file: str | None, numbers: bool = False) -> tuple[Any, ConfigSource]:
    """Return content and lines. `numbers`: 1e-5 is a number everywhere, not only in search space and classArgs."""
    try:
        loader = BoundedLoader(text)
    except ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        message = f"contains a character that cannot be in text, {text[error.position]!a}; is it the right file?"
        raise ConfigError(message, Place(file, line)) from error
    try:
        root = loader.get_single_node()
        if root is None:
            raise ConfigError("is empty", Place(file))
        _Check(file).node(root, numbers)
        return loader.construct_document(root), ConfigSource(file, root)
    except TooMuchYaml as error:
        raise ConfigError(str(error.problem), Place(file, error.line)) from error
    except yaml.MarkedYAMLError as error:
        raise _marked(error, file, text) from error
    except yaml.YAMLError as error:
        raise ConfigError(f"{_NO_YAML}: {' '.join(str(error).split())}", Place(file)) from error
    finally:
        loader.dispose()


def _marked(error: yaml.MarkedYAMLError, file: str | None, text: str) -> ConfigError:
    mark = error.problem_mark or error.context_mark
    if "expected ':'" in (error.problem or "") and error.context_mark:
        mark = error.context_mark  # the name itself; the other mark is where the next one has its colon
    problem = " ".join(part for part in (error.context, error.problem) if part)
    if "'\\t'" in problem:
        problem += "; indent with spaces, not tabs, and write none before a comment"
    if "expected ':'" in problem:
        problem += "; write a space after each colon, as in `name: value`"
    if "double-quoted" in problem and ("escape" in problem):
        problem += "; in double quotes \\ begins a special sign: use single quotes, or / in paths"
    written = text.splitlines()[mark.line : mark.line + 1] if mark else []
    problem += _cure_characters(text, "".join(written), problem) or _cure_line("".join(written), problem)
    if "unhashable key" in problem:
        problem += "; fill in {{ }} of a template first, or put it in quotes"
    line = mark.line + 1 if mark else None
    if "constructor" in problem and "python/" in problem:
        cure = "write its value, such as a path, as text"
        if "OrderedDict" in problem:
            cure = "in the program that wrote it, write yaml.dump(json.loads(json.dumps(config))) for yaml.dump(config)"
        sentence = f"creates a Python object with a tag that begins with !!python; {cure}"
        return ConfigError(sentence, Place(file, line))
    return ConfigError(f"{_NO_YAML}: {masked_problem(problem, ''.join(written))}", Place(file, line))


def _cure_characters(text: str, written: str, problem: str) -> str:
    """Return what to do about signs that stand in for those of YAML, as chats and input methods make them."""
    if text.lstrip().startswith("```") or written.startswith("```"):
        return "; remove the lines that begin with ```"
    if "another document" in problem:
        return "; remove the line ---, and what belongs to another file"
    before = text.partition(written)[0].splitlines()[-1:] if written else []
    if any(_FOREIGN_COMMENT.search(line) for line in (*before, written)):
        return "; begin comments with #"
    found = next((sign for sign in _STAND_INS if sign in "".join(before) + written), None)
    return f"; write {_STAND_INS[found]} in place of {found!a}" if found else ""


def _cure_line(written: str, problem: str) -> str:
    """Return what to do about a line in which a value has signs of YAML, or which begins too far to the right."""
    if "mapping values are not allowed" in problem:
        if len(re.findall(r":(?:\s|$)", written)) > 1:
            return "; put a value with a colon and a space in it in quotes"
        return "; begin the line below the first letter of the field that it follows"
    if re.search(r"character '[@`%]' that cannot start", problem):
        return "; put the value in quotes"
    return "; remove the tag, and write the value itself" if "constructor for the tag" in problem else ""


_FOREIGN_COMMENT = re.compile(r"(?:^|\s)(?://|/\*)(?:\s|$)|^\s*//")
"""A comment as in JavaScript. An address has its // after a colon."""
_STAND_INS = {
    "\uff1a": "a colon (:) and a space",
    "\uff0c": "a comma (,)",
    "\u3000": "spaces",
    "\xa0": "a plain space",
    "\u201c": 'a plain quote (")',
    "\u201d": 'a plain quote (")',
}
"""Signs that look like those of YAML and are none: full-width ones, hard spaces, quotes of a word processor."""


class _Check:
    """Finds a fault that YAML accepts: a repeated field."""

    def __init__(self, file: str | None) -> None:
        self.file = file
        self.done: set[tuple[int, bool]] = set()

    def node(self, node: yaml.Node, numbers: bool) -> None:
        if (id(node), numbers) in self.done:
            return
        self.done.add((id(node), numbers))
        if isinstance(node, yaml.MappingNode):
            self.twice(node)
            for key, value in node.value:
                free = isinstance(key, yaml.ScalarNode) and normalize_name(key.value) in _FREE_JSON
                self.node(value, numbers or free)
        elif isinstance(node, yaml.SequenceNode):
            for item in node.value:
                self.node(item, numbers)
        elif isinstance(node, yaml.ScalarNode) and numbers:
            _retag(node)

    def twice(self, node: yaml.MappingNode) -> None:
        found: dict[str, tuple[int, yaml.Node]] = {}
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
                line = key.start_mark.line + 1
                first, before = found.setdefault(key.value, (line, value))
                if before is not value and not _is_same_scalar(before, value):
                    message = f"is given twice, first on line {first}"
                    raise ConfigError(message, Place(self.file, line, masked_text(key.value)))


def _is_same_scalar(one: yaml.Node, other: yaml.Node) -> bool:
    """Return whether two nodes are one plain value. NNI's own example for PAI-DLC has such a field twice."""
    scalars = isinstance(one, yaml.ScalarNode) and isinstance(other, yaml.ScalarNode)
    return scalars and (one.tag, one.value) == (other.tag, other.value)


def _retag(node: yaml.ScalarNode) -> None:
    """Read 1e-5 and 1.5e3 as numbers: YAML 1.1 reads them as texts, for lack of a point or a sign."""
    if node.style is None and node.tag == "tag:yaml.org,2002:str" and _EXPONENT.fullmatch(node.value):
        node.tag = "tag:yaml.org,2002:float"
