"""Makes what shows an experiment from its folder: facts, progress, and a reader."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from nnilite._answers.queries import ServiceState
from nnilite._experiments import experiment_remarks, registry, search_folder
from nnilite._experiments.address import Address
from nnilite._keeper.python_command import read_python_command
from nnilite._store.reader import Reader
from nnilite._store.resume_reader import ResumeReader
from nnilite._store.settings_of_config import is_maximizing, make_settings
from nnilite._store.writer import Store
from nnilite._views.experiment_facts import ExperimentFacts, ExperimentProgress
from nnilite._views.search_view import SearchView
from nnilite._views.viewer import Viewer
from nnilite.config import CheckedConfig
from nnilite.records import ExperimentState
from nnilite.tuning.objectives import directions

_OVER = (ExperimentState.DONE, ExperimentState.ERROR, ExperimentState.STOPPED)


def assemble_view(directory: Path, config: CheckedConfig, store: Store, token: str) -> Viewer:
    """Put a read-only manager together."""
    maximize = is_maximizing(config.json().get("tuner") or {})
    history, reader = store.resume_reader, Reader(store.path)
    about = collect_facts(directory, config, history, maximize)
    if search_folder.is_search(directory):
        return SearchView(
            about,
            lambda: replace(_progress(config, history, maximize), duration_s=history.busy_s()),
            reader,
            token,
        )
    progress = _progress(config, history, maximize)
    # The caller has checked that no manager runs.
    if progress.state not in _OVER:
        progress = replace(progress, reason=registry.explain_lost_manager(directory.name))
    return Viewer(about, progress, reader, token)


def _progress(config: CheckedConfig, history: ResumeReader, maximize: bool) -> ExperimentProgress:
    settings = history.settings(make_settings(config, maximize))
    known = history.snapshot(maximize)
    return ExperimentProgress(
        state=known.state,
        reason=known.reason,
        duration_s=known.duration_s,
        ended=history.moment("ended"),
        limits=settings.limits,
        counts=known.counts,
        best=known.best,
        next_sequence=known.next_sequence,
        spent=known.spent,
    )


def collect_facts(directory: Path, config: CheckedConfig, history: ResumeReader, maximize: bool) -> ExperimentFacts:
    return ExperimentFacts(
        id=directory.name,
        directory=directory,
        config=config.json(),
        platforms=tuple(dict.fromkeys(platform for _, platform, _ in config.services)),
        created=history.moment("created") or 0.0,
        maximize=maximize,
        space=history.last_space() or config.search_space,
        objectives=directions(config.tuner.class_args, "maximize" if maximize else "minimize"),
        pid=os.getpid(),
        services=list_service_states(config),
        without_effect=tuple(one.sentence for one in config.without_effect),
        can_preload=_can_preload(config),
        searched=frozenset(config.search_space or ()) if config.tuner.class_name else frozenset(),
        name=experiment_remarks.read(directory).name,
    )


def _can_preload(config: CheckedConfig) -> bool:
    """Return whether the platforms and commands allow `preload`, and it is not set."""
    commands = (config.settings(name).trial_command or "" for name, _, _ in config.services)
    return (
        config.distributed is None
        and all(getattr(section, "preload", None) == [] for _, _, section in config.services)
        and all(read_python_command(command, {"PATH": os.defpath}) is not None for command in commands)
    )


def list_service_states(config: CheckedConfig) -> tuple[ServiceState, ...]:
    """Return the services of an experiment as its config has them."""
    shares = [(name, platform, config.share(name)) for name, platform, _ in config.services]
    return tuple(
        ServiceState(
            name,
            platform,
            slots=share.max_trials,
            weight=1.0 if share.weight is None else share.weight,
            cost=share.cost,
        )
        for name, platform, share in shares
    )


def located(about: ExperimentFacts, address: Address) -> ExperimentFacts:
    """Return the same facts with the address where the manager listens."""
    return replace(about, port=address.port, url=address.url)
