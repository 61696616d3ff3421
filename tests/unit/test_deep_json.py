"""JSON that is nested too deep: Python raises RecursionError for it, which is no ValueError."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]


def guards() -> Iterator[tuple[str, set[str]]]:
    """Yield the place of each `try` that reads JSON, and the errors that it catches."""
    for source in (path for part in ("nnilite", "training_services", "tuners") for path in (ROOT / part).rglob("*.py")):
        text = source.read_text("utf-8")
        # Most files read nothing, and to parse them all takes seconds.
        for node in ast.walk(ast.parse(text)) if "load" in text else ():
            if isinstance(node, ast.Try) and any(reads_json(one) for step in node.body for one in ast.walk(step)):
                kinds = [handler.type for handler in node.handlers if handler.type is not None]
                names = {one.attr if isinstance(one, ast.Attribute) else getattr(one, "id", "") for one in each(kinds)}
                yield f"{source.relative_to(ROOT)}:{node.lineno}", names


def each(kinds: list[ast.expr]) -> Iterator[ast.expr]:
    for kind in kinds:
        yield from kind.elts if isinstance(kind, ast.Tuple) else [kind]


def reads_json(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    called = node.func
    if isinstance(called, ast.Attribute):
        return called.attr in ("loads", "load") and getattr(called.value, "id", "") == "json"
    return isinstance(called, ast.Name) and called.id == "loads"


def test_who_expects_invalid_json_expects_json_that_is_nested_too_deep() -> None:
    found = dict(guards())
    assert len(found) > 40
    expecting = {place: names for place, names in found.items() if names & {"ValueError", "JSONDecodeError"}}
    assert [place for place, names in expecting.items() if not names & {"RecursionError", "Exception"}] == []
