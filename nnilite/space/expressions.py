"""Expressions over names, such as `batch * layers <= 512`: parsed and computed here, and never run as Python.

Only arithmetic, comparisons, `and`, `or`, `not`, `in`, conditions (`a if b else c`) and the functions of `FUNCTIONS`
exist. A name with a dot is one name, and a name such as `my-rate` stands between backquotes.
"""

from __future__ import annotations

import ast
import keyword
import math
import operator
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from nnilite.errors import SpaceError

__all__ = ["FUNCTIONS", "Absent", "compute", "name_of", "parse", "parts", "shortened"]

_MOST_DIGITS = 400  # before the point; no intermediate number has as many


def _rounded(number: Any, digits: Any = None) -> Any:
    # Python computes 10 to the power of such digits, which takes hours.
    return round(number, digits if digits is None else max(digits, -_MOST_DIGITS))


FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "abs": abs,
    "ceil": math.ceil,
    "exp": math.exp,
    "floor": math.floor,
    "log": math.log,
    "log10": math.log10,
    "log2": math.log2,
    "max": max,
    "min": min,
    "round": _rounded,
    "sqrt": math.sqrt,
}

_SHOWN = 80  # characters of an expression in an error
_LONGEST = 2000  # characters of an expression
_DEEPEST = 50  # levels of an expression
_LARGEST = 1e300  # for intermediate results
# Texts come first, so that a backquote within a text does not quote a name.
_QUOTED = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`([^`]+)`""")

_ARITHMETIC: Mapping[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: lambda one, other: math.pow(one, other),
}
_COMPARISONS: Mapping[type, Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda one, other: one in other,
    ast.NotIn: lambda one, other: one not in other,
}
_SIGNS: Mapping[type, Callable[[Any], Any]] = {ast.Not: operator.not_, ast.USub: operator.neg, ast.UAdd: operator.pos}


_SIGNS_OF_OTHERS = (
    (re.compile(r"&&"), "write and for &&"),
    (re.compile(r"\|\|"), "write or for ||"),
    (re.compile(r"!(?!=)"), "write not for !"),
    (re.compile(r"(?<![<>=!])=(?!=)"), "write == for ="),
)
"""Signs of other languages, and what stands for them here."""


class Absent(Exception):
    """A name has no value here."""


def shortened(text: str) -> str:
    """Return a text in quotes, cut off where it is long."""
    return repr(text if len(text) <= _SHOWN else text[:_SHOWN] + "...")


def parse(text: str, names: Collection[str] | None) -> ast.expr:
    """Return the tree of an expression over these names; None: any names. Raises: SpaceError."""
    if len(text) > _LONGEST:
        raise SpaceError(f"a constraint has {len(text)} characters; at most {_LONGEST} are read")
    try:
        tree = _read(text.strip())
        _check(tree, names)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        reason = error.msg if isinstance(error, SyntaxError) else str(error)
        odd = next((name for name in sorted(names or ()) if name in text and _shown_name(name) != name), None)
        sign = next((one for one in _SIGNS_OF_OTHERS if one[0].search(text)), None)
        cure = sign[1] if sign else "write for example 'x + y <= 1'"
        cure = f"write {_shown_name(odd)} for the name {odd}" if odd else cure
        raise SpaceError(f"{shortened(text)} is not an expression: {reason}; {cure}") from None
    except _NotAllowed as error:
        raise SpaceError(f"{shortened(text)}: {error}") from None
    return tree


def _read(text: str) -> ast.expr:
    """Return the tree of an expression. Quoted names are read as words of their own."""
    word, quoted = "quoted_", dict[str, str]()
    while word in text:
        word += "_"

    def replace(match: re.Match[str]) -> str:
        if not match[1]:
            return match[0]
        name = f"{word}{len(quoted)}"
        quoted[name] = match[1]
        return name

    tree = ast.parse(_QUOTED.sub(replace, text), mode="eval").body
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            node.id = quoted.get(node.id, node.id)
    return tree


def _shown_name(name: str) -> str:
    """Return a name as an expression has it."""
    is_plain = all(part.isidentifier() and not keyword.iskeyword(part) for part in name.split("."))
    return name if is_plain else f"`{name}`"


class _NotAllowed(Exception):
    """An expression has a part that constraints do not have."""


def _check(node: ast.expr, names: Collection[str] | None, level: int = 0) -> None:
    if level > _DEEPEST:
        raise _NotAllowed(f"it is nested more than {_DEEPEST} deep; split it into several constraints")
    if isinstance(node, (ast.Name, ast.Attribute)):
        name = name_of(node)
        if names is not None and name not in names:
            there = ", ".join(map(_shown_name, sorted(names)))
            raise _NotAllowed(f"there is no parameter {name!r}; there are {there}")
        return
    if isinstance(node, ast.Compare):
        _check_lists(node)
    for child in parts(node):
        _check(child, names, level + 1)


def _check_lists(node: ast.Compare) -> None:
    """In Python ('adam') is a text, which also contains 'ada'. Raises: _NotAllowed."""
    for op, right in zip(node.ops, node.comparators, strict=True):
        if isinstance(op, (ast.In, ast.NotIn)) and isinstance(right, ast.Constant):
            raise _NotAllowed(f"`in` needs a list; write [{right.value!r}] for {right.value!r}")


def parts(node: ast.expr) -> Sequence[ast.expr]:
    """Return the operands of a node. Raises: _NotAllowed."""
    match node:
        case ast.Constant(value=bool() | int() | float() | str() | None):
            return ()
        case ast.BoolOp(values=operands) | ast.Tuple(elts=operands) | ast.List(elts=operands):
            return operands
        case ast.UnaryOp(op=op, operand=operand) if type(op) in _SIGNS:
            return (operand,)
        case ast.BinOp(op=op) if type(op) in _ARITHMETIC:
            return (node.left, node.right)
        case ast.Compare() if all(type(op) in _COMPARISONS for op in node.ops):
            return (node.left, *node.comparators)
        case ast.IfExp():
            return (node.test, node.body, node.orelse)
        case ast.Call(func=ast.Name(id=name), keywords=[]) if name in FUNCTIONS:
            return node.args
    raise _NotAllowed(
        f"{ast.unparse(node)!r:.80} is not allowed; use numbers, texts, names, + - * / // % **, "
        f"comparisons, and, or, not, in, and {', '.join(FUNCTIONS)}"
    )


def name_of(node: ast.expr) -> str:
    """Return the name that a node stands for, with its dots."""
    if isinstance(node, ast.Attribute):
        return f"{name_of(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ast.unparse(node)


def compute(node: ast.expr, values: Mapping[str, Any]) -> Any:
    """Return the value of an expression. Raises: Absent, ArithmeticError, ValueError, TypeError."""
    match node:
        case ast.Name() | ast.Attribute():
            return _found(name_of(node), values)
        case ast.BoolOp(op=op, values=operands):
            every = isinstance(op, ast.And)
            return (all if every else any)(compute(one, values) for one in operands)
        case ast.IfExp():
            return compute(node.body if compute(node.test, values) else node.orelse, values)
        case ast.Compare():
            return _compared(node, values)
        case ast.Constant():
            return node.value
    operands = [compute(part, values) for part in parts(node)]
    match node:
        case ast.UnaryOp():
            return _SIGNS[type(node.op)](operands[0])
        case ast.BinOp():
            return _arithmetic(node.op, *operands)
        case ast.Call(func=ast.Name(id=name)):
            return _limited(FUNCTIONS[name](*operands))
    return operands  # the operand is a tuple or list


def _arithmetic(op: ast.operator, one: Any, other: Any) -> Any:
    if not (
        isinstance(one, (int, float)) and isinstance(other, (int, float))
    ):  # a text times a large number fills the memory
        raise TypeError(f"{one!r:.50} and {other!r:.50} are not both numbers")
    return _limited(_ARITHMETIC[type(op)](one, other))


def _limited(value: Any) -> Any:
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > _LARGEST:
        raise OverflowError("a number is too large")
    return value


def _compared(node: ast.Compare, values: Mapping[str, Any]) -> bool:
    left = compute(node.left, values)
    for op, comparator in zip(node.ops, node.comparators, strict=True):
        right = compute(comparator, values)
        if not _COMPARISONS[type(op)](left, right):
            return False
        left = right
    return True


def _found(name: str, values: Mapping[str, Any]) -> Any:
    if name not in values:
        raise Absent
    return values[name]
