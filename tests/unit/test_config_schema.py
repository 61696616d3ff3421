"""What editors and the reference get of the config."""

from __future__ import annotations

import copy
from dataclasses import dataclass

import jsonschema_rs
import pytest

from nnilite._plugins import lookup
from nnilite.config import from_dict, json_schema, reference_markdown
from nnilite.errors import ConfigError, PluginError

pytestmark = pytest.mark.usefixtures("platforms")

LAYERS = [{"_name": "Empty"}, {"_name": "Conv", "size": {"_type": "choice", "_value": [2, 3]}}]
NESTED = {
    "lr": {"_type": "loguniform", "_value": [1e-5, 0.1]},
    "layer": {"_type": "choice", "_value": LAYERS},
}
CLOUD = {"platform": "cloud", "machineList": [{"host": "h", "user": "u"}], "memory": "4gb", "size": "large"}
GOOD = {
    "searchSpace": NESTED,
    "trialCommand": "run",
    "trialConcurrency": 1,
    "maxTrialDuration": "0.5h",
    "maxTrialNumber": None,
    "tunerGpuIndices": "0,1",
    "tuner": {"name": "TPE", "classArgs": {"a": [1]}},
    "trainingService": [{"platform": "local", "useActiveGpu": False, "trialGpuNumber": 1}, CLOUD],
    "codeLimits": {"maxSize": "1gb"},
}


def complaints(config):
    return [error.message for error in jsonschema_rs.validator_for(json_schema()).iter_errors(config)]


def test_the_schema_accepts_what_the_check_accepts():
    assert complaints(GOOD) == []
    assert complaints(from_dict(GOOD).json()) == []


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (["trialConcurency"], 1),
        (["trialConcurrency"], "2"),
        (["trialConcurrency"], 0),
        (["maxTrialDuration"], "1h30m"),
        (["tunerGpuIndices"], "a"),
        (["tuner", "nam"], "x"),
        (["logLevel"], "loud"),
        (["trainingService", 0, "useActivGpu"], True),
        (["trainingService", 1, "machineList", 0, "port"], 0),
        (["trainingService", 1, "size"], "huge"),
        (["codeLimits", "maxSize"], "300"),
        (["searchSpace", "lr", "_value"], [0, 1]),
        (["searchSpace", "layer", "_value", 1, "size", "_type"], "choise"),
    ],
)
def test_schema_and_check_refuse_the_same(path, value):
    config = copy.deepcopy(GOOD)
    node = config
    for part in path[:-1]:
        node = node[part]
    node[path[-1]] = value
    assert complaints(config) != []
    with pytest.raises(ConfigError):
        from_dict(config).checked()


def test_the_schema_has_descriptions_and_defaults():
    properties = json_schema()["properties"]
    assert properties["maxTrialRetries"]["default"] == 1
    assert "description" in properties["trialConcurrency"]
    assert properties["tuner"]["properties"]["name"]["examples"] == ["GridSearch", "Random", "TPE"]


def test_a_platform_whose_libraries_are_missing_does_not_spoil_the_schema(monkeypatch):
    def missing(name):
        raise PluginError(f"{name} needs the module 'kubernetes'.")

    monkeypatch.setattr(lookup, "training_service_class", missing)
    assert "kubernetes" in reference_markdown()
    assert complaints({**GOOD, "trainingService": {"platform": "cloud", "whatever": 1}}) == []


def test_the_reference_has_every_field_with_its_description():
    text = reference_markdown()
    assert "| `tunerTimeout` | duration | `1h` |" in text
    assert "| `maxOutputSize` | size | `100mb` |" in text
    assert "| `useActiveGpu` | boolean |  | also use GPUs that others work on |" in text
    assert "## `machineList` of platform `cloud`" in text


@dataclass
class Strange:
    stream: complex = 1j


def test_a_plugin_with_an_impossible_field_is_told_so(monkeypatch):
    service = type("Service", (), {"Config": Strange})
    monkeypatch.setattr(lookup, "training_service_class", lambda _: service)
    with pytest.raises(PluginError, match="complex"):
        from_dict({**GOOD, "trainingService": {"platform": "local"}}).checked()
