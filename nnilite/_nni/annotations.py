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
import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path

from nnilite._nni.annotation_calls import (
    MARK,
    REPORTS,
    AnnotationError,
    Choices,
    find_annotation,
    read_call,
    read_function_choice,
    read_variable,
)
from nnilite._nni.program_text import ProgramText
from nnilite.errors import ConfigError, Place
from nnilite.records import Json

_LINE_OF_ANNOTATION = re.compile(rb"""^[ \t]*('{1,3}|"{1,3})\s*@nni\.""", re.MULTILINE)

_MOST_BYTES = 16 << 20  # no person has written a larger program


def expand_folder(source: Path, target: Path) -> dict[str, Json]:
    """Copy a code directory, with all annotations expanded. Return the search space.

    Raises: ConfigError if there are none, or with the place of one that cannot be expanded. Then nothing is left.
    """
    space: dict[str, Json] = {}
    try:
        _copy(source, target)
        for path in sorted(target.rglob("*.py")):
            name = path.relative_to(target)
            module = ".".join(name.with_suffix("").parts)
            expanded = expand(_read(path, target), module, str(source / name))
            space.update(expanded.space)
            if expanded.is_changed:
                if path.is_symlink():  # what that leads to is not part of the copy
                    path.unlink()
                path.write_bytes(expanded.text)
        if not space:
            raise ConfigError(f"no program in {str(source)!r} has an annotation with a parameter")
    except BaseException:
        shutil.rmtree(target, ignore_errors=True)
        raise
    return space


def _copy(source: Path, target: Path) -> None:
    """Copy a code directory; the copy may be in the folder itself. Raises: ConfigError, for example for a pipe."""
    try:
        shutil.copytree(
            source, target, symlinks=True, ignore=lambda at, _: [target.name] if Path(at) == target.parent else []
        )
    except shutil.Error as error:
        place, _, reason = error.args[0][0]
        raise ConfigError(f"{place} cannot be copied: {reason}") from error


def _read(path: Path, folder: Path) -> bytes:
    """Return a program.

    Return nothing for a link within the copy, where the program has a name of its own, and for devices.
    """
    if path.is_symlink() and Path(os.path.normpath(path.parent / path.readlink())).is_relative_to(folder):
        return b""
    if not path.is_file() or path.stat().st_size > _MOST_BYTES:
        return b""
    return path.read_bytes()


@dataclass
class ExpandedProgram:
    """A program with calls, and its search space."""

    text: bytes
    space: dict[str, Json] = field(default_factory=dict)
    is_changed: bool = False


def expand(text: bytes, module: str, file: str) -> ExpandedProgram:
    """Expand the annotations of one program. Raises: ConfigError. Any other text is returned unchanged."""
    if MARK.encode() not in text:
        return ExpandedProgram(text)
    try:
        program = ProgramText.parse(text)
    except (SyntaxError, ValueError) as error:
        if not _LINE_OF_ANNOTATION.search(text):
            return ExpandedProgram(text)
        why = f"this Python cannot read the program, so its annotations are not expanded: {error}"
        raise ConfigError(why, Place(file)) from None
    work = _Expansion(program, module, file)
    for block in _list_blocks(program.tree):
        work.expand_block(block)
    return ExpandedProgram(work.result() if program.is_changed else text, work.space, program.is_changed)


def _list_blocks(tree: ast.AST) -> Iterator[list[ast.stmt]]:
    for node in ast.walk(tree):
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, None)
            if isinstance(block, list):
                yield block


