"""The part of the config that is about several services and money."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nnilite.config import ExperimentConfig, from_dict, from_stored, read_stored, stored
from nnilite.errors import ConfigError, DamagedFile

MINIMAL: dict[str, Any] = {
    "searchSpace": {"x": {"_type": "uniform", "_value": [0, 1]}},
    "trialCommand": "true",
    "trialConcurrency": 2,
    "tuner": {"name": "Random"},
}


TWO = {"name": "Auto", "classArgs": {"objectives": {"accuracy": "maximize", "size": "minimize"}}}


def checked(*services: dict[str, Any], **more: Any) -> ExperimentConfig:
    given = [{"platform": "local", **service} for service in services]
    return from_dict({**MINIMAL, "trainingService": given, **more}).checked()


def test_services_have_names_limits_weights_and_costs_and_are_written_back() -> None:
    config = checked({"name": "own", "maxTrials": 2, "cost": 0}, {"name": "spot", "weight": 2.5, "cost": "1e-3"})
    assert [service.name for service in config.services] == ["own", "spot"]
    assert (config.share("own").max_trials, config.share("spot").weight, config.share("spot").cost) == (2, 2.5, 0.001)
    again = from_dict(config.json()).checked()
    assert [again.share(name) for name in ("own", "spot")] == [config.share(name) for name in ("own", "spot")]


def test_a_service_has_its_own_command_gpus_and_code(tmp_path: Path) -> None:
    config = checked({"name": "a", "trialCommand": "own", "trialGpuNumber": 0, "trialCodeDirectory": str(tmp_path)}, {})
    own, other = config.settings("a"), config.settings("local-2")
    assert (own.trial_command, own.trial_gpu_number, own.trial_code_directory) == ("own", 0, tmp_path)
    assert (other.trial_command, other.trial_gpu_number) == ("true", None)


@pytest.mark.parametrize(
    ("services", "more", "place", "reason"),
    [
        ([{"name": "a"}, {"name": "a"}], {}, "trainingService[1].name", "two services are called 'a'"),
        ([{}, {"name": "local"}], {}, "trainingService[1].name", "give each a name of its own"),
        ([{"cost": -1}], {}, "trainingService[0].cost", "must be at least 0, not -1"),
        ([{"cost": "nan"}], {}, "trainingService[0].cost", "must be at least 0"),
        ([{"weight": 0}], {}, "trainingService[0].weight", "must be above 0, not 0"),
        ([{"maxTrials": 0}], {}, "trainingService[0].maxTrials", "must be at least 1"),
        ([{"name": "a b"}], {}, "trainingService[0].name", "use letters, digits, dots"),
        ([{"cost": 1}, {}], {"placement": "cheapest"}, "placement", "local-2 has none (0 is free)"),
        ([{}], {"maxCost": 5}, "maxCost", "give the services their cost"),
        ([{"cost": 1}], {"maxCost": -5}, "maxCost", "must be at least 0, not -5"),
        ([{"cost": 1}], {"placement": "best"}, "placement", "fill"),
        ([{}], {"stopAtValue": "nan"}, "stopAtValue", "must be a finite number, not nan"),
        ([{}], {"stopAtValue": True}, "stopAtValue", "must be a number, not True"),
        ([{}], {"stopAtValue": 1, "tuner": TWO}, "stopAtValue", "name the one that is meant `default`"),
    ],
)
def test_bad_input_is_one_sentence_with_place_and_cure(
    services: list[dict[str, Any]], more: dict[str, Any], place: str, reason: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        checked(*services, **more)
    assert caught.value.place.field == place
    assert reason in caught.value.message


def test_gpus_and_address_of_one_service_are_not_those_of_another_after_the_config_was_stored():
    services = [{"platform": "local", "nniManagerIp": "10.0.0.1", "trialGpuNumber": 0}, {"platform": "local"}]
    stored = from_dict({**MINIMAL, "trainingService": services}).checked().json(secrets=True)
    second = from_dict(stored).checked().settings("local-2")
    assert (second.nni_manager_ip, second.trial_gpu_number) == (None, None)


def test_a_section_has_gpus_of_its_own_where_its_plugin_has_no_field_for_them(tmp_path: Path) -> None:
    section = {"platform": "slurm", "directory": str(tmp_path), "trialGpuNumber": 2}
    config = from_dict({**MINIMAL, "trainingService": section, "trialGpuNumber": 1}, tmp_path).checked()
    assert config.settings("slurm").gpus == 2
    assert from_stored(stored(config), tmp_path).checked().settings("slurm").gpus == 2


def test_a_stored_config_that_is_gone_is_damage_with_a_cure(tmp_path: Path) -> None:
    with pytest.raises(DamagedFile, match=r"config.json.*it is gone.*restore it from a copy"):
        read_stored(tmp_path)
