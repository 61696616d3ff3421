"""Constraints between parameters: expressions over their names, such as `batch * layers <= 512`.

See `expressions` for what they may have. `layer.size` is a parameter below a nested choice, and `layer` itself the name
of the chosen option. A constraint on a parameter that does not count in this trial is satisfied.
"""

from __future__ import annotations

import ast
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nnilite.errors import SpaceError
from nnilite.space import expressions
from nnilite.space.expressions import FUNCTIONS
from nnilite.space.search_space import SearchSpace

__all__ = ["FUNCTIONS", "Constraints"]

_TRIES = 10_000  # random sets of parameters, of which one must satisfy all constraints
_COMPUTED = 200  # random sets of parameters for which every constraint must have a value


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
        return cls(tuple(texts), tuple(expressions.parse(text, set(paths)) for text in texts), paths)

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
        return bool(expressions.compute(tree, values))
    except expressions.Absent:
        return True
    except (ArithmeticError, ValueError):  # as the logarithm of 0
        return False
    except TypeError as error:
        raise SpaceError(f"{text!r} cannot be computed: {error}") from None
