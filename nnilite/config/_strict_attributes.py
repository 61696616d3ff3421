"""The base class of the config classes that people fill in from Python."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from nnilite.config._python_hints import hint


class Fields:
    """A dataclass that refuses unknown attributes, so that none is set by mistake. Names with `_` are internal."""

    if not TYPE_CHECKING:  # type checkers know the fields, and would read these as permission for any others

        def __new__(cls, *arguments: Any, **fields: Any) -> Fields:
            known = [field.name for field in dataclasses.fields(cls)]
            # A class with an `__init__` of its own decides itself which names it takes.
            for name in fields if cls.__dataclass_params__.init else ():
                if name not in known:
                    raise TypeError(_explain_no_field(cls, name, known))
            return super().__new__(cls)

    if not TYPE_CHECKING:  # type checkers know the fields, and would read this as permission to set any other

        def __setattr__(self, name: str, value: Any) -> None:
            known = [field.name for field in dataclasses.fields(self)]
            if not name.startswith("_") and name not in known:
                raise AttributeError(_explain_no_field(type(self), name, known))
            self._assign(name, value)

        def __getattr__(self, name: str) -> Any:
            known = [field.name for field in dataclasses.fields(self)]
            raise AttributeError(name if name.startswith("_") else _explain_no_field(type(self), name, known))

    def _assign(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)


def _explain_no_field(cls: type, name: str, known: list[str]) -> str:
    return f"{cls.__name__} has no field {name!r}{hint(cls.__name__, name, known)}"
