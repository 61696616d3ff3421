"""The experiment's config: every field, with its type, default and description. The only place that lists them."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from nnilite.config._command_hints import find_command_hints
from nnilite.config._config_reading import At, ConfigReading
from nnilite.config._environment_hints import environment_hints
from nnilite.config._field_objects import read_object, replace_name
from nnilite.config._ignored_options import OptionWithoutEffect, find_options_without_effect
from nnilite.config._kinds import AnyJson, ListOf, OneOf, Union
from nnilite.config._nested_configs import (
    AlgorithmConfig,
    CheckpointConfig,
    CodeLimits,
    DistributedConfig,
    TrackerConfig,
    WebhookConfig,
)
from nnilite.config._nni_form import nni_form
from nnilite.config._placeholders import find_placeholders
from nnilite.config._python_hints import hint
from nnilite.config._record import record_of
from nnilite.config._services import (
    CheckedServices,
    Service,
    ServiceConfig,
    ServiceField,
    ServiceKind,
    ServiceShare,
    TrialSettings,
    shortcuts,
)
from nnilite.config._source import ConfigSource
from nnilite.config._strict_attributes import Fields
from nnilite.config.shared_storage_config import SharedStorageConfig
from nnilite.errors import ConfigError
from nnilite.records import Json
from nnilite.units import (
    Concurrency,
    FilePath,
    FiniteNumber,
    GivenBytes,
    GivenDirPath,
    GivenDuration,
    GivenPath,
    GpuIndices,
    NonNegativeInt,
    NonNegativeNumber,
    PositiveInt,
    TrialCount,
)

if TYPE_CHECKING:
    from nnilite.config._explicit_fields import ExplicitFields

_MIB = 1024**2
_UNCHECKED = "this config is not checked yet; call checked() and use what it returns"
_TYPE = OneOf(
    {"hpo": "hpo"},
    refused={
        "nas": "neural architecture search is not available; remove this line, and describe the choices of the "
        "architecture in searchSpace: a nested choice for parts that differ, which your trial builds its model from"
    },
)
SERVICES = Union([ServiceKind(), ListOf(ServiceKind())], "object with a platform, or a list of them")


@dataclass(init=False, repr=False)
class ExperimentConfig(Fields):
    """All of an experiment. Fill it in from Python, or `load` a file; `checked()` gives what the manager works with.

        config = ExperimentConfig("local")
        config.search_space = {"x": {"_type": "uniform", "_value": [0, 1]}}
        config.trial_command = "python3 trial.py"
        config.trial_concurrency = 2
        config.max_experiment_duration = "1h"
        config.tuner.class_args["optimize_mode"] = "maximize"

    A field holds what was assigned to it. `checked()` returns plain values in their units (seconds, bytes, Path).
    """

    if TYPE_CHECKING:
        training_service = ServiceField()
    else:
        training_service: Annotated[Any, SERVICES, "where trials run, as {platform: local}; a list for several places"]
    trial_concurrency: Annotated[Concurrency, "how many trials run at a time"]
    experiment_name: Annotated[str | None, "shown to people"] = None
    experiment_type: Annotated[str, _TYPE, "kind of experiment"] = "hpo"
    search_space_file: Annotated[FilePath | None, "JSON or YAML file with the search space, instead of searchSpace"] = (
        None
    )
    search_space: Annotated[Mapping[str, Any] | None, AnyJson(), "the search space, instead of searchSpaceFile"] = None
    trial_command: Annotated[str, "the command of a trial, run by bash in the code directory"] = ""
    trial_code_directory: Annotated[GivenDirPath, "the trial's code; uploaded without what .nniignore excludes"] = (
        Path()
    )
    trial_gpu_number: Annotated[NonNegativeInt | None, "GPUs of a trial; 0 hides all GPUs, not set: trials see all"] = (
        None
    )
    distributed: Annotated[
        DistributedConfig | None, "trials of several processes, on one machine or several; not set: one process"
    ] = None
    max_experiment_duration: Annotated[GivenDuration | None, "no new trials start after this running time"] = None
    max_trial_number: Annotated[TrialCount | None, "how many trials to run"] = None
    max_trial_duration: Annotated[GivenDuration | None, "a trial that runs longer is cancelled"] = None
    max_cost: Annotated[
        NonNegativeNumber | None, "no new trials start once this is spent, by the `cost` of the services"
    ] = None
    stop_at_value: Annotated[
        FiniteNumber | None,
        "no new trials start once a result is this good: at least this, or at most where the tuner minimizes",
    ] = None
    placement: Annotated[
        Literal["fill", "weighted", "cheapest"],
        "with several services: fill the first before the next, share out by `weight`, or take the lowest `cost`",
    ] = "weighted"
    move_after: Annotated[
        GivenDuration | None, "a trial that waits longer in the queue of a service may move to another; default: never"
    ] = None
    nni_manager_ip: Annotated[str | None, "address at which workers reach this machine; default: detected"] = None
    use_annotation: Annotated[bool, "`true` is refused: see `nnictl config expand`"] = False
    debug: Annotated[bool, "sets the default of logLevel to debug"] = False
    log_level: Annotated[
        Literal["fatal", "critical", "error", "warning", "info", "debug", "trace"] | None,
        "least severe level that is logged; default: info",
    ] = None
    experiment_working_directory: Annotated[
        GivenPath, "where the experiment's folder goes; NNILITE_HOME changes the default"
    ] = field(
        default_factory=lambda: Path(os.environ.get("NNILITE_HOME") or "~/nni-experiments"),
    )
    tuner_gpu_indices: Annotated[GpuIndices | None, "GPUs that the tuner may use; default: none"] = None
    tuner: Annotated[AlgorithmConfig, "proposes parameters; default: Auto, which chooses the algorithm itself"] = field(
        default_factory=AlgorithmConfig
    )
    assessor: Annotated[AlgorithmConfig | None, "stops poor trials early"] = field(default_factory=AlgorithmConfig)
    advisor: Annotated[AlgorithmConfig | None, "older name of tuner"] = field(default_factory=AlgorithmConfig)
    shared_storage: Annotated[
        SharedStorageConfig | None, "storage for code, checkpoints and outputs that workers on all platforms reach"
    ] = None
    tuner_timeout: Annotated[GivenDuration, "time limit for one call of the tuner"] = 3600
    max_trial_retries: Annotated[NonNegativeInt, "how often a trial is tried again after its worker was lost"] = 1
    retry_failed: Annotated[NonNegativeInt, "how often a trial is tried again after its command failed"] = 0
    retry_on: Annotated[
        list[int],
        "exit codes after which a trial is tried again as if its worker were lost, up to maxTrialRetries times",
    ] = field(default_factory=list)
    max_failed_trials: Annotated[PositiveInt | None, "the experiment ends in ERROR after this many failed trials"] = (
        None
    )
    stop_on_same_error: Annotated[
        NonNegativeInt, "the experiment ends in ERROR after this many failures in a row with the same error; 0: never"
    ] = 5
    worker_silence: Annotated[GivenDuration, "a worker is lost after this time without a sign of life"] = 1200
    grace_period: Annotated[GivenDuration, "time between SIGTERM and SIGKILL for a cancelled trial"] = 10
    checkpoint: Annotated[CheckpointConfig, "what is kept of the trials' checkpoints"] = field(
        default_factory=CheckpointConfig
    )
    code_limits: Annotated[CodeLimits, "limits for the uploaded code"] = field(default_factory=CodeLimits)
    max_output_size: Annotated[GivenBytes, "how much of a trial's stdout, and of its stderr, is kept"] = 100 * _MIB
    idle_timeout: Annotated[
        GivenDuration, "the manager ends when the experiment is DONE and has had no request for this long"
    ] = 12 * 3600
    require_token: Annotated[bool, "require the token with every request, even from you on this machine"] = False
    first_trials: Annotated[
        list[dict[str, Any]], "sets of parameters that run first, each as a trial gets them; the tuner learns from them"
    ] = field(default_factory=list)
    constraints: Annotated[
        list[str], "expressions over parameters that every proposal satisfies, such as `batch * layers <= 512`"
    ] = field(default_factory=list)
    result_constraints: Annotated[
        list[str], "limits of the numbers in final results, such as `latency <= 20`; what breaks one is never the best"
    ] = field(default_factory=list)
    record_provenance: Annotated[
        bool, "record code hashes, git state, package versions and the like in the experiment's folder"
    ] = True
    search_from: Annotated[
        list[str], "experiments from whose results the tuner learns first: ids, folders or exported files, also of NNI"
    ] = field(default_factory=list)
    trackers: Annotated[list[TrackerConfig], "trackers that get each trial as a run"] = field(default_factory=list)
    webhooks: Annotated[
        list[WebhookConfig], "addresses that are notified of new best results, failures and the end"
    ] = field(default_factory=list)
    callback: Annotated[Literal["rest", "log"], "how trials report: to the manager, or through the job's log"] = "rest"

    _base_of_new: ClassVar[Path | None] = None  # `nni.experiment.config.utils` may set another than the current folder

    def __init__(self, platform: str | list[str] | None = None, **given: Any) -> None:
        self._source, self._base = ConfigSource(), self._base_of_new or Path.cwd()
        self._warnings: tuple[str, ...] = ()
        for entry in record_of(ExperimentConfig).entries:
            object.__setattr__(self, entry.name, entry.default)
        if isinstance(platform, str):
            self._assign("training_service", ServiceConfig(platform))
        elif platform is not None:
            self._assign("training_service", [ServiceConfig(name) for name in platform])
        for key, value in given.items():
            self._fill(key, replace_name(key, value))

    def _take(self, given: ExplicitFields) -> None:
        self._source, self._base, self._warnings = given.source, given.base, given.warnings
        for key, value in given.values.items():
            self._fill(key, value)

    def _fill(self, key: str, value: Any) -> None:
        """Set a field, whatever the spelling of its name. Raises: AttributeError, also for a field of what is given."""
        entry = record_of(ExperimentConfig).entry(key)
        if entry is None:
            raise AttributeError(f"ExperimentConfig has no field {key!r}{hint('ExperimentConfig', key, _names())}")
        if value is not None:
            setattr(self, entry.name, read_object(entry.name, value))

    def _assign(self, name: str, value: Any) -> None:
        """Set a field. A mapping becomes the object that it describes, so that its fields can be set one by one."""
        with suppress(AttributeError):  # `checked` names the fields that there are not
            value = read_object(name, value)
        super()._assign(name, value)

    def __repr__(self) -> str:
        services = self.training_service if isinstance(self.training_service, list) else [self.training_service]
        places = ", ".join(str(getattr(service, "platform", "?")) for service in services if service)
        return f"<ExperimentConfig {self.experiment_name or ''!r} on {places or 'nothing yet'}>"

    def as_mapping(self) -> dict[str, Any]:
        """Return all fields that are set, under the names that YAML has."""
        unset = (None, "")
        found = ((entry, getattr(self, entry.name)) for entry in record_of(ExperimentConfig).entries)
        pairs = ((entry, entry.default if value is unset[1] else value) for entry, value in found)
        # By identity: compared with "", an array of numpy gives an array.
        given = ((entry.key, value) for entry, value in pairs if not any(value is item for item in unset))
        return {key: value for key, value in given if not isinstance(value, AlgorithmConfig) or value}

    @classmethod
    def load(cls, path: str | Path) -> ExperimentConfig:
        """Read a YAML or JSON file, NNI's older format too. Raises: ConfigError."""
        from nnilite.config._explicit_fields import read_file

        config = cls()
        config._take(read_file(path, cls))
        return config

    def checked(self, *, paths: bool = True) -> CheckedConfig:
        """Return the parsed config: all values in their units, paths absolute and secrets resolved.

        Without `paths`, files and folders may be missing, for an experiment that is only viewed.
        Raises: ConfigError with all that is wrong.
        """
        return self._check(ConfigReading(self._source, self._base, paths=paths))

    def canonical_copy(self) -> CheckedConfig:
        """Do the same as `checked`, under NNI's name."""
        return self.checked()

    def validate(self) -> None:
        """Raise the errors of `checked` alone, as in NNI. Raises: ConfigError."""
        self.checked()

    def _check(self, reading: ConfigReading) -> CheckedConfig:
        from nnilite.config._field_rules import complete

        raw = self.as_mapping()
        reading.shortcuts = shortcuts(raw)
        at = At(reading)
        values = record_of(ExperimentConfig).read_fields(raw, at)
        services = complete(values, at)
        reading.finish()
        checked = CheckedConfig(self, values, services, frozenset(reading.secrets))
        checked._warnings += tuple(reading.warnings)
        return checked

    @property
    def services(self) -> list[Service]:
        """The training services, as (name, platform, the plugin's Config). Only of a checked config."""
        raise ConfigError(_UNCHECKED)

    @property
    def warnings(self) -> list[str]:
        """Sentences on fields that are set but have no effect, or another one; once checked, its services' too."""
        storage = self.shared_storage.hints() if isinstance(self.shared_storage, SharedStorageConfig) else []
        return [*self._warnings, *storage]

    def json(self, secrets: bool = False) -> dict[str, Json]:
        """Return all set fields in camelCase, checked first if necessary. Secrets are hidden without `secrets`.

        Raises: ConfigError.
        """
        return self.checked().json(secrets)

    def to_json(self) -> dict[str, Json]:
        """Return NNI's canonical form: as `json`, but with trialCommand and the like in each service's part."""
        return nni_form(self.json())

    def save(self, path: str | Path) -> None:
        """Write a YAML file that `load` understands and only this user can read. `${env:NAME}` stays as it is.

        Raises: ConfigError.
        """
        config = self._check(ConfigReading(self._source, self._base, resolve=False))
        import yaml  # no manager needs it

        text = yaml.safe_dump(config.json(secrets=True), sort_keys=False, allow_unicode=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            os.fchmod(descriptor, 0o600)  # the file may have been there before
            file.write(text)

    def located(self, error: ConfigError) -> ConfigError:
        """Return an error that a platform's check raised, with the line of its field in the file, and as `spell`."""
        if error.place.file:
            return error
        if not error.place.field:
            return ConfigError(self.spell(error.message)) if type(error) is ConfigError else error
        path = [int(part) if part.isdecimal() else part for part in re.findall(r"[^.\[\]]+", error.place.field)]
        if record_of(ExperimentConfig).entry(str(path[0])) is None and isinstance(self.json()["trainingService"], dict):
            path = ["trainingService", *path]  # the platform names a field of its own section
        return ConfigError(self.spell(error.message), self._source.place(tuple(path)))

    def spell(self, sentence: str) -> str:
        """Return a sentence of another part with the names that its fields have in the file, which may be of NNI 1."""
        return self._source.spell(sentence)

    def check_algorithms(self) -> None:
        """Make tuner and assessor once, since installed ones check their own `class_args`. This imports them.

        The libraries of trackers are only looked for. Afterwards, `warnings` includes those about the algorithms.
        Raises: ConfigError.
        """
        from nnilite.config._algorithm_check import construct_all, look_for_libraries

        reading = ConfigReading(self._source, self._base)
        look_for_libraries([tracker.name for tracker in self.trackers], webhooks=bool(self.webhooks))
        self._warnings = (*self._warnings, *construct_all(self.tuner, self.assessor, reading))


if TYPE_CHECKING:

    class CheckedAlgorithm(AlgorithmConfig):
        """A tuner or assessor whose code directory, if it has one, is absolute."""

        code_directory: Path | None

    class CheckedCheckpoints(CheckpointConfig):
        """The rule for checkpoints, in bytes."""

        max_size: int | None

    class CheckedCodeLimits(CodeLimits):
        """The limits of the code, in bytes."""

        max_size: int

    class CheckedStorage(SharedStorageConfig):
        """The shared storage, with its pause in seconds."""

        save_every: int


class CheckedConfig(ExperimentConfig):
    """A parsed config, which does not change any more.

    Its fields hold plain values: seconds, bytes, absolute paths, and words of a closed list. The types say so, so that
    no reader checks a value again, and a function that asks for a `CheckedConfig` gets no other.
    """

    if TYPE_CHECKING:
        trial_code_directory: Path
        max_experiment_duration: int | None
        max_trial_duration: int | None
        move_after: int | None
        experiment_working_directory: Path
        tuner: CheckedAlgorithm
        assessor: CheckedAlgorithm | None
        shared_storage: CheckedStorage | None
        tuner_timeout: int
        worker_silence: int
        grace_period: int
        checkpoint: CheckedCheckpoints
        code_limits: CheckedCodeLimits
        max_output_size: int
        idle_timeout: int

    def __init__(
        self, given: ExperimentConfig, values: Mapping[str, Any], services: CheckedServices, secrets: frozenset[str]
    ) -> None:
        super().__init__()
        self._source, self._base, self._warnings = given._source, given._base, given._warnings
        for name, value in values.items():
            object.__setattr__(self, name, value)
        self._services = services
        self._secrets = secrets

    def _assign(self, name: str, value: Any) -> None:
        if not name.startswith("_"):
            raise AttributeError(f"{name} cannot be set in a checked config; set it before you call checked()")
        object.__setattr__(self, name, value)

    def checked(self, *, paths: bool = True) -> CheckedConfig:
        """Return this config, which is checked already."""
        return self

    @property
    def services(self) -> list[Service]:
        """The training services, as (name, platform, the plugin's Config)."""
        return list(self._services.services)

    def settings(self, service: str) -> TrialSettings:
        """Return command, code directory, GPU number and manager address for a service's trials."""
        return self._services.settings[service]

    def share(self, service: str) -> ServiceShare:
        """Return a service's limit, weight and cost."""
        return self._services.shares[service]

    @property
    def warnings(self) -> list[str]:
        """Sentences on fields that are set but have no effect, or another one, those of the services included."""
        of_services = [warning for service in self.services for warning in getattr(service.config, "warnings", ())]
        names = list(self.search_space) if isinstance(self.search_space, dict) else []
        hints = [hint for command, code in self._commands() for hint in find_command_hints(command, code, names)]
        hints += self._find_own_gpus()
        hints += environment_hints(self.json())
        hints += find_placeholders(self.json().get("trainingService"), "trainingService")
        found = [*super().warnings, *of_services, *hints, *(one.sentence for one in self.without_effect)]
        return list(map(self.spell, found))

    def _find_own_gpus(self) -> list[str]:
        own = any(one.gpus and "CUDA_VISIBLE_DEVICES=" in one.trial_command for one in self._services.settings.values())
        cure = "write gpuIndices in trainingService instead"
        return (
            [f"trialCommand: sets CUDA_VISIBLE_DEVICES itself, so every trial gets these GPUs; {cure}"] if own else []
        )

    def _commands(self) -> list[tuple[str, Path]]:
        """Return the distinct commands of trials, each with the code directory that it runs in."""
        settings = self._services.settings.values()
        return sorted({(one.trial_command, Path(one.trial_code_directory)) for one in settings if one.trial_command})

    @property
    def without_effect(self) -> list[OptionWithoutEffect]:
        """What was set and has no effect, with the reasons."""
        found = find_options_without_effect(self)
        return [OptionWithoutEffect(self.spell(one.option), one.service, self.spell(one.why)) for one in found]

    @property
    def secrets(self) -> frozenset[str]:
        """All secret texts, to keep them out of logs."""
        return self._secrets

    def json(self, secrets: bool = False) -> dict[str, Json]:
        """Return all set fields in camelCase. Secrets are hidden without `secrets`."""
        written: dict[str, Json] = record_of(ExperimentConfig).write(self, secrets)
        return written


def _names() -> list[str]:
    return [item.name for item in fields(ExperimentConfig)]
