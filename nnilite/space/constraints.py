"""Constraints between parameters: expressions over their names, such as `batch * layers <= 512`.

They are parsed and computed here, and never run as Python: only arithmetic, comparisons, `and`, `or`, `not`, `in`,
conditions (`a if b else c`) and the functions of `FUNCTIONS` exist. `layer.size` is a parameter below a nested choice,
and `layer` itself the name of the chosen option. A constraint on a parameter that does not count in this trial is
satisfied.
"""

from __future__ import annotations

import ast
import math
import operator
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nnilite.errors import SpaceError
from nnilite.space.search_space import SearchSpace

__all__ = ["FUNCTIONS", "Constraints"]

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
    "round": round,
    "sqrt": math.sqrt,
}

_SHOWN = 80  # characters of an expression in an error
_LONGEST = 2000  # characters of an expression
_DEEPEST = 50  # levels of an expression
_LARGEST = 1e300  # of numbers in between
_TRIES = 10_000  # random sets of parameters, of which one must satisfy all constraints

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


class _Absent(Exception):
    """A parameter does not count in this trial."""


@dataclass(frozen=True)
class Constraints:
    """All constraints of a search space."""

    texts: tuple[str, ...]
    _trees: tuple[ast.expr, ...]

    @classmethod
    def parse(cls, texts: Sequence[str], space: SearchSpace) -> Constraints:
        """Check expressions and their names. Raises: SpaceError, which names the expression."""
        names = {".".join(str(part) for part in p.path if isinstance(part, str)) for p in space.parameters}
        return cls(tuple(texts), tuple(_parsed(text, names) for text in texts))

    def violated(self, parameters: Mapping[str, Any]) -> str | None:
        """Return the first constraint that parameters, as a trial gets them, do not satisfy; None if there is none.

        Raises: SpaceError if one cannot be computed, as it compares a text with a number.
        """
        for text, tree in zip(self.texts, self._trees, strict=True):
            try:
                if not _computed(tree, parameters):
                    return text
            except _Absent:
                continue
            except (ArithmeticError, ValueError):  # as the logarithm of 0
                return text
            except TypeError as error:
                raise SpaceError(f"{text!r} cannot be computed: {error}") from None
        return None

    def sample(self, space: SearchSpace, rng: random.Random) -> dict[str, Any]:
        """Return random parameters that satisfy all. Raises: SpaceError if 10,000 tries find none."""
        for _ in range(_TRIES):
            parameters = space.sample(rng)
            if self.violated(parameters) is None:
                return parameters
        raise SpaceError(
            f"none of {_TRIES:,} random sets of parameters satisfies {' and '.join(map(repr, self.texts))}; "
            "loosen the constraints, or narrow the search space to where they hold"
        )


def _cut_start(text: str) -> str:
    return repr(text if len(text) <= _SHOWN else text[:_SHOWN] + "...")


def _parsed(text: str, names: set[str]) -> ast.expr:
    if len(text) > _LONGEST:
        raise SpaceError(f"a constraint has {len(text)} characters; at most {_LONGEST} are read")
    try:
        tree = ast.parse(text.strip(), mode="eval").body
        _check(tree, names)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        reason = error.msg if isinstance(error, SyntaxError) else str(error)
        raise SpaceError(f"{_cut_start(text)} is not an expression: {reason}; write for example 'x + y <= 1'") from None
    except _NotAllowed as error:
        raise SpaceError(f"{_cut_start(text)}: {error}") from None
    return tree


class _NotAllowed(Exception):
    """An expression has a part that constraints do not have."""


def _check(node: ast.expr, names: set[str], level: int = 0) -> None:
    if level > _DEEPEST:
        raise _NotAllowed(f"it is nested more than {_DEEPEST} deep; split it into several constraints")
    if isinstance(node, (ast.Name, ast.Attribute)):
        name = _name(node)
        if name not in names:
            raise _NotAllowed(f"there is no parameter {name!r}; there are {', '.join(sorted(names))}")
        return
    for child in _parts(node):
        _check(child, names, level + 1)


def _parts(node: ast.expr) -> Sequence[ast.expr]:
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
        f"{ast.unparse(node)!r:.80} is not allowed; use numbers, texts, names of parameters, + - * / // % **, "
        f"comparisons, and, or, not, in, and {', '.join(FUNCTIONS)}"
    )


def _name(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return f"{_name(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ast.unparse(node)


def _computed(node: ast.expr, parameters: Mapping[str, Any]) -> Any:
    match node:
        case ast.Name() | ast.Attribute():
            return _value(_name(node), parameters)
        case ast.BoolOp(op=op, values=operands):
            every = isinstance(op, ast.And)
            return (all if every else any)(_computed(one, parameters) for one in operands)
        case ast.IfExp():
            return _computed(node.body if _computed(node.test, parameters) else node.orelse, parameters)
        case ast.Compare():
            return _compared(node, parameters)
        case ast.Constant():
            return node.value
    parts = [_computed(part, parameters) for part in _parts(node)]
    match node:
        case ast.UnaryOp():
            return _SIGNS[type(node.op)](parts[0])
        case ast.BinOp():
            return _arithmetic(node.op, *parts)
        case ast.Call(func=ast.Name(id=name)):
            return _limited(FUNCTIONS[name](*parts))
    return parts  # of a tuple or list


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


def _compared(node: ast.Compare, parameters: Mapping[str, Any]) -> bool:
    left = _computed(node.left, parameters)
    for op, comparator in zip(node.ops, node.comparators, strict=True):
        right = _computed(comparator, parameters)
        if not _COMPARISONS[type(op)](left, right):
            return False
        left = right
    return True


def _value(name: str, parameters: Mapping[str, Any]) -> Any:
    found: Any = parameters
    for part in name.split("."):
        if not isinstance(found, Mapping) or part not in found:
            raise _Absent
        found = found[part]
    return found.get("_name", found) if isinstance(found, Mapping) else found
