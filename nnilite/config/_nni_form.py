"""NNI's canonical form of a config: each training service's part also has what it gets from the top level."""

from __future__ import annotations

from collections.abc import Mapping

from nnilite.records import Json

_TAKEN = {"trialCommand": None, "trialCodeDirectory": None, "trialGpuNumber": None, "debug": False}
"""The fields that NNI copies into each part, with what it writes where they are not set; None: nothing."""


def nni_form(config: Mapping[str, Json]) -> dict[str, Json]:
    """Return a config's JSON as NNI's programs expect it. What NNI does not know stays in."""
    services = config.get("trainingService")
    if isinstance(services, list):
        return {**config, "trainingService": [_part(one, config) for one in services]}
    return {**config, "trainingService": _part(services, config)} if services is not None else dict(config)


def _part(service: Json, config: Mapping[str, Json]) -> Json:
    if not isinstance(service, Mapping):
        return service
    taken = {name: config.get(name, default) for name, default in _TAKEN.items()}
    return {**{name: value for name, value in taken.items() if value is not None}, **service}
