"""Each option of an experiment has a verdict on each platform, alone and in lists: it has an effect, or that is said.

What services declare (`TrainingService.ignores`) is held against their sources. A new field without a verdict fails.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
import typing
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from nnilite._manager import assembly
from nnilite._plugins import lookup
from nnilite.config import BY_MANAGER, BY_WORKERS, DistributedConfig, ExperimentConfig, from_dict
from nnilite.config._fields import camel
from nnilite.config._record import record_of
from nnilite.config._services import SHORTCUTS
from nnilite.errors import ConfigError
from nnilite.service import IgnoredOption, TrainingService
from nnilite.testing.fakes import FakeService

ROOT = Path(__file__).resolve().parents[2]
SECTIONS: dict[str, dict[str, Any]] = {
    "local": {},
    "remote": {"machineList": [{"host": "h", "user": "u"}]},
    "kubernetes": {},
    "kubeflow": {"operator": "tf-operator", "worker": {}},
    "frameworkcontroller": {"taskRoles": [{"name": "worker"}]},
    "adl": {},
    "determined": {"master": "http://m", "token": "t"},
    "dlts": {"dashboard": "http://d", "team": "t", "email": "e", "password": "p", "image": "i"},
    "openpai": {"host": "h", "username": "u", "token": "t"},
    "pai": {"host": "h", "username": "u", "token": "t"},
    "aml": {"subscriptionId": "s", "resourceGroup": "g", "workspaceName": "w", "instanceType": "D2"},
    "dlc": {"region": "cn-x", "image": "i", "ecsSpec": "ecs.x", "accessKeyId": "a", "accessKeySecret": "s"},
    "redis": {"redis": "redis://h"},
    "ray": {"address": "http://r:8265"},
    "batch": {"scheduler": "gridengine"},
    "slurm": {},
    "simulated": {"curves": "curves.jsonl"},
}
PLATFORMS = sorted(SECTIONS)
ALL: dict[str, Any] = {
    "trialCommand": "python3 trial.py",
    "codeLimits": {"maxFiles": 10},
    "trialGpuNumber": 0,
    "nniManagerIp": "192.0.2.1",
    "callback": "log",
    "sharedStorage": {"storageType": "S3", "bucket": "b", "contents": ["code"]},
    "checkpoint": {"keep": "best", "maxSize": "1gb"},
    "gracePeriod": 20,
    "retryOn": [7],
    "maxOutputSize": "1mb",
}
"""The options that depend on the platform, none of them as it is by default."""


def experiment(folder: Path, *platforms: str, **more: Any) -> ExperimentConfig:
    """A checked config with one service for each of the platforms."""
    (folder / "curves.jsonl").write_text("[0.5]\n")
    sections = [{"platform": name, **SECTIONS[name]} for name in platforms]
    config = {
        "searchSpace": {"x": {"_type": "uniform", "_value": [0, 1]}},
        "tuner": {"name": "Random"},
        "trialConcurrency": 1,
        "trialCommand": "true",
        "trainingService": sections if len(sections) > 1 else sections[0],
    }
    return from_dict({**config, **more}, folder).checked()


@cache
def verdicts(folder: Path, platform: str) -> frozenset[tuple[str, str]]:
    """What of ALL has no effect on a platform that is alone, and why."""
    return frozenset((one.option, one.why) for one in experiment(folder, platform, **ALL).without_effect)


# ---------------------------------------------------------------- what the sources of a service use


@dataclass(frozen=True)
class Uses:
    """The names that a service's sources use, without those where a section is only checked."""

    names: frozenset[str]
    compares_report: bool


