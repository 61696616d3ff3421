"""Constraints between parameters: expressions over their names, such as `batch * layers <= 512`.

They are parsed and computed here, and never run as Python: only arithmetic, comparisons, `and`, `or`, `not`, `in`,
conditions (`a if b else c`) and the functions of `FUNCTIONS` exist. `layer.size` is a parameter below a nested choice,
and `layer` itself the name of the chosen option. A name such as `my-rate` stands between backquotes.
A constraint on a parameter that does not count in this trial is satisfied.
"""

from __future__ import annotations

import ast
import keyword
import math
import operator
import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nnilite.errors import SpaceError
from nnilite.space.search_space import SearchSpace

__all__ = ["FUNCTIONS", "Constraints"]

_MOST_DIGITS = 400  # before the point; no number in between has as many


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
_LARGEST = 1e300  # of numbers in between
_TRIES = 10_000  # random sets of parameters, of which one must satisfy all constraints
_COMPUTED = 200  # random sets of parameters for which every constraint must have a value
# Texts come first, so that a backquote in one of them quotes no name.
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


class _Absent(Exception):
    """A parameter does not count in this trial."""


@dataclass(frozen=True)
class Constraints:
    """All constraints of a search space."""

    texts: tuple[str, ...]
    _trees: tuple[ast.expr, ...]
    _paths: Mapping[str, tuple[str, ...]]

    @classmethod
    def parse(cls, texts: Sequence[str], space: SearchSpace) -> Constraints:
        """Check expressions and their names. Raises: SpaceError, which names the expression."""
        found = [tuple(part for part in one.path if isinstance(part, str)) for one in space.parameters]
        paths = {".".join(path): path for path in found}
        return cls(tuple(texts), tuple(_parsed(text, set(paths)) for text in texts), paths)

    def violated(self, parameters: Mapping[str, Any]) -> str | None:
        """Return the first constraint that parameters, as a trial gets them, do not satisfy; None if there is none.

        Raises: SpaceError if one cannot be computed, as it compares a text with a number.
        """
        values = dict(_values(self._paths, parameters))
        pairs = zip(self.texts, self._trees, strict=True)
        return next((text for text, tree in pairs if not _holds(text, tree, values)), None)

    def check(self, space: SearchSpace) -> None:
        """Try all on random parameters. Raises: SpaceError if one cannot be computed, or nothing satisfies all."""
        rng = random.Random(0)
        for _ in range(_COMPUTED):
            values = dict(_values(self._paths, space.sample(rng)))
            for text, tree in zip(self.texts, self._trees, strict=True):
                _holds(text, tree, values)
        self.sample(space, rng)

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
        tree = _read(text.strip())
        _check(tree, names)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        reason = error.msg if isinstance(error, SyntaxError) else str(error)
        odd = next((name for name in sorted(names) if name in text and _shown_name(name) != name), None)
        cure = f"write {_shown_name(odd)} for the name {odd}" if odd else "write for example 'x + y <= 1'"
        raise SpaceError(f"{_cut_start(text)} is not an expression: {reason}; {cure}") from None
    except _NotAllowed as error:
        raise SpaceError(f"{_cut_start(text)}: {error}") from None
    return tree


def _read(text: str) -> ast.expr:
    """Return the tree of an expression. Quoted names are read as words of their own."""
    word, quoted = "quoted_", dict[str, str]()
    while word in text:
        word += "_"

    def replace(found: re.Match[str]) -> str:
        if not found[1]:
            return found[0]
        name = f"{word}{len(quoted)}"
        quoted[name] = found[1]
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


def _check(node: ast.expr, names: set[str], level: int = 0) -> None:
    if level > _DEEPEST:
        raise _NotAllowed(f"it is nested more than {_DEEPEST} deep; split it into several constraints")
    if isinstance(node, (ast.Name, ast.Attribute)):
        name = _name(node)
        if name not in names:
            there = ", ".join(map(_shown_name, sorted(names)))
            raise _NotAllowed(f"there is no parameter {name!r}; there are {there}")
        return
    if isinstance(node, ast.Compare):
        _check_lists(node)
    for child in _parts(node):
        _check(child, names, level + 1)


def _check_lists(node: ast.Compare) -> None:
    """In Python ('adam') is a text, which also contains 'ada'. Raises: _NotAllowed."""
    for op, right in zip(node.ops, node.comparators, strict=True):
        if isinstance(op, (ast.In, ast.NotIn)) and isinstance(right, ast.Constant):
            raise _NotAllowed(f"`in` needs a list; write [{right.value!r}] for {right.value!r}")


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


def _values(paths: Mapping[str, tuple[str, ...]], parameters: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the values that count in a trial, by the names of parameters in expressions."""
    for name, path in paths.items():
        found: Any = parameters
        for part in path:
            if not isinstance(found, Mapping) or part not in found:
                break
            found = found[part]
        else:
            yield name, found.get("_name", found) if isinstance(found, Mapping) else found


def _holds(text: str, tree: ast.expr, values: Mapping[str, Any]) -> bool:
    """Return whether a constraint is satisfied. Raises: SpaceError."""
    try:
        return bool(_computed(tree, values))
    except _Absent:
        return True
    except (ArithmeticError, ValueError):  # as the logarithm of 0
        return False
    except TypeError as error:
        raise SpaceError(f"{text!r} cannot be computed: {error}") from None


def _computed(node: ast.expr, values: Mapping[str, Any]) -> Any:
    match node:
        case ast.Name() | ast.Attribute():
            return _found(_name(node), values)
        case ast.BoolOp(op=op, values=operands):
            every = isinstance(op, ast.And)
            return (all if every else any)(_computed(one, values) for one in operands)
        case ast.IfExp():
            return _computed(node.body if _computed(node.test, values) else node.orelse, values)
        case ast.Compare():
            return _compared(node, values)
        case ast.Constant():
            return node.value
    parts = [_computed(part, values) for part in _parts(node)]
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


def _compared(node: ast.Compare, values: Mapping[str, Any]) -> bool:
    left = _computed(node.left, values)
    for op, comparator in zip(node.ops, node.comparators, strict=True):
        right = _computed(comparator, values)
        if not _COMPARISONS[type(op)](left, right):
            return False
        left = right
    return True


def _found(name: str, values: Mapping[str, Any]) -> Any:
    if name not in values:
        raise _Absent
    return values[name]
