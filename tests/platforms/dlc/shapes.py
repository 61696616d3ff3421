"""What requests may hold: the fields that the models of Alibaba's library have, with the types that they name.

A model takes what it knows of a JSON object, and leaves out the rest in silence. So what it gives back is compared with
what it got; and the types of its fields, which it does not check, stand in the hints of its constructor.
"""

from __future__ import annotations

import typing
from typing import Any

from alibabacloud_pai_dlc20201203 import models
from darabonba.model import DaraModel


def broken(model: type[DaraModel], given: Any) -> str:
    """What is wrong with a body, "" if all is well."""
    if not isinstance(given, dict):
        return f"{model.__name__} must be an object"
    try:
        made = model().from_map(dict(given))
        made.validate()
        back = made.to_map()
    except Exception as error:  # noqa: BLE001 - whatever it raises, the body was not one of this kind
        return f"{model.__name__} cannot be made of {given!r:.200}: {error!r}"
    wrong = _difference(given, back, model.__name__)
    return wrong or _mistyped(made)


def _difference(given: Any, back: Any, place: str) -> str:
    if isinstance(given, dict) and isinstance(back, dict):
        for name, value in given.items():
            if name not in back:
                if value in ([], None):
                    continue
                return f"{place} has no field {name}"
            wrong = _difference(value, back[name], f"{place}.{name}")
            if wrong:
                return wrong
        return ""
    if isinstance(given, list) and isinstance(back, list) and len(given) == len(back):
        pairs = enumerate(zip(given, back, strict=True))
        return next(filter(None, (_difference(one, two, f"{place}[{n}]") for n, (one, two) in pairs)), "")
    return "" if given == back else f"{place} is {given!r:.100}, which is taken for {back!r:.100}"


def _mistyped(made: DaraModel) -> str:
    hints = _hints_of(type(made))
    for name, hint in hints.items():
        value = getattr(made, name, None)
        if value is None:
            continue
        values = value if isinstance(value, list) else [value]
        for one in values:
            if isinstance(one, DaraModel):
                wrong = _mistyped(one)
                if wrong:
                    return wrong
        if hint in (str, int, float, bool) and not (type(value) is hint or (hint is float and type(value) is int)):
            return f"{type(made).__name__}.{name} must be {hint.__name__}, and is {value!r:.100}"
        texts = value.items() if typing.get_args(hint) == (str, str) else ()
        if any(not isinstance(item, str) for pair in texts for item in pair):
            return f"{type(made).__name__}.{name} must have texts only"
    return ""


def _hints_of(model: type[DaraModel]) -> dict[str, Any]:
    """The types of its fields. Before Python 3.11, a default of None makes each of them optional."""
    hints = typing.get_type_hints(model.__init__, {**vars(models), **vars(typing), "main_models": models})
    parts = {name: typing.get_args(hint) for name, hint in hints.items()}
    return {name: parts[name][0] if parts[name][1:] == (type(None),) else hint for name, hint in hints.items()}


def broken_query(model: type[DaraModel], given: dict[str, str]) -> str:
    """What is wrong with a query, whose values are all texts."""
    hints = _hints_of(model)
    kinds = {name.replace("_", "").lower(): hint for name, hint in hints.items()}
    for name, value in given.items():
        hint = kinds.get(name.lower())
        if hint is None:
            return f"{model.__name__} has no field {name}"
        if hint is int and not value.isdecimal():
            return f"{model.__name__}.{name} must be a number, and is {value!r}"
        if hint is bool and value.lower() not in ("true", "false"):
            return f"{model.__name__}.{name} must be true or false, and is {value!r}"
    return ""
