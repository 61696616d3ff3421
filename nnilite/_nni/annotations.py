"""Expands NNI's annotations: strings in a program that describe its search space, as NNI 2 did at each launch.

    '''@nni.variable(nni.choice(0.1, 0.01), name=rate)'''
    rate = 0.1
    '''@nni.report_final_result(accuracy)'''

The strings become calls, and the search space follows from them, under the names that NNI gave its parameters
("trial/rate/choice"), so that results of such experiments still fit. The rest of the text stays as it is. Run by hand,
an expanded program uses the values that it had before.
"""

from __future__ import annotations

import ast
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from nnilite.errors import ConfigError, Place
from nnilite.records import Json

_TYPES = (
    *("choice", "randint", "uniform", "quniform", "loguniform", "qloguniform"),
    *("normal", "qnormal", "lognormal", "qlognormal"),
)
_CALLS = ("report_intermediate_result", "report_final_result", "get_next_parameter")
_MARK = "@nni."


def expand_folder(source: Path, target: Path) -> dict[str, Json]:
    """Copy a code directory, with all annotations expanded. Return the search space.

    Raises: ConfigError if there are none, or with the place of one that cannot be expanded. Then nothing is left.
    """
    space: dict[str, Json] = {}
    shutil.copytree(source, target, symlinks=True)
    try:
        for path in sorted(target.rglob("*.py")):
            name = path.relative_to(target)
            module = ".".join(name.with_suffix("").parts)
            expanded = expand(path.read_bytes(), module, str(source / name))
            space.update(expanded.space)
            if expanded.is_changed:
                path.write_bytes(expanded.text)
        if not space:
            raise ConfigError(f"no program in {str(source)!r} has an annotation with a parameter")
    except BaseException:
        shutil.rmtree(target)
        raise
    return space


@dataclass
class Expanded:
    """A program with calls, and its search space."""

    text: bytes
    space: dict[str, Json] = field(default_factory=dict)
    is_changed: bool = False


def expand(text: bytes, module: str, file: str) -> Expanded:
    """Expand the annotations of one program. Raises: ConfigError. A text that is not Python is returned unchanged."""
    if _MARK.encode() not in text:
        return Expanded(text)
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return Expanded(text)
    work = _Expansion(text, module, file)
    for block in _list_blocks(tree):
        work.expand_block(block)
    return work.result(tree)


def _list_blocks(tree: ast.AST) -> Iterator[list[ast.stmt]]:
    for node in ast.walk(tree):
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, None)
            if isinstance(block, list):
                yield block


def _find_annotation(statement: ast.stmt) -> str:
    """Return the call that a statement stands for, without `@`; "" if it is not an annotation."""
    if not (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)):
        return ""
    value = statement.value.value
    return value.strip()[1:] if isinstance(value, str) and value.strip().startswith(_MARK) else ""