class _Expansion:
    """Expands one program."""

    def __init__(self, program: ProgramText, module: str, file: str) -> None:
        self._program = program
        self._module = module
        self._file = file
        self.space: dict[str, Json] = {}

    def expand_block(self, block: list[ast.stmt]) -> None:
        for statement, following in zip_longest(block, block[1:]):
            annotation = find_annotation(statement)
            if not annotation:
                continue
            try:
                self._expand(annotation, statement, following)
            except AnnotationError as error:
                raise ConfigError(f"the annotation {error}", Place(self._file, statement.lineno)) from None

    def result(self) -> bytes:
        """Return the program with calls. Raises: ConfigError if that would be no program."""
        self._program.insert_before(_find_import_line(self._program.tree), "import nni\n")
        try:
            return self._program.result()
        except (SyntaxError, ValueError) as error:
            why = f"the program with calls would not be Python: {error}; write these calls by hand"
            raise ConfigError(why, Place(self._file)) from None

    def _expand(self, annotation: str, at: ast.stmt, following: ast.stmt | None) -> None:
        name, call = read_call(annotation)
        if name in REPORTS:
            self._program.replace(at, ast.unparse(call))
            return
        if name == "variable":
            self._expand_variable(read_variable(call), following)
        else:
            self._expand_function_choice(read_function_choice(call), following)
        # A comment would swallow a statement on the same line.
        shares_line = following is not None and following.lineno == at.end_lineno
        self._program.replace(at, "pass" if shares_line else f"# {ast.unparse(call)}")

    def _expand_variable(self, choices: Choices, following: ast.stmt | None) -> None:
        if not isinstance(following, (ast.Assign, ast.AnnAssign)) or following.value is None:
            raise AnnotationError(f"must stand before the assignment to {choices.name}")
        target = following.targets[0] if isinstance(following, ast.Assign) else following.target
        if ast.unparse(target) != choices.name:
            raise AnnotationError(f"must stand before the assignment to {choices.name}")
        key = self._add(choices)
        before = self._program.cut(following.value)
        drawn = f"nni.get_next_parameter().get({key!r}, {before})"
        if choices.options:
            table = ", ".join(f"{stand_in!r}: {ast.unparse(option)}" for stand_in, option in choices.options)
            drawn = f"{{{table}}}[nni.get_next_parameter()[{key!r}]]"
            drawn = f"{drawn} if {key!r} in nni.get_next_parameter() else {before}"
        self._program.replace(following.value, drawn)

    def _expand_function_choice(self, choices: Choices, following: ast.stmt | None) -> None:
        options = [str(option) for option, _ in choices.options]
        found = list(_find_calls(following, options)) if following else []
        if not found:
            raise AnnotationError(f"must stand before a call of one of {', '.join(options)}, outside of an f-string")
        key = self._add(choices)
        table = ", ".join(f"{option!r}: lambda: {option}" for option in options)
        for node in found:
            chosen = f"nni.get_next_parameter().get({key!r}, {ast.unparse(node)!r})"
            self._program.replace(node, f"{{{table}}}[{chosen}]()")

    def _add(self, choices: Choices) -> str:
        key = f"{self._module}/{choices.name}/{choices.kind}"
        if self.space.setdefault(key, choices.parameter) != choices.parameter:
            why = f"{key} is there twice, with different values; give one of the two variables another name"
            raise AnnotationError(why)
        return key


def _find_calls(node: ast.AST, options: list[str]) -> Iterator[ast.Call]:
    """Find the outermost calls that are among the options. Where they are in an f-string depends on Python."""
    if isinstance(node, ast.JoinedStr):
        return
    if isinstance(node, ast.Call) and ast.unparse(node) in options:
        yield node
        return
    for child in ast.iter_child_nodes(node):
        yield from _find_calls(child, options)


def _find_import_line(tree: ast.Module) -> int:
    """Return the line before which `import nni` may stand: behind the docstring and imports from `__future__`."""
    for place, statement in enumerate(tree.body):
        is_docstring = place == 0 and ast.get_docstring(tree) is not None and not find_annotation(statement)
        if not is_docstring and not (isinstance(statement, ast.ImportFrom) and statement.module == "__future__"):
            lines: list[int] = [one.lineno for one in getattr(statement, "decorator_list", [])]
            return min([statement.lineno, *lines])
    return 1
