"""Rules between the fields of an experiment, and values that follow from other fields."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nnilite._experiments.home_folder import explain_home
from nnilite._plugins import lookup
from nnilite.config._class_hints import explain_class, explain_missing_class
from nnilite.config._config_reading import INVALID, At
from nnilite.config._fields import normalize_name
from nnilite.config._known_points import check_known, check_result_constraints
from nnilite.config._nested_configs import AlgorithmConfig
from nnilite.config._record import record_of
from nnilite.config._services import (
    OF_ONE_SERVICE,
    SHORTCUTS,
    CheckedServices,
    Service,
    ServiceConfig,
    ServiceShare,
    TrialSettings,
)
from nnilite.config._source import ConfigSource
from nnilite.config.secrets import masked_space, masked_text
from nnilite.errors import ConfigError, PluginError, SpaceError
from nnilite.records import Json
from nnilite.space.space_checks import check, dotted, drop_repeats
from nnilite.tuning.objectives import configured
from nnilite.units.path_rules import expand_home

Values = dict[str, Any]
"""Checked values by field name. INVALID means that a fault was noted; fields that are not set are missing."""

_GROUPS = {"tuner": lookup.TUNERS, "assessor": lookup.ASSESSORS}
_LOOKUPS = {"tuner": "tuner_class", "assessor": "assessor_class"}


def complete(values: Values, at: At) -> CheckedServices:
    """Check the rules, note faults, and set the values that depend on other fields."""
    if values.get("use_annotation") is True:
        cure = "`nnictl config expand CONFIG` makes a program with calls and its search space of them"
        at.below("useAnnotation").fault(f"annotations are not read at the start; {cure}, and a configuration for both")
    _convert_advisor(values, at)
    for word in ("tuner", "assessor"):
        _algorithm(word, values, at)
    _space(values, at)
    check_known(values, at)
    check_result_constraints(values, at)
    _check_stop_value(values, at)
    _working_folder(values, at)
    _checkpoints(values, at)
    if values.get("search_from") not in (None, INVALID):
        values["search_from"] = [_source(text, at.reading.base) for text in values["search_from"]]
    default = "debug" if values.get("debug") is True else "info"
    level = values.get("log_level") or default
    # NNI has two words for this level.
    values["log_level"] = "fatal" if level == "critical" else level
    return _services(values, at)


def _check_stop_value(values: Values, at: At) -> None:
    """Check that trials have one result for `stopAtValue`."""
    tuner = values["tuner"]
    if values.get("stop_at_value") in (None, INVALID) or tuner is INVALID:
        return
    objectives = configured(tuner.class_args)
    if objectives and "default" not in objectives:
        why = f"it is for one result, and the tuner has {len(objectives)} objectives"
        at.below("stopAtValue").fault(f"{why}; name the one that is meant `default`, or use a webhook")


def _working_folder(values: Values, at: At) -> None:
    """Check that the folder of experiments is one, or can be made."""
    folder = values.get("experiment_working_directory")
    if folder in (None, INVALID) or not at.reading.paths:
        return
    here = at.below("experimentWorkingDirectory")
    # The folder may not exist yet: then the one counts in which it will be made.
    nearest = next((path for path in (folder, *folder.parents) if os.path.lexists(path)), folder)
    if not nearest.is_dir():
        here.fault(f"{str(nearest)!r} is a file; give a folder, or the path of a new one")
    elif not os.access(nearest, os.W_OK | os.X_OK):
        cure = explain_home(folder) or "give a folder of your own, such as ~/nni-experiments"
        here.fault(f"you may not write to {str(nearest)!r}; {cure}")
    elif nearest != folder and os.statvfs(nearest).f_blocks == 0 and str(folder) != os.environ.get("NNILITE_HOME"):
        # /proc and the like. The doctor has a better sentence on the folder of all experiments.
        here.fault(f"no folder can be made in {str(nearest)!r}; give one of your own, such as ~/nni-experiments")


def _checkpoints(values: Values, at: At) -> None:
    rule, storage = values.get("checkpoint"), values.get("shared_storage")
    if rule in (None, INVALID) or storage in (None, INVALID):
        return
    if storage.storage_type != "NFS" or storage.local_mounted != "nomount" or "checkpoints" not in storage.contents:
        return
    here, cure = at.below("checkpoint"), "mount it and leave out sharedStorage.localMounted"
    # Only this machine knows which checkpoints are the last or the best, so it must be able to delete the others.
    if rule.keep in ("last", "best"):
        here.below("keep").fault(f"requires that this machine mounts the storage: {cure}; or set keep to all or none")
    if rule.max_size is not None:
        here.below("maxSize").fault(f"requires that this machine mounts the storage: {cure}")


def _convert_advisor(values: Values, at: At) -> None:
    advisor = values.pop("advisor", None)
    if advisor and "tuner" in values:
        at.below("advisor").fault("is the older name of tuner; give only one of the two")
    elif advisor:
        values["tuner"] = advisor
        at.reading.source.note_move((*at.path, "advisor"), (*at.path, "tuner"))
    values["advisor"] = None
    values.setdefault("assessor", None)
    if "tuner" not in values:
        values["tuner"] = AlgorithmConfig(name=lookup.DEFAULT_TUNER)


def _algorithm(word: str, values: Values, at: At) -> None:
    algorithm = values[word]
    if algorithm is None or algorithm is INVALID:
        return
    here = at.below(word)
    # As there is no name, the arguments can only be meant for the default tuner.
    if word == "tuner" and algorithm.class_args and not (algorithm.name or algorithm.class_name):
        algorithm.name = lookup.DEFAULT_TUNER
    if bool(algorithm.name) == bool(algorithm.class_name):
        if at.reading.misspelt:
            return  # perhaps just that field
        here.fault("needs either name, for an installed one, or className and codeDirectory, for your own")
    elif algorithm.name:
        algorithm.name = _installed(word, algorithm.name, here)
        if algorithm.code_directory:
            here.below("codeDirectory").fault("is only for className; leave it out for an installed algorithm (name)")
    else:
        _own(algorithm, here)


def _spell_as_plugin(word: str, name: str) -> str | None:
    """Return the name as its plugin spells it; None if there is no such plugin."""
    known = {normalize_name(item): item for item in lookup.names(_GROUPS[word])}
    return known.get(normalize_name(name)) or known.get(normalize_name(name).removesuffix(word))


def _installed(word: str, name: str, here: At) -> str:
    """Return the name as its plugin spells it. The plugin is not imported here; the tuner host does that."""
    if (spelling := _spell_as_plugin(word, name)) is not None:
        return spelling
    try:
        getattr(lookup, _LOOKUPS[word])(masked_text(name))
    except PluginError as error:
        here.below("name").fault(str(error))
    return name


def _own(algorithm: Any, here: At) -> None:
    folder = algorithm.code_directory or here.reading.base
    wrong = explain_class(algorithm.class_name, Path(folder))
    if wrong:
        here.below("className").fault(wrong)
        return
    module = algorithm.class_name.rpartition(".")[0]
    algorithm.code_directory = Path(folder)
    if not here.reading.paths:
        return
    if not _has_module(Path(folder, module.split(".")[0])):
        here.below("className").fault(f"there is no module {module.split('.')[0]!r} in {str(folder)!r}")
    elif missing := explain_missing_class(algorithm.class_name, Path(folder)):
        here.below("className").fault(missing)


def _has_module(path: Path) -> bool:
    """Return whether a module is at this path, which goes without the end of its name."""
    try:
        # A module may be compiled, too.
        return path.is_dir() or path.with_suffix(".py").is_file() or any(path.parent.glob(f"{path.name}.*.so"))
    except OSError:  # a name that is too long, or a folder of another user
        return False


def _source(text: str, base: Path) -> str:
    """Return an experiment's id as it is, a path absolute.

    A new experiment checks that it exists when it reads it.
    """
    path = base / expand_home(text)
    try:
        return str(path.resolve()) if "/" in text or text.startswith("~") or path.exists() else text
    except (OSError, RuntimeError, ValueError):  # a name that is too long, links in a circle, a null character
        return text


def _space(values: Values, at: At) -> None:
    file, given = values.pop("search_space_file", None), values.get("search_space")
    if file is INVALID or given is INVALID:
        return
    if file is not None and given is not None:
        at.below("searchSpaceFile").fault("give either searchSpace or searchSpaceFile, not both")
    elif file is not None:
        _read_space_file(file, values, at)
    elif given is None and _has_own_tuner(values):
        values["search_space"] = {}
        at.reading.warnings.append("there is no search space, so your tuner gets an empty one")
    elif given is None and not _needs_no_space(values):
        at.below("searchSpace").fault("there is no search space; give searchSpace or searchSpaceFile")
    elif given is not None:
        _check_space_content(given, values, at.reading.source, at.below("searchSpace"))


def _has_own_tuner(values: Values) -> bool:
    return values["tuner"] is not INVALID and bool(values["tuner"].class_name) and not values.get("use_annotation")


def _needs_no_space(values: Values) -> bool:
    """Return whether a fault that names the cure is there already: of annotations, or a tuner of architectures."""
    tuner = values["tuner"]
    name = "" if tuner is INVALID else tuner.name or ""
    return values.get("use_annotation") is True or lookup.explain_missing(lookup.TUNERS, name) is not None


def _read_space_file(file: Path, values: Values, at: At) -> None:
    from nnilite.config.text import read_space

    try:
        content, source = read_space(file)
    except ConfigError as error:
        at.reading.errors.append(SpaceError(error.message, error.place))
        return
    values["search_space"] = content
    # What a tuner says against the space later has a place, too.
    origins = at.reading.source.origins
    place = origins.get(("searchSpaceFile",), ("searchSpaceFile",))
    at.reading.source.origins = {**origins, ("searchSpace",): place}
    _check_space_content(content, values, source, At(at.reading))


def _check_space_content(space: Json, values: Values, source: ConfigSource, at: At) -> None:
    """Check NNI's types, unless the tuner is the user's own, which may accept anything.

    Where the tuner is not known, a type that resembles none of NNI's may be one of that tuner.
    """
    tuner = values["tuner"]
    known = tuner is not INVALID and bool(tuner.class_name or _spell_as_plugin("tuner", tuner.name or ""))
    if known and tuner.class_name:
        if space is None:
            at.note_space_fault("is null", source)
        return
    faults = check(space)[1]
    if not faults:
        repeats: list[tuple[tuple[str | int, ...], str]] = []
        values["search_space"] = drop_repeats(space, repeats)
        at.reading.warnings += [f"{dotted(('searchSpace', *path))}: {fault}" for path, fault in repeats]
    # The faults of the masked space quote no secret, so they are preferred.
    for path, message in faults and (check(masked_space(space))[1] or faults):
        # A type that is nearly one of NNI's is a slip, whatever the tuner is.
        if known or path[-1:] != ("_type",) or message.endswith("?"):
            at.below(*path).note_space_fault(message, source)


def _services(values: Values, at: At) -> CheckedServices:
    given = values.get("training_service", INVALID)
    if given is INVALID:
        return CheckedServices()
    sections: list[ServiceConfig] = given if isinstance(given, list) else [given]
    if not sections:
        at.below("trainingService").fault("is an empty list; name at least one platform")
    services: list[Service] = []
    settings: dict[str, TrialSettings] = {}
    shares: dict[str, ServiceShare] = {}
    for place, section in enumerate(sections):
        number = 1 + sum(service.platform == section.platform for service in services)
        name = section._share.name or (section.platform if number == 1 else f"{section.platform}-{number}")
        if name in shares:
            here = at.below("trainingService", place, *(["name"] if section._share.name else []))
            here.fault(f"two services are called {name!r}; give each a name of its own")
        shares[name] = section._share
        services.append(Service(name, section.platform, section._config))
        settings[name] = _settings(section, values, at)
    _settle(values, list(settings.values()))
    classes = [lookup.training_service_class(section.platform) for section in sections]
    for service, cls in zip(services, classes, strict=True):
        _check_distribution(values, service.platform, cls, settings[service.name].gpus, at)
    reported = any(getattr(cls, "tells_cost", False) for cls in classes)
    _money(values, shares, reported, at)
    return CheckedServices(tuple(services), settings, shares)


def _check_distribution(values: Values, platform: str, cls: type, gpus: int | None, at: At) -> None:
    """Check that a platform can run the trials on several nodes."""
    given = values.get("distributed")
    if given in (None, INVALID):
        return
    here = at.below("distributed")
    launchers, elastic = getattr(cls, "launchers", ()), getattr(cls, "elastic_launchers", ())
    if not launchers:
        here.fault(f"trials of {platform} are one process on one machine; remove it, or use another platform")
    elif given.launcher not in launchers:
        here.below("launcher").fault(f"{given.launcher} does not work on {platform}; set {' or '.join(launchers)}")
    if launchers and given.counts.is_elastic and given.launcher not in elastic:
        _refuse_elastic(platform, given.launcher, elastic, here)
    if given.processes_per_node == "gpu" and gpus == 0:
        here.below("processesPerNode").fault("gpu needs GPUs, and trialGpuNumber is 0; set a number of processes")


def _refuse_elastic(platform: str, launcher: str, elastic: Sequence[str], here: At) -> None:
    """Refuse a number of nodes that changes where that cannot be. `elastic`: the launchers with which it can."""
    why = f"trials of {platform} cannot change their number of nodes"
    if elastic:
        why += f" with launcher {launcher}"
        here.below("nodes").fault(f"{why}; set one number, or launcher to {', '.join(elastic[:-1])} or {elastic[-1]}")
    else:
        here.below("nodes").fault(f"{why}; set one number")


def _money(values: Values, shares: dict[str, ServiceShare], reported: bool, at: At) -> None:
    """Check that limits on money have prices to count. `reported`: whether a platform reports what its jobs cost."""
    free = [name for name, share in shares.items() if share.cost is None]
    if values.get("placement") == "cheapest" and free and len(shares) > 1:
        at.below("placement").fault(f"cheapest needs the cost of each service; {free[0]} has none (0 is free)")
    if values.get("max_cost") is not None and len(free) == len(shares) and not reported:
        at.below("maxCost").fault("no service has a cost, so nothing would ever be spent; give the services their cost")


def _settings(section: ServiceConfig, values: Values, at: At) -> TrialSettings:
    """Return a service's own settings, completed by those at the top level."""
    fields: dict[str, Any] = {}
    for entry in SHORTCUTS.entries:
        own = getattr(section._settings, entry.name)
        fields[entry.name] = values.get(entry.name) if own in (None, "") else own
    is_blank = fields["trial_command"] is not None and not str(fields["trial_command"]).strip()
    if fields["trial_command"] is None:
        fields["trial_command"] = _find_plugin_default(section)  # which may be empty
    if "\0" in str(fields["trial_command"]):
        at.below("trialCommand").fault("has a null character, which no command can have; remove it")
    if fields["trial_command"] is None or is_blank:
        at.fault("trialCommand is not set; it is what a trial runs, such as `python3 trial.py`")
    return TrialSettings(**fields)


def _find_plugin_default(section: ServiceConfig) -> str | None:
    cls: type = type(section._config)
    entry = record_of(cls).entry("trial_command")
    return None if entry is None or entry.required else entry.default


def _settle(values: Values, settings: list[TrialSettings]) -> None:
    """Copy the settings of services to the experiment, if there is one service or the experiment sets none.

    Those of `OF_ONE_SERVICE` are copied only if there is one.
    """
    for field in dataclasses.fields(TrialSettings):
        if len(settings) > 1 and field.name in OF_ONE_SERVICE:
            continue
        given = [getattr(item, field.name) for item in settings if getattr(item, field.name) is not None]
        if given and (len(settings) == 1 or values.get(field.name) is None):
            values[field.name] = given[0]