class _Expansion:
    """The edits of one program: (first byte, byte after the last one, new text)."""

    def __init__(self, text: bytes, module: str, file: str) -> None:
        self._text = text
        self._module = module
        self._file = file
        self._starts = [0]
        for line in text.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))
        self._edits: list[tuple[int, int, str]] = []
        self._space: dict[str, Json] = {}

    def expand_block(self, block: list[ast.stmt]) -> None:
        for place, statement in enumerate(block):
            annotation = _find_annotation(statement)
            if not annotation:
                continue
            call = self._call(annotation, statement)
            name = self._expand_function(call, statement)
            following = block[place + 1] if place + 1 < len(block) else None
            if name in _CALLS:
                self._replace(statement, ast.unparse(call))
            elif name == "variable":
                self._variable(call, statement, following)
            elif name == "function_choice":
                self._expand_function_choice(call, statement, following)
            else:
                raise self._fault(statement, f"nni.{name} searches architectures, which nnilite does not")

    def result(self, tree: ast.Module) -> Expanded:
        if not self._edits:
            return Expanded(self._text)
        first = self._find_import_line(tree)
        text = self._text
        for start, end, new in sorted(self._edits, reverse=True):
            text = text[:start] + new.encode() + text[end:]
        place = self._starts[first - 1]
        return Expanded(text[:place] + b"import nni\n" + text[place:], self._space, True)

    # One annotation

    def _variable(self, call: ast.Call, at: ast.stmt, following: ast.stmt | None) -> None:
        name = self._name(call, at)
        if not (isinstance(following, ast.Assign) and ast.unparse(following.targets[0]) == name):
            raise self._fault(at, f"must stand before the assignment to {name}")
        kind = call.args[0] if len(call.args) == 1 else None
        if not isinstance(kind, ast.Call) or self._expand_function(kind, at) not in _TYPES:
            raise self._fault(at, f"needs one of {', '.join(f'nni.{one}' for one in _TYPES)}")
        word = self._expand_function(kind, at)
        key = f"{self._module}/{name}/{word}"
        before = self._cut_segment(following.value)
        drawn = f"nni.get_next_parameter().get({key!r}, {before})"
        if word == "choice":
            options = {_key(argument): argument for argument in kind.args}
            self._add(key, "choice", list(options), at)
            if any(not isinstance(argument, ast.Constant) for argument in kind.args):
                table = ", ".join(f"{option!r}: {ast.unparse(argument)}" for option, argument in options.items())
                drawn = f"{{{table}}}[nni.get_next_parameter()[{key!r}]]"
                drawn = f"{drawn} if {key!r} in nni.get_next_parameter() else {before}"
        else:
            self._add(key, word, [self._number(argument, at) for argument in kind.args], at)
        self._replace(at, f"# {ast.unparse(call)}")
        self._replace(following.value, drawn)

    def _expand_function_choice(self, call: ast.Call, at: ast.stmt, following: ast.stmt | None) -> None:
        key = f"{self._module}/{self._name(call, at)}/function_choice"
        options = {ast.unparse(argument): argument for argument in call.args}
        found = [node for node in ast.walk(following or at) if isinstance(node, ast.Call)]
        found = [node for node in found if ast.unparse(node) in options]
        if following is None or not found:
            raise self._fault(at, f"must stand before a call of one of {', '.join(options)}")
        self._add(key, "choice", list(options), at)
        table = ", ".join(f"{option!r}: lambda: {option}" for option in options)
        self._replace(at, f"# {ast.unparse(call)}")
        for node in found:
            chosen = f"nni.get_next_parameter().get({key!r}, {ast.unparse(node)!r})"
            self._replace(node, f"{{{table}}}[{chosen}]()")

    def _add(self, key: str, kind: str, values: list[Json], at: ast.stmt) -> None:
        parameter: Json = {"_type": kind, "_value": values}
        if self._space.setdefault(key, parameter) != parameter:
            raise self._fault(at, f"{key} is there twice, with different values")

    # Its parts

    def _call(self, annotation: str, at: ast.stmt) -> ast.Call:
        try:
            found = ast.parse(annotation, mode="eval").body
        except SyntaxError as error:
            raise self._fault(at, f"is no Python: {error.msg}") from None
        if not isinstance(found, ast.Call):
            raise self._fault(at, "is no call")
        return found

    def _expand_function(self, call: ast.Call, at: ast.stmt) -> str:
        function = call.func
        if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name) and function.value.id == "nni":
            return function.attr
        raise self._fault(at, f"{ast.unparse(function)} is not a function of nni")

    def _name(self, call: ast.Call, at: ast.stmt) -> str:
        if [keyword.arg for keyword in call.keywords] != ["name"]:
            raise self._fault(at, "needs the one keyword `name`")
        return ast.unparse(call.keywords[0].value)

    def _number(self, argument: ast.expr, at: ast.stmt) -> float:
        try:
            value = ast.literal_eval(argument)
        except ValueError:
            value = None
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise self._fault(at, f"{ast.unparse(argument)} must be written as a number")
        return value

    def _fault(self, at: ast.stmt, message: str) -> ConfigError:
        return ConfigError(f"the annotation {message}", Place(self._file, at.lineno))

    # The text

    def _find_span(self, node: ast.stmt | ast.expr) -> tuple[int, int]:
        last, column = node.end_lineno or node.lineno, node.end_col_offset or 0
        return self._starts[node.lineno - 1] + node.col_offset, self._starts[last - 1] + column

    def _cut_segment(self, node: ast.expr) -> str:
        start, end = self._find_span(node)
        return self._text[start:end].decode()

    def _replace(self, node: ast.stmt | ast.expr, new: str) -> None:
        self._edits.append((*self._find_span(node), new))

    def _find_import_line(self, tree: ast.Module) -> int:
        """Return the line before which `import nni` may stand: behind the docstring and imports from `__future__`."""
        for place, statement in enumerate(tree.body):
            is_docstring = place == 0 and ast.get_docstring(tree) is not None and not _find_annotation(statement)
            if not is_docstring and not (isinstance(statement, ast.ImportFrom) and statement.module == "__future__"):
                lines: list[int] = [one.lineno for one in getattr(statement, "decorator_list", [])]
                return min([statement.lineno, *lines])
        return 1


def _key(argument: ast.expr) -> Json:
    """Return what stands for an option in the search space: the value of a literal, or its text in the program."""
    return argument.value if isinstance(argument, ast.Constant) else ast.unparse(argument)