@cache
def uses(platform: str) -> Uses:
    cls = lookup.training_service_class(platform)
    package = Path(inspect.getfile(cls)).parent
    # Services inherit from what `nnilite.services` has for several of them.
    bases = {Path(inspect.getfile(base)).parent for base in cls.__mro__ if "nnilite.services." in base.__module__}
    shared = [ROOT / "nnilite/ssh", ROOT / "nnilite/platform_http", *bases]
    places = [*package.rglob("*.py"), *(place for folder in shared for place in folder.glob("*.py"))]
    nodes = [node for place in places for node in _nodes(ast.parse(place.read_text("utf-8")))]
    attributes = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    texts = {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    compared = [ast.unparse(node) for node in nodes if isinstance(node, ast.Compare)]
    pairs = (("report", "'stdout'"), ("callback", "'log'"))
    told = any(name in text and value in text for text in compared for name, value in pairs)
    return Uses(frozenset(attributes | texts), told)


def _nodes(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes but those that only check."""
    first = isinstance(node, ast.FunctionDef) and node.name == "__post_init__"
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef) and child.name.lstrip("_").startswith("check"):
            continue
        if first and isinstance(child, ast.If | ast.For):
            continue
        yield child
        yield from _nodes(child)


def has_effect(option: str, platform: str) -> bool:
    """Whether the sources of a service do something with an option of the experiment."""
    names, runs_keeper = uses(platform).names, "spec_for" in uses(platform).names
    if option == "callback":
        # One without keepers has nothing but what it reads itself.
        return uses(platform).compares_report or not runs_keeper
    if option == "trialCodeDirectory":
        return bool(names & {"package", "code_directory"})
    if option == "codeLimits":
        return "package" in names
    if option == "nniManagerIp":
        return "nni_manager_ip" in names
    # All else is in the keeper's specification, or, as the number of GPUs, beside it.
    return runs_keeper


def find_fields(cls: type) -> Iterator[str]:
    """The names of all fields of a section, those of its parts included."""
    hints = typing.get_type_hints(cls)
    for field in dataclasses.fields(cls):
        if field.init:
            yield field.name
            for part in _classes(hints[field.name]):
                yield from (f"{field.name}.{name}" for name in find_fields(part))


def _classes(hint: Any) -> Iterator[type]:
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        yield hint
    for argument in typing.get_args(hint):
        yield from _classes(argument)


# ---------------------------------------------------------------- the tests


def test_each_platform_is_among_those_that_are_tested() -> None:
    assert sorted(lookup.names(lookup.SERVICES)) == PLATFORMS


def test_each_option_of_an_experiment_is_seen_to_by_the_manager_or_by_the_services() -> None:
    of_services = {option.partition(".")[0] for option in BY_WORKERS}
    assert sorted([*BY_MANAGER, *of_services]) == sorted(entry.key for entry in record_of(ExperimentConfig).entries)


@pytest.mark.parametrize("platform", PLATFORMS)
def test_an_option_has_an_effect_on_a_platform_or_is_declared_to_have_none(platform: str) -> None:
    cls = lookup.training_service_class(platform)
    declared = {option: cls.honours(option) for option in BY_WORKERS}
    assert declared == {option: has_effect(option, platform) for option in BY_WORKERS}


@pytest.mark.parametrize("platform", PLATFORMS)
def test_each_field_of_a_section_has_an_effect_or_is_declared_to_have_none(platform: str) -> None:
    cls = lookup.training_service_class(platform)
    declared = {one.option for one in cls.ignores}
    # What a service takes over from the experiment is seen to with the options of the experiment.
    own = [name for name in find_fields(cls.Config) if SHORTCUTS.entry(name) is None]
    unused = [name for name in own if name.rpartition(".")[2] not in uses(platform).names]
    assert [name for name in unused if ".".join(map(camel, name.split("."))) not in declared] == []


@pytest.mark.parametrize("platform", PLATFORMS)
def test_what_is_declared_names_options_that_there_are_and_says_why(platform: str) -> None:
    cls = lookup.training_service_class(platform)
    own = {".".join(map(camel, name.split("."))) for name in find_fields(cls.Config)}
    assert [one.option for one in cls.ignores if one.option not in own.union(BY_WORKERS)] == []
    assert all(one.why and not one.why.endswith(".") for one in cls.ignores)


@pytest.mark.parametrize("first", PLATFORMS[:-1])
def test_in_a_list_each_service_says_what_it_says_alone(tmp_path: Path, first: str) -> None:
    for second in PLATFORMS[PLATFORMS.index(first) + 1 :]:
        config = experiment(tmp_path, first, second, **ALL)
        for platform in (first, second):
            found = {(one.option, one.why) for one in config.without_effect if one.service == platform}
            assert found == verdicts(tmp_path, platform), second
        honours = {name for name in (first, second) if lookup.training_service_class(name).honours("callback")}
        assert assembly.list_services_by_log(config) == honours, second


@pytest.mark.parametrize("platform", PLATFORMS)
def test_nothing_is_said_of_what_nobody_has_set(tmp_path: Path, platform: str) -> None:
    config = experiment(tmp_path, platform)
    assert [one.option for one in config.without_effect if one.option != "trialCommand"] == []


@pytest.mark.parametrize("platform", PLATFORMS)
def test_slots_are_shared_where_a_platform_has_them_and_refused_elsewhere(tmp_path: Path, platform: str) -> None:
    cls = lookup.training_service_class(platform)
    section = {"platform": platform, **SECTIONS[platform], "maxSlots": 2}
    if cls.share_slots is TrainingService.share_slots:
        with pytest.raises(ConfigError, match="maxSlots: there is no such field"):
            experiment(tmp_path, platform, trainingService=section)
    else:
        assert experiment(tmp_path, platform, trainingService=section).services[0].config.max_slots == 2


LAUNCHERS = ("torch", "mpi", "horovod", "jax", "tensorflow", "none")


@pytest.mark.parametrize("launcher", LAUNCHERS)
@pytest.mark.parametrize("platform", PLATFORMS)
def test_a_trial_of_several_processes_works_on_a_platform_or_is_refused(
    tmp_path: Path, platform: str, launcher: str
) -> None:
    works = lookup.training_service_class(platform).launchers
    given = {"nodes": 2, "processesPerNode": 2, "launcher": launcher}
    if launcher in works:
        assert "distributed" in uses(platform).names
        assert experiment(tmp_path, platform, distributed=given).distributed == DistributedConfig(2, 2, launcher)
    elif works:
        with pytest.raises(ConfigError, match=rf"distributed.launcher: {launcher} does not work on {platform}; set"):
            experiment(tmp_path, platform, distributed=given)
    else:
        with pytest.raises(ConfigError, match=f"distributed: trials of {platform} are one process on one machine"):
            experiment(tmp_path, platform, distributed=given)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"nodes": 0}, "distributed.nodes"),
        ({"nodes": {"min": 3, "max": 2}}, "distributed.nodes.max: must be at least min, which is 3"),
        ({"nodes": {"min": 1, "max": 2}}, "distributed.nodes: trials of local cannot change their number of nodes"),
        ({"processesPerNode": "cpu"}, "distributed.processesPerNode"),
        ({"launcher": "pytorch"}, "distributed.launcher: 'pytorch' is not a valid value; did you mean torch?"),
        ({"node": 2}, "distributed.node: there is no such field; did you mean nodes?"),
    ],
)
def test_bad_numbers_of_nodes_and_processes_are_refused_where_they_are(
    tmp_path: Path, given: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError, match=re.escape(said)):
        experiment(tmp_path, "local", distributed=given)


def test_one_process_for_each_gpu_needs_gpus(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"distributed\.processesPerNode: gpu needs GPUs, and trialGpuNumber is 0"):
        experiment(tmp_path, "local", distributed={"processesPerNode": "gpu"}, trialGpuNumber=0)


def test_what_has_no_effect_is_said_with_the_service_and_the_reason(tmp_path: Path) -> None:
    config = experiment(tmp_path, "local", "slurm", callback="log")
    assert config.warnings == [
        "callback has no effect on local: trials report on this machine itself, which needs no log"
    ]
    assert experiment(tmp_path, "slurm", callback="log").warnings == []


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"placement": "fill"}, "placement has no effect: there is one training service; name several in"),
        ({"moveAfter": "5m"}, "moveAfter has no effect: there is one training service; name several in"),
        ({"debug": True, "logLevel": "error"}, "debug has no effect: logLevel counts, and is error"),
        ({"trainingService": {"platform": "local", "debug": True}}, "debug has no effect on local: set it, or logLe"),
        ({"trainingService": {"platform": "local", "weight": 2}}, "weight has no effect on local: it counts with"),
        ({"trainingService": {"platform": "local", "reuseMode": True}}, "reuseMode has no effect on local: starting"),
        ({"trainingService": {"platform": "adl", "shmSize": "1gb"}}, "shmSize has no effect on adl: AdaptDL gives"),
        (
            {"trainingService": {"platform": "slurm", "gres": "gpu:a:2"}, "trialGpuNumber": 2},
            "trialGpuNumber has no effect on slurm: gres sets what a trial gets; 0 still hides all GPUs",
        ),
        (
            {"sharedStorage": {"storageType": "S3", "bucket": "b", "nfsServer": "n"}},
            "sharedStorage.nfsServer has no effect: it is for NFS, and storageType is S3",
        ),
    ],
)
def test_options_that_fit_to_no_other_setting_are_named(tmp_path: Path, more: dict[str, Any], said: str) -> None:
    [warning] = experiment(tmp_path, "local", **more).warnings
    assert warning.startswith(said)


@dataclass(frozen=True)
class PluginConfig:
    """A section as a plugin of anybody's may have it."""

    shelf: int = 1


class PluginOfAnybody(FakeService):
    """A service of another repository, which declares what it ignores."""

    Config = PluginConfig
    ignores = (IgnoredOption("shelf", "there are no shelves"), IgnoredOption("callback", "nothing has a log"))


def test_a_plugin_of_anybody_says_what_it_ignores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = lookup.training_service_class
    monkeypatch.setattr(
        lookup, "training_service_class", lambda name: PluginOfAnybody if name == "shelves" else found(name)
    )
    monkeypatch.setitem(SECTIONS, "shelves", {"shelf": 2})
    config = experiment(tmp_path, "shelves", callback="log")
    assert config.warnings == [
        "shelf has no effect on shelves: there are no shelves",
        "callback has no effect on shelves: nothing has a log",
    ]
    assert assembly.list_services_by_log(config) == frozenset()


@pytest.mark.parametrize(
    ("tuner", "told"),
    [
        ({"name": "Random"}, True),
        ({"className": "mine.Tuner", "codeDirectory": "."}, False),
    ],
)
def test_gpus_for_a_tuner_that_uses_none_are_told(tmp_path: Path, tuner: dict[str, str], told: bool) -> None:
    (tmp_path / "mine.py").write_text("class Tuner: pass")
    config = experiment(tmp_path, "local", tunerGpuIndices="5,6", tuner=tuner)
    assert (
        any("trialGpuNumber, and gpuIndices of the training service" in one.sentence for one in config.without_effect)
        is told
    )


def test_a_number_of_nodes_that_changes_is_taken_where_it_works_and_refused_elsewhere(tmp_path: Path) -> None:
    elastic = {"nodes": {"min": 1, "max": 2}}
    taken = experiment(tmp_path, "remote", distributed=elastic).distributed
    assert taken is not None
    assert vars(taken.nodes) == {"min": 1, "max": 2}
    experiment(tmp_path, "slurm", distributed=elastic)
    with pytest.raises(ConfigError, match="trials of kubernetes cannot change their number of nodes; set one number"):
        experiment(tmp_path, "kubernetes", distributed=elastic)
    experiment(tmp_path, "kubernetes", distributed={"nodes": {"min": 2, "max": 2}})
    cure = "of remote cannot change .* with launcher mpi; set one number, or launcher to torch, jax, tensorflow or none"
    with pytest.raises(ConfigError, match=cure):
        experiment(tmp_path, "remote", distributed={**elastic, "launcher": "mpi"})
