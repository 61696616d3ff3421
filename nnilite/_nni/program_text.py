"""The text of a Python program whose parts are replaced, while everything else stays as it is, byte by byte."""

from __future__ import annotations

import ast
import functools
import io
import tokenize
from dataclasses import dataclass, field


def parse_python(text: str, mode: str = "exec") -> ast.AST:
    """Parse a text. Raises: SyntaxError, ValueError, also for what is nested too deeply for this Python."""
    try:
        return ast.parse(text, mode=mode)
    except (RecursionError, MemoryError):
        raise ValueError("it is nested too deeply") from None


@dataclass
class ProgramText:
    """A program, and what will be replaced in it.

    The parser counts columns in bytes of UTF-8, so the text is kept in this form, whatever the file's encoding is.
    """

    encoding: str
    utf8: bytes
    tree: ast.Module
    _edits: list[tuple[int, int, str]] = field(default_factory=list)
    """First byte, byte after the last one, new text."""

    @classmethod
    def parse(cls, data: bytes) -> ProgramText:
        """Read a program in the encoding that it names. Raises: SyntaxError, ValueError."""
        try:
            encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
            text = data.decode(encoding)
        except LookupError as error:  # a codec that is not for text
            raise ValueError(str(error)) from None
        tree = parse_python(text)
        assert isinstance(tree, ast.Module)
        return cls(encoding, text.encode(), tree)

    @property
    def is_changed(self) -> bool:
        """Whether anything will be replaced."""
        return bool(self._edits)

    def cut(self, node: ast.stmt | ast.expr) -> str:
        """Return the text of a part, in parentheses unless it can stand everywhere without them."""
        start, end = self._find_span(node)
        text = self.utf8[start:end].decode()
        return text if isinstance(node, (ast.Constant, ast.Name, ast.Attribute, ast.Call)) else f"({text})"

    def replace(self, node: ast.stmt | ast.expr, new: str) -> None:
        self._edits.append((*self._find_span(node), new))

    def insert_before(self, line: int, new: str) -> None:
        place = self._starts[line - 1]
        self._edits.append((place, place, new))

    def result(self) -> bytes:
        """Return the program with its new parts, in its own encoding.

        Raises: SyntaxError, ValueError if it cannot be parsed any more, UnicodeEncodeError
        """
        pieces, done = [], 0
        for start, end, new in sorted(self._edits):
            pieces += [self.utf8[done:start], new.encode()]
            done = end
        text = b"".join([*pieces, self.utf8[done:]]).decode()
        parse_python(text)
        return text.encode(self.encoding)

    @functools.cached_property
    def _starts(self) -> list[int]:
        """The first byte of each line."""
        starts = [0]
        for line in self.utf8.splitlines(keepends=True):
            starts.append(starts[-1] + len(line))
        return starts

    def _find_span(self, node: ast.stmt | ast.expr) -> tuple[int, int]:
        starts, last, column = self._starts, node.end_lineno or node.lineno, node.end_col_offset or 0
        return starts[node.lineno - 1] + node.col_offset, starts[last - 1] + column
