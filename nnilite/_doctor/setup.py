"""Checks of a configuration file and of what it names: plugins, tuner, code, search space."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from nnilite import codedir
from nnilite._doctor.finding import Finding, divided, ok, warning
from nnilite.config import CheckedConfig, load
from nnilite.errors import ConfigError, NniliteError, SpaceError
from nnilite.space import SearchSpace
from nnilite.space.space_hints import space_hints

_CURE = "correct it there; `nnictl config schema` and the reference list all fields"


def read_config(path: Path, findings: list[Finding]) -> CheckedConfig | None:
    """Return the checked config; None if it has a fault, which is then among the findings."""
    try:
        config = load(path).checked()
        findings.append(ok("config", f"{path} is sound"))
        config.check_algorithms()
    except NniliteError as error:
        findings += (divided("config", part, _CURE) for part in str(error).splitlines() if part.strip())
        return None
    findings.append(ok("tuner", config.tuner.name or config.tuner.class_name or ""))
    findings += (warning("config", text, "remove it, or correct it") for text in config.warnings)
    return config


def check_space(config: CheckedConfig) -> Iterator[Finding]:
    """Yield what in the search space looks like a mistake."""
    try:
        space = SearchSpace.parse(config.search_space)
    except SpaceError:  # the tuner has a kind of space of its own, and has accepted this one
        return
    for hint in space_hints(space, tuner=config.tuner.name or "", max_trials=config.max_trial_number):
        yield warning("search space", hint.what, hint.cure)


def check_code(config: CheckedConfig) -> Iterator[Finding]:
    """Check whether the code directories can be sent.

    Trials of `local` run in their folder itself, so it may be larger.
    """
    limits = codedir.PackageLimits(config.code_limits.max_files, config.code_limits.max_size)
    sent = {config.settings(name).trial_code_directory for name, platform, _ in config.services if platform != "local"}
    for folder in sorted(sent):
        with tempfile.TemporaryDirectory(prefix="nnilite-doctor-") as draft:
            pack = partial(codedir.pack, folder, Path(draft), limits)
            try:
                package = pack()
            except (ConfigError, NniliteError) as error:
                yield divided("code", str(error), "exclude files with .nniignore, or raise codeLimits")
            else:
                yield ok("code", f"{folder}: {len(package.files)} files, {package.total_bytes} bytes")
