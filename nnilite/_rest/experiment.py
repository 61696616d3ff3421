"""Handlers about the experiment itself: its profile, limits and logs, and the machine's other experiments."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from nnilite import _version
from nnilite._rest import wire
from nnilite._rest.handler import ApiHandler
from nnilite._rest.trials import oddity, send_piece
from nnilite._shapes import to_json
from nnilite.errors import ConfigError, Place
from nnilite.records import Json
from nnilite.units import MAX_CONCURRENCY

IMPORT_MAX = 100_000
COUNT_MAX = 10**9


class VersionHandler(ApiHandler):
    """The versions of nnilite and the id of the experiment."""

    def get(self) -> None:
        self.send_json({"version": _version.__version__, "experiment": self.backend.experiment_id})


class ExperimentHandler(ApiHandler):
    """The profile, and changes of limits and search space."""

    async def get(self) -> None:
        self.send_json(to_json(await self.backend.profile()))

    async def patch(self) -> None:
        self.send_json(to_json(await self.backend.update(read_changes(self.json()))))


class StopHandler(ApiHandler):
    """Stops the experiment."""

    async def post(self) -> None:
        wire.strict_object(self.json(), [])
        await self.backend.stop()
        self.send_json({"stopping": True}, 202)


class ResumeHandler(ApiHandler):
    """Resumes an experiment that is only viewed."""

    async def post(self) -> None:
        wire.strict_object(self.json(), [])
        await self.backend.resume()
        self.send_json({"resuming": True}, 202)


class ImportHandler(ApiHandler):
    """Hands the tuner results known from elsewhere."""

    async def post(self) -> None:
        pairs = read_pairs(self.json())
        imported = await self.backend.import_data(pairs)
        space = (await self.backend.profile()).space
        warning = await asyncio.to_thread(oddity, space, [parameters for parameters, _ in pairs])
        self.send_json({"imported": imported, "warning": warning})


class LogHandler(ApiHandler):
    """A piece of the manager's or the tuner's log."""

    async def get(self, name: str) -> None:
        send_piece(self, await self.backend.log(name, self.query["offset"], self.query["limit"]))


class ExperimentsHandler(ApiHandler):
    """All experiments of this machine."""

    async def get(self) -> None:
        self.send_json({"experiments": [to_json(item) for item in await self.backend.others()]})


class SignInLinkHandler(ApiHandler):
    """A one-time link to the user interface."""

    def post(self) -> None:
        wire.strict_object(self.json(), [])
        self.send_json({"path": f"{self.site.options.prefix}/?token={self.site.gate.sign_in.link()}"}, 201)


def read_changes(body: Json) -> dict[str, Json]:
    """The requested changes, by the snake_case names of the config's fields. Raises: ConfigError."""
    given = wire.strict_object(body, list(_CHANGES))
    if not given:
        raise ConfigError(f"say what to change: {', '.join(_CHANGES)}")
    changes = {}
    for name, value in given.items():
        field, fits, wanted = _CHANGES[name]
        changes[field] = _whole(value)
        if not fits(changes[field]):
            raise ConfigError(f"must be {wanted}", Place(field=name))
    return changes


def _whole(value: Json) -> Json:
    """A number as an int if it is whole: in JSON, 2.0 is a whole number as well."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def read_pairs(body: Json) -> list[tuple[Json, Json]]:
    """Pairs of parameters and value from NNI's `[{"parameter": {...}, "value": ...}]`. Raises: ConfigError."""
    if not isinstance(body, list) or len(body) > IMPORT_MAX:
        raise ConfigError(f'results must be a list of at most {IMPORT_MAX} {{"parameter": {{...}}, "value": ...}}')
    return [_pair(number, item) for number, item in enumerate(body)]


def _pair(number: int, item: Json) -> tuple[Json, Json]:
    if not isinstance(item, dict) or not isinstance(item.get("parameter"), dict) or "value" not in item:
        raise ConfigError('must be {"parameter": {...}, "value": ...}', Place(field=f"[{number}]"))
    return item["parameter"], item["value"]


def _is_concurrency(value: Json) -> bool:
    return type(value) is int and 1 <= value <= MAX_CONCURRENCY


def _is_count_or_none(value: Json) -> bool:
    return value is None or (type(value) is int and 1 <= value <= COUNT_MAX)


def _is_duration_or_none(value: Json) -> bool:
    return _is_count_or_none(value) or (isinstance(value, str) and 0 < len(value) <= 40)


def _is_cost_or_none(value: Json) -> bool:
    return value is None or (type(value) in (int, float) and 0 <= value <= COUNT_MAX)


def _is_object(value: Json) -> bool:
    return isinstance(value, dict)


_DURATION = 'a number of seconds, a text such as "2h", or null for no limit'
_CHANGES: dict[str, tuple[str, Callable[[Json], bool], str]] = {
    "trialConcurrency": ("trial_concurrency", _is_concurrency, f"a whole number from 1 to {MAX_CONCURRENCY}"),
    "maxTrialNumber": ("max_trial_number", _is_count_or_none, "a whole number from 1, or null for no limit"),
    "maxExperimentDuration": ("max_experiment_duration", _is_duration_or_none, _DURATION),
    "maxTrialDuration": ("max_trial_duration", _is_duration_or_none, _DURATION),
    "maxCost": ("max_cost", _is_cost_or_none, "a number from 0, or null for no limit"),
    "searchSpace": ("search_space", _is_object, "an object"),
}
