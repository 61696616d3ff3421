"""JSON on the wire: the only place that knows its names and its spelling of numbers.

Names are camelCase. Times are seconds since the epoch, durations seconds, both as numbers. JSON has no NaN and no
infinity: as values of trials and metrics they travel as the strings "NaN", "Infinity" and "-Infinity".
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from nnilite._rest.changes import Change
from nnilite._rest.views import CallbackAnswer, FileEntry, Limits, Listed, MetricPage, Profile, TrialPage
from nnilite.errors import ConfigError, Place
from nnilite.records import Attempt, Host, Json, Metric, Trial

MAX_DEPTH = 100  # nested deeper, a later recursion over the value could overflow the stack
MAX_DIGITS = 300  # a longer whole number has no float

Object = dict[str, Json]


def camel(name: str) -> str:
    """`max_trial_number` -> `maxTrialNumber`."""
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


# Out


def dumps(value: Json) -> str:
    """Strict JSON in ASCII (so that even a lone surrogate in a user's text can travel)."""
    try:
        return json.dumps(value, allow_nan=False, separators=(",", ":"))
    except ValueError:
        return json.dumps(_finite(value), allow_nan=False, separators=(",", ":"))


def _finite(value: Json) -> Json:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value


def trial(trial: Trial) -> Object:
    return {
        "id": trial.id,
        "sequence": trial.sequence,
        "state": trial.state.value,
        "reason": trial.reason,
        "parameters": trial.parameters,
        "parameterId": trial.parameter_id,
        "source": trial.source,
        "attempt": trial.attempt,
        "created": trial.created,
        "started": trial.started,
        "ended": trial.ended,
        "value": trial.value,
    }


def attempt(attempt: Attempt) -> Object:
    """The handle stays here: what a platform needs to find its job is nobody else's business."""
    return {
        "trial": attempt.trial,
        "number": attempt.number,
        "service": attempt.service,
        "state": attempt.state,
        "started": attempt.started,
        "ended": attempt.ended,
        "exitCode": attempt.exit_code,
        "message": attempt.message,
        "host": attempt.host,
        "url": attempt.url,
    }


def trial_details(item: Trial, attempts: Sequence[Attempt]) -> Object:
    return {**trial(item), "attempts": [attempt(one) for one in attempts]}


def trial_page(page: TrialPage) -> Object:
    trials = [{**trial(item), "latest": page.latest.get(item.id)} for item in page.trials]
    return {"trials": trials, "total": page.total, "revision": page.revision}


def metric(metric: Metric) -> Object:
    return {
        "trial": metric.trial,
        "attempt": metric.attempt,
        "index": metric.index,
        "kind": metric.kind.value,
        "sequence": metric.sequence,
        "value": metric.value,
        "time": metric.time,
    }


def metric_page(page: MetricPage) -> Object:
    return {"metrics": [metric(item) for item in page.metrics], "next": page.next}


def limits(limits: Limits) -> Object:
    return {
        "trialConcurrency": limits.trial_concurrency,
        "maxTrialNumber": limits.max_trial_number,
        "maxExperimentDuration": limits.max_experiment_duration_s,
        "maxTrialDuration": limits.max_trial_duration_s,
    }


def host(host: Host) -> Object:
    return {
        "name": host.name,
        "state": host.state,
        "reason": host.reason,
        "running": host.running,
        "details": dict(host.details),
    }


def profile(profile: Profile) -> Object:
    return {
        "id": profile.id,
        "name": profile.name,
        "state": profile.state.value,
        "reason": profile.reason,
        "config": dict(profile.config),
        "searchSpace": profile.space,
        "platforms": list(profile.platforms),
        "directory": profile.directory,
        "version": profile.version,
        "created": profile.created,
        "started": profile.started,
        "ended": profile.ended,
        "duration": profile.duration_s,
        "limits": limits(profile.limits),
        "counts": {state.value: count for state, count in profile.counts.items()},
        "best": None if profile.best is None else trial(profile.best),
        "optimize": profile.optimize,
        "hosts": [host(item) for item in profile.hosts],
        "waiting": [{"reason": item.reason, "count": item.count} for item in profile.waiting],
        "port": profile.port,
        "url": profile.url,
        "pid": profile.pid,
        "readOnly": profile.read_only,
        "nextSequence": profile.next_sequence,
        "revision": profile.revision,
    }


def listed(item: Listed) -> Object:
    return {
        "id": item.id,
        "name": item.name,
        "state": item.state,
        "port": item.port,
        "url": item.url,
        "pid": item.pid,
        "directory": item.directory,
        "platform": item.platform,
        "started": item.started,
        "ended": item.ended,
    }


def file_entry(entry: FileEntry) -> Object:
    return {"path": entry.path, "size": entry.size, "modified": entry.modified}


def callback_answer(answer: CallbackAnswer) -> Object:
    output = {"stdout": 0, "stderr": 0, **answer.output}
    return {"cancel": answer.cancel, "metrics": answer.metrics, "output": output}


def change(item: Change) -> Object:
    """`{"type": "trial", "trial": {...}}`, and likewise metric, experiment; `{"type": "reset"}`."""
    if isinstance(item, Trial):
        return {"type": "trial", "trial": trial(item)}
    if isinstance(item, Metric):
        return {"type": "metric", "metric": metric(item)}
    if isinstance(item, Profile):
        return {"type": "experiment", "experiment": profile(item)}
    return {"type": "reset"}


def default_metric(value: Json) -> Json:
    """The number that counts: the metric itself, or its `default` where it is an object (NNI's rule)."""
    return value.get("default") if isinstance(value, dict) else value


# In


class _TooLong(ValueError):
    pass


def _int(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise _TooLong(f"a whole number has more than {MAX_DIGITS} digits")
    return int(digits)


def _no_constant(name: str) -> Json:
    raise _TooLong(f"{name} is no JSON; write it as a string")


def _float(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise _TooLong(f"{clean(digits, 20)} is too large for a number")
    return value


_STRICT = json.JSONDecoder(parse_int=_int, parse_float=_float, parse_constant=_no_constant)
_LENIENT = json.JSONDecoder(parse_int=_int)


def loads(data: bytes) -> Json:
    """Read a strict JSON text in UTF-8. Raises: ConfigError with a sentence."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(f"the body is not UTF-8: {error.reason} at byte {error.start}") from None
    return _loads(text, _STRICT.decode, "the body")


def loads_metric(text: str) -> Json:
    """Read the JSON text of a metric, in which NaN and infinity may stand. Raises: ConfigError."""
    return _loads(text, _LENIENT.decode, "a metric")


def _loads(text: str, decode: Callable[[str], Any], what: str) -> Json:
    try:
        value = decode(text)
    except json.JSONDecodeError as error:
        raise ConfigError(f"{what} is not JSON: {error}") from None
    except _TooLong as error:
        raise ConfigError(f"{what} cannot be taken: {error}") from None
    except RecursionError:
        raise ConfigError(f"{what} is nested more than {MAX_DEPTH} deep") from None
    if text.count("[") + text.count("{") > MAX_DEPTH and deeper(value, MAX_DEPTH):
        raise ConfigError(f"{what} is nested more than {MAX_DEPTH} deep")
    return value


def deeper(value: Json, depth: int) -> bool:
    """Whether a value is nested more than `depth` deep."""
    level = [value]
    for _ in range(depth + 1):
        level = [item for box in level if isinstance(box, dict | list) for item in _items(box)]
        if not level:
            return False
    return True


def _items(box: dict[str, Json] | list[Json]) -> list[Json]:
    return list(box.values()) if isinstance(box, dict) else box


def strict_object(value: Json, known: Sequence[str], what: str = "the body") -> Object:
    """Check that a value is an object without unknown fields. Raises: ConfigError."""
    if not isinstance(value, dict):
        raise ConfigError(f"{what} must be a JSON object")
    for name in value:
        if name not in known:
            listing = f"known are {', '.join(known)}" if known else "none is expected"
            raise ConfigError(f"unknown field '{clean(name)}'; {listing}", Place(field=clean(name)))
    return value


_UNPRINTABLE = re.compile(r"[^\x20-\x7e]")


def clean(text: str, limit: int = 100) -> str:
    """A piece of foreign text, made fit for a one-line message."""
    return _UNPRINTABLE.sub("?", text[:limit])
