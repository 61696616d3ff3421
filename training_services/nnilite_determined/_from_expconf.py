"""Run `nnictl config convert --from determined`: convert Determined's experiment configuration to nnilite's.

The trials then run on Determined as before, and a tuner of nnilite searches. Each field is converted, kept as it is (in
`trainingService.expconf`), or named in the notes.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from nnilite.conversion import Conversion
from nnilite.errors import ConfigError, Place
from nnilite.records import Json
from nnilite_determined._expconf_space import search_space

_KEPT = ("data", "log_policies", "retention_policy", "profiling", "optimizations", "integrations", "security")
_ALSO_KEPT = ("pbs", "slurm", "tensorboard_storage", "debug", "perform_initial_validation", "records_per_epoch")
_PERIODS = ("min_validation_period", "min_checkpoint_period")
_HALVING = ("asha", "adaptive_asha", "async_halving")
_SEARCHERS = ("single", "random", "grid", *_HALVING)
_CONCURRENT = 16  # Determined's default of max_concurrent_trials
_RESTARTS = 5  # Determined's default of max_restarts
_STORAGES = ("shared_fs", "directory", "s3")
_OF_STORAGE = {
    "type": "type",
    "host_path": "hostPath",
    "storage_path": "storagePath",
    "container_path": "containerPath",
    "bucket": "bucket",
    "prefix": "prefix",
    "endpoint_url": "endpointUrl",
    "access_key": "accessKey",
    "secret_key": "secretKey",
    "save_experiment_best": "saveExperimentBest",
    "save_trial_best": "saveTrialBest",
    "save_trial_latest": "saveTrialLatest",
}
_OF_MOUNT = {
    "host_path": "hostPath",
    "container_path": "containerPath",
    "read_only": "readOnly",
    "propagation": "propagation",
}


def convert(document: Mapping[str, Any]) -> Conversion:
    """Convert a configuration.

    Raises: ConfigError for what Determined would not accept either, or what has no meaning here.
    """
    return _Expconf(document).conversion()


class _Expconf:
    """One configuration, on its way."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._document = {name: value for name, value in document.items() if value is not None}
        self._notes: list[str] = []
        self._known: set[str] = set()
        self._kept: dict[str, Json] = {}

    def conversion(self) -> Conversion:
        searcher = self._read_object("searcher")
        if not searcher:
            raise ConfigError("is missing; it defines the search", Place(field="searcher"))
        name = searcher.get("name")
        if name not in _SEARCHERS:
            names = ", ".join(_SEARCHERS)
            raise ConfigError(f"{name!r} cannot be converted; use one of {names}", Place(field="searcher.name"))
        config: dict[str, Json] = {}
        if self._text("name"):
            config["experimentName"] = self._text("name")
        config["searchSpace"] = search_space(self._read_object("hyperparameters"), grid=name == "grid")
        config["searchSpace"].update(self._lengths(searcher))
        if not config["searchSpace"]:
            # An experiment of one trial; a search comes later.
            if name != "single":
                raise ConfigError("is empty: there is nothing to search", Place(field="hyperparameters"))
            config["searchSpace"] = {"placeholder": {"_type": "choice", "_value": [0]}}
            self._notes.append(
                "hyperparameters is empty, so searchSpace has only a placeholder: put what is to be searched in its "
                "place, and set maxTrialNumber higher"
            )
        config["trialCommand"] = self._command()
        config["trialCodeDirectory"] = "."
        config.update(self._search(searcher))
        config.update(self._convert_retries())
        config.update(self._checkpoints())
        config["trainingService"] = self._service(config)
        self._leave_rest()
        return Conversion(config, tuple(self._notes))

    # ------------------------------------------------------------ the search

    def _lengths(self, searcher: Mapping[str, Any]) -> dict[str, Json]:
        """Convert lengths that Determined's library has obeyed: trial code gets them as parameters of one value."""
        lengths: dict[str, Json] = {}
        if "max_length" in searcher and searcher.get("name") not in _HALVING:
            lengths["max_length"] = self._read_length("searcher.max_length", searcher["max_length"])
        for name in _PERIODS:
            if name in self._document:
                lengths[name] = self._read_length(name, self._document[name])
            self._known.add(name)
        return {name: {"_type": "choice", "_value": [value]} for name, value in lengths.items()}

    def _read_length(self, field: str, given: Any) -> int:
        amount, unit = _amount_and_unit(given)
        if not _is_whole(amount, 0):
            raise ConfigError("must be a length such as {batches: 100}", Place(field=field))
        name = field.rpartition(".")[2]
        self._notes.append(f"{field} became the parameter {name} of each trial, in {unit}; trial code must obey it")
        return int(amount)

    def _search(self, searcher: Mapping[str, Any]) -> dict[str, Json]:
        name = str(searcher["name"])
        metric = searcher.get("metric")
        self._notes.append(f"trial code must report {metric or 'its metric'} with nnilite.report_final_result")
        mode = "minimize" if searcher.get("smaller_is_better", True) is not False else "maximize"
        trials = self._count(searcher, "max_trials") if name in ("random", *_HALVING) else None
        at_once = self._count(searcher, "max_concurrent_trials", least=0, default=_CONCURRENT)
        fields: dict[str, Json] = {}
        if name in _HALVING:
            fields["tuner"], trials = self._convert_halving(searcher, mode, trials)
        else:
            tuner = {"single": "Random", "random": "Random", "grid": "GridSearch"}[name]
            fields["tuner"] = {"name": tuner, "classArgs": {} if tuner == "GridSearch" else self._convert_seed()}
        if name == "single":
            trials = 1
        if trials:
            fields["maxTrialNumber"] = trials
        fields["trialConcurrency"] = min(at_once or trials or _CONCURRENT, trials or 10**6)
        fields["tuner"] = {key: value for key, value in fields["tuner"].items() if value}
        self._leave("searcher", searcher, ("source_trial_id", "source_checkpoint_uuid", "stop_once", "bracket_rungs"))
        return fields

    def _convert_halving(
        self, searcher: Mapping[str, Any], mode: str, candidates: int | None
    ) -> tuple[dict[str, Json], int | None]:
        """Return tuner and number of trials. Here each rung that a candidate reaches is a trial of its own."""
        longest, unit = self._find_longest(searcher)
        divisor = searcher.get("divisor", 4)
        if not isinstance(divisor, (int, float)) or isinstance(divisor, bool) or divisor <= 1:
            raise ConfigError("must be a number above 1", Place(field="searcher.divisor"))
        eta = max(2, round(divisor))
        if eta != divisor:
            self._notes.append(f"searcher.divisor {divisor} became {eta}; ASHA's eta must be a whole number")
        rungs = self._count(searcher, "num_rungs" if "num_rungs" in searcher else "max_rungs", default=5) or 1
        rungs = min(rungs, longest.bit_length())  # with the least eta, so that no power is huge
        while rungs > 1 and longest < eta ** (rungs - 1):
            rungs -= 1  # as Determined does: the shortest trials have one unit
        if searcher["name"] == "adaptive_asha":
            given = searcher.get("mode", "standard")
            self._notes.append(f"searcher.mode {given}: adaptive_asha runs several brackets at once, and ASHA here one")
        self._notes.append(
            f"trial code trains for as many {unit} as its parameter TRIAL_BUDGET says; a candidate that continues is a "
            "new trial, so maxTrialNumber counts more than searcher.max_trials"
        )
        arguments: dict[str, Json] = {
            "optimize_mode": mode,
            "min_budget": max(1, longest // eta ** (rungs - 1)),
            "max_budget": longest,
            "eta": eta,
            **self._convert_seed(),
        }
        total = sum(candidates // eta**rung for rung in range(rungs)) if candidates else None
        return {"name": "ASHA", "classArgs": arguments}, total

    def _find_longest(self, searcher: Mapping[str, Any]) -> tuple[int, str]:
        if "max_time" in searcher:
            return self._count(searcher, "max_time") or 1, str(searcher.get("time_metric") or "units")
        amount, unit = _amount_and_unit(searcher.get("max_length"))
        if not _is_whole(amount, 1):
            raise ConfigError("needs max_time, or max_length such as {batches: 100}", Place(field="searcher"))
        return int(amount), unit

    def _convert_seed(self) -> dict[str, Json]:
        self._known.add("reproducibility")
        seed = self._read_object("reproducibility").get("experiment_seed")
        return {"seed": seed} if isinstance(seed, int) and not isinstance(seed, bool) else {}

    # ------------------------------------------------------------ trials

    def _command(self) -> str:
        given = self._document.get("entrypoint")
        self._known.add("entrypoint")
        if isinstance(given, list) and given:
            return shlex.join(map(str, given))
        if not isinstance(given, str) or not given.strip():
            raise ConfigError("is missing: the command of a trial", Place(field="entrypoint"))
        if ":" in given and not given.split()[1:] and "/" not in given:
            raise ConfigError(
                f"{given!r} is a class for Determined's own loop of training: write a script that trains with the "
                "parameters of nnilite.get_next_parameter, and its command here",
                Place(field="entrypoint"),
            )
        return given

    def _convert_retries(self) -> dict[str, Json]:
        """Convert the retries: Determined counts failures and losses together."""
        self._known.add("max_restarts")
        times = self._count(self._document, "max_restarts", least=0, default=_RESTARTS, at="")
        return {"maxTrialRetries": times, "retryFailed": times}

    def _checkpoints(self) -> dict[str, Json]:
        policy = self._document.get("checkpoint_policy")
        self._known.add("checkpoint_policy")
        if policy is None:
            return {}
        if policy not in ("best", "all", "none"):
            raise ConfigError(f"{policy!r} is not one of best, all, none", Place(field="checkpoint_policy"))
        return {"checkpoint": {"keep": policy}}

    # ------------------------------------------------------------ the platform

    def _service(self, config: dict[str, Json]) -> dict[str, Json]:
        self._notes.append("set trainingService.master to the address of Determined's master")
        self._notes.append("trainingService.password is read from the environment variable DET_PASS")
        section: dict[str, Json] = {
            "platform": "determined",
            "master": "https://determined.example.org",
            "password": "${env:DET_PASS}",
        }
        for name in ("workspace", "project"):
            if self._text(name):
                section[name] = self._text(name)
        if bool(section.get("workspace")) != bool(section.get("project")):
            self._notes.append("workspace and project belong together: set both, or neither")
        section.update(self._resources(config))
        section.update(self._environment())
        labels = self._list("labels")
        if labels:
            section["labels"] = [str(label) for label in labels]
        mounts = [self._renamed(f"bind_mounts.{n}", one, _OF_MOUNT) for n, one in enumerate(self._list("bind_mounts"))]
        if mounts:
            section["bindMounts"] = mounts
        section.update(self._storage())
        self._keep_whole()
        if self._kept:
            section["expconf"] = self._kept
        return section

    def _keep_whole(self) -> None:
        """Keep fields that remain Determined's."""
        for name in (*_KEPT, *_ALSO_KEPT):
            if name in self._document:
                self._kept[name] = self._document[name]
            self._known.add(name)
        if "data" in self._kept:
            self._notes.append(
                "data is kept; trial code finds it as before, in determined.get_cluster_info().user_data or in "
                "DET_EXPERIMENT_CONFIG"
            )

    def _resources(self, config: dict[str, Json]) -> dict[str, Json]:
        given = dict(self._read_object("resources"))
        names = {
            "slots_per_trial": "slots",
            "resource_pool": "resourcePool",
            "priority": "priority",
            "weight": "weight",
        }
        fields = {yaml: given.pop(name) for name, yaml in names.items() if given.get(name) not in (None, "")}
        given.pop("is_single_node", None)
        if isinstance(fields.get("slots"), int) and fields["slots"] > 1:
            self._notes.append("resources.slots_per_trial: all slots of a trial must be on one machine")
        if given.get("shm_size") is not None:
            fields["shmSize"] = _memory(given.pop("shm_size"))
        most, each = given.pop("max_slots", None), fields.get("slots", 1)
        if isinstance(most, int) and isinstance(each, int) and each > 0:
            config["trialConcurrency"] = max(1, min(int(config["trialConcurrency"]), most // each))
        self._keep("resources", given, ("devices", "native_parallel"))
        return fields

    def _environment(self) -> dict[str, Json]:
        given = dict(self._read_object("environment"))
        fields: dict[str, Json] = {}
        image = given.pop("image", None)
        if isinstance(image, str):
            fields["image"] = image
        elif image:
            given["image"] = image  # one for each kind of slot, which Determined chooses from
        variables = given.pop("environment_variables", None)
        if isinstance(variables, list):
            fields["environment"] = dict(str(one).partition("=")[::2] for one in variables)
        elif variables:
            given["environment_variables"] = variables
        self._keep("environment", given, tuple(given))
        return fields

    def _storage(self) -> dict[str, Json]:
        given = self._read_object("checkpoint_storage")
        if not given:
            return {}
        if given.get("type") not in _STORAGES:
            kind = given.get("type")
            self._notes.append(f"checkpoint_storage of type {kind} was not converted; the cluster's default is used")
            return {}
        if given.get("secret_key"):
            self._notes.append("checkpoint_storage.secret_key is in the file; replace it with ${env:S3_SECRET}")
        return {"checkpointStorage": self._renamed("checkpoint_storage", given, _OF_STORAGE)}

    # ------------------------------------------------------------ reading, and what is left

    def _renamed(self, place: str, given: Any, names: Mapping[str, str]) -> dict[str, Json]:
        if not isinstance(given, Mapping):
            raise ConfigError("must be an object", Place(field=place))
        self._leave(place, given, tuple(name for name in given if name not in names))
        return {yaml: given[name] for name, yaml in names.items() if given.get(name) is not None}

    def _keep(self, place: str, given: Mapping[str, Any], names: tuple[str, ...]) -> None:
        """Keep a field in `expconf`."""
        kept = {name: given[name] for name in names if given.get(name) is not None}
        if kept:
            self._kept[place] = kept
        self._leave(place, given, tuple(name for name in given if name not in names))

    def _leave(self, place: str, given: Mapping[str, Any], names: tuple[str, ...]) -> None:
        for name in names:
            if given.get(name) not in (None, [], {}, ""):
                self._notes.append(f"{place}.{name} was left out, since nnilite has no such field")

    def _leave_rest(self) -> None:
        self._leave_known("description", "nnilite's experiments have only a name")
        self._leave_known("preemption_timeout", "it follows from gracePeriod")
        for name in self._document:
            if name not in self._known:
                self._notes.append(f"{name} was left out, since nnilite has no such field")

    def _leave_known(self, name: str, why: str) -> None:
        if name in self._document and name not in self._known:
            self._known.add(name)
            self._notes.append(f"{name} was left out: {why}")

    def _read_object(self, name: str) -> Mapping[str, Any]:
        self._known.add(name)
        found = self._document.get(name, {})
        if not isinstance(found, Mapping):
            raise ConfigError("must be an object", Place(field=name))
        return {key: value for key, value in found.items() if value is not None}

    def _list(self, name: str) -> list[Any]:
        self._known.add(name)
        found = self._document.get(name, [])
        if not isinstance(found, list):
            raise ConfigError("must be a list", Place(field=name))
        return found

    def _text(self, name: str) -> str:
        self._known.add(name)
        found = self._document.get(name, "")
        if not isinstance(found, str):
            raise ConfigError("must be text", Place(field=name))
        return found

    def _count(
        self, given: Mapping[str, Any], name: str, *, least: int = 1, default: int | None = None, at: str = "searcher."
    ) -> int | None:
        value = given.get(name, default)
        if value is None:
            raise ConfigError("is missing", Place(field=f"{at}{name}"))
        if not _is_whole(value, least):
            raise ConfigError(f"must be a whole number of at least {least}", Place(field=f"{at}{name}"))
        return int(value)


def _amount_and_unit(given: Any) -> tuple[Any, str]:
    """Return the parts of a length such as `{batches: 100}`, or of a number alone."""
    if isinstance(given, Mapping) and len(given) == 1:
        [(unit, amount)] = given.items()
        return amount, str(unit)
    return given, "units"


def _is_whole(value: Any, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _memory(given: Any) -> Json:
    """Convert Determined's `8G` and `512MiB`, and bytes, to sizes as they are written here."""
    if isinstance(given, int):
        return f"{given}b"
    text = str(given).strip().lower().replace(" ", "").replace("i", "")
    return text if text.endswith("b") else f"{text}b"
