"""JSON on the wire: bodies are read strictly, and records joined to answers.

The fields of a record get their names from `nnilite.records.shapes`.

Names are camelCase. Times are seconds since the epoch, durations seconds, both as numbers. JSON has no NaN and no
infinity: `nnilite.records.strict_json` writes strings in their place.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence

from nnilite._answers.changes import Change
from nnilite._answers.queries import Profile, TrialPage, TrialRemarks, TrialUsage
from nnilite.errors import ConfigError, Place
from nnilite.records import Attempt, Json, Metric, Trial
from nnilite.records.shapes import to_json
from nnilite.services.keeper_events import MAX_DEPTH, MAX_DIGITS, deeper

Object = dict[str, Json]


# Out


Remarked = Mapping[str, TrialRemarks]
"""Remarks by trial."""


def remarked(item: Trial, known: Remarked) -> Object:
    """Return a trial with its tags and its note."""
    mine = known.get(item.id) or TrialRemarks(item.id)
    return {**to_json(item), "tags": list(mine.tags), "note": mine.note}


def describe_trial(item: Trial, attempts: Sequence[Attempt], known: Remarked, use: TrialUsage | None) -> Object:
    shown = None if use is None else to_json(use)
    return {**remarked(item, known), "attempts": [to_json(one) for one in attempts], "use": shown}


def describe_trial_page(page: TrialPage, known: Remarked) -> Object:
    trials = [{**remarked(item, known), "latest": page.latest.get(item.id)} for item in page.trials]
    return {"trials": trials, "total": page.total, "revision": page.revision}


def change(item: Change) -> Object:
    """Return `{"type": "trial", "trial": {...}}`, and likewise metric, remarks, experiment; `{"type": "reset"}`."""
    if isinstance(item, Trial):
        return {"type": "trial", "trial": to_json(item)}
    if isinstance(item, Metric):
        return {"type": "metric", "metric": to_json(item)}
    if isinstance(item, TrialRemarks):
        return {"type": "remarks", "remarks": to_json(item)}
    if isinstance(item, Profile):
        return {"type": "experiment", "experiment": to_json(item)}
    return {"type": "reset"}


def find_default_metric(value: Json) -> Json:
    """Return the number of a metric by NNI's rule: the metric itself, or its `default` if it is an object."""
    return value.get("default") if isinstance(value, dict) else value


# In


class _BadNumber(ValueError):
    pass


def _int(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise _BadNumber(f"a whole number has more than {MAX_DIGITS} digits")
    return int(digits)


def _refuse_constant(name: str) -> Json:
    raise _BadNumber(f"{name} is not JSON; write it as a string")


def _float(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise _BadNumber(f"{clean(digits, 20)} is too large for a number")
    return value


_STRICT = json.JSONDecoder(parse_int=_int, parse_float=_float, parse_constant=_refuse_constant)


def loads(data: bytes) -> Json:
    """Read a strict JSON text in UTF-8. Raises: ConfigError with a sentence."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(f"the body is not UTF-8: {error.reason} at byte {error.start}") from None
    try:
        value = _STRICT.decode(text)
    except json.JSONDecodeError as error:
        raise ConfigError(f"the body is not JSON: {error}") from None
    except _BadNumber as error:
        raise ConfigError(f"the body cannot be read: {error}") from None
    except RecursionError:
        raise ConfigError(f"the body is nested more than {MAX_DEPTH} deep") from None
    if text.count("[") + text.count("{") > MAX_DEPTH and deeper(value, MAX_DEPTH):
        raise ConfigError(f"the body is nested more than {MAX_DEPTH} deep")
    return value


def check_strict_object(value: Json, known: Sequence[str]) -> Object:
    """Check that a body is an object without unknown fields. Raises: ConfigError."""
    if not isinstance(value, dict):
        raise ConfigError("the body must be a JSON object")
    for name in value:
        if name not in known:
            listing = f"known are {', '.join(known)}" if known else "none is expected"
            raise ConfigError(f"unknown field '{clean(name)}'; {listing}", Place(field=clean(name)))
    return value


def read_fields(value: Json, names: Sequence[str]) -> list[Json]:
    """Return the values of an object that must have exactly these fields. Raises: ConfigError."""
    given = check_strict_object(value, names)
    for name in names:
        if name not in given:
            raise ConfigError("is needed", Place(field=name))
    return [given[name] for name in names]


_UNPRINTABLE = re.compile(r"[^\x20-\x7e]")


def clean(text: str, limit: int = 100) -> str:
    """Return a piece of foreign text in a form for a one-line message."""
    return _UNPRINTABLE.sub("?", text[:limit])
