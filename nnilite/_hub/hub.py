"""All experiments of this user on this machine, and what can be done to each. All methods block."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from nnilite._experiments import experiment_remarks, registry
from nnilite._experiments.experiment_remarks import Remarks
from nnilite._experiments.registry import RegistryEntry
from nnilite._hub import starts
from nnilite._hub.digests import Digest, Digests
from nnilite._hub.starts import Draft
from nnilite._running import launch, managers, removal
from nnilite._running.launch import ManagerOptions
from nnilite.errors import Conflict, NotFound
from nnilite.records import ExperimentState, Json


class Hub:
    """Its methods may be called in any thread. `options`: where the managers listen that are started here."""

    def __init__(self, options: ManagerOptions | None = None) -> None:
        self.options = options or ManagerOptions()
        # What waits for managers that hang has other threads, and so does not hold up the list.
        self.listers = ThreadPoolExecutor(2, "list")
        self._digests = Digests()
        # One change of an experiment at a time: the second of two clicks finds what the first has done.
        self._locks: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)

    def close(self) -> None:
        self.listers.shutdown(wait=False)
        self._digests.close()

    def listed(self) -> list[dict[str, Json]]:
        """Return all experiments, newest first. `digest` is null until the experiment's own data have been read."""
        entries = registry.list_all()
        digests = self._digests.read_known(entries)
        return [_row(entry, digests.get(entry.id)) for entry in entries]

    def find(self, experiment: str) -> RegistryEntry:
        """Return the experiment with exactly this id. Raises: NotFound."""
        entry = registry.entry(experiment) if registry.is_id(experiment) else None
        # The registry does not have the experiments of Microsoft NNI.
        entry = entry or next((one for one in registry.list_all() if one.id == experiment), None)
        if entry is None:
            raise NotFound(f"Experiment {experiment} no longer exists.")
        return entry

    def open(self, experiment: str) -> str:
        """Return the address of the experiment's page, which signs in once. One without a manager gets a viewer.

        Raises: NniliteError if it cannot be opened.
        """
        with self._locks[experiment]:
            entry = self.find(experiment)
            if not entry.alive:
                entry = launch.view(entry, options=self.options)
        with managers.connect(entry) as manager:
            return manager.sign_in_link()

    def resume(self, experiment: str) -> None:
        """Resume a stopped experiment; one that is viewed keeps its address. Raises: NniliteError."""
        with self._locks[experiment]:
            entry = self.find(experiment)
            if entry.origin is not None:
                raise Conflict(registry.explain_no_resume(entry.id))
            if entry.alive and entry.state == ExperimentState.VIEWED.value:
                with managers.connect(entry) as manager:
                    manager.resume()
            else:
                launch.resume(entry, options=self.options)

    def stop(self, experiment: str) -> None:
        """Ask an experiment or a viewer to stop. Return before it has ended. Raises: NniliteError."""
        # It takes no lock: what holds the lock may be the very start that is to be stopped.
        entry = self.find(experiment)
        if not entry.alive:
            raise Conflict(f"Experiment {experiment} is not running.")
        managers.ask_to_stop(entry)

    def delete(self, experiment: str) -> None:
        """Delete a stopped experiment with all its files. Raises: NniliteError."""
        # A digest that is being read has the experiment's files open.
        with self._locks[experiment], self._digests.reading:
            entry = self.find(experiment)
            if entry.origin is not None:
                raise Conflict(f"Experiment {experiment} was made by Microsoft NNI; only NNI deletes it.")
            # It also refuses an experiment whose folder is unknown at the moment.
            removal.delete(registry.find(entry.id, damaged=True))

    def remark(self, experiment: str, remarks: Remarks, based_on: int) -> Remarks:
        """Replace name, tags and note. Raises: NniliteError, Conflict if they are not of revision `based_on`."""
        with self._locks[experiment]:
            entry = self.find(experiment)
            if entry.origin is not None:
                raise Conflict(f"Experiment {experiment} was made by Microsoft NNI and can only be read.")
            if not entry.directory.is_dir():
                raise NotFound(f"{entry.directory}, the experiment's folder, is gone.")
            return experiment_remarks.write(entry.directory, remarks, based_on)

    def read_config(self, experiment: str) -> Draft:
        """Return the configuration as a draft of another experiment; secrets are hidden. Raises: NniliteError."""
        entry = self.find(experiment)
        if not _can_repeat(entry):
            raise Conflict(f"Experiment {experiment} has no configuration that another one can be started from.")
        return starts.draft_of(entry.directory)

    def chosen(self, experiments: Sequence[str]) -> list[RegistryEntry]:
        """Return the experiments with these ids, without duplicates. Raises: NotFound."""
        return [self.find(one) for one in dict.fromkeys(experiments)]


def _can_resume(entry: RegistryEntry) -> bool:
    """Return whether a manager may resume it now. Only NNI resumes its experiments, and only a program its search."""
    is_free = not entry.alive or entry.state == ExperimentState.VIEWED.value
    return is_free and _can_repeat(entry)


def _can_repeat(entry: RegistryEntry) -> bool:
    """Return whether another experiment can be started from its configuration: a search has a program for that."""
    return entry.origin is None and not (entry.search or entry.damage)


def _row(entry: RegistryEntry, digest: Digest | None) -> dict[str, Json]:
    return {
        **registry.as_json(entry),
        "revision": entry.remarks.revision,
        "trouble": entry.remarks.trouble,
        "canResume": _can_resume(entry),
        "canRepeat": _can_repeat(entry),
        "digest": None if digest is None else _digest_json(digest),
    }


def _digest_json(digest: Digest) -> dict[str, Json]:
    return {
        "counts": dict(digest.counts),
        "maxTrials": digest.max_trials,
        "best": digest.best,
        "parameters": digest.parameters,
        "objectives": dict(digest.objectives),
        "duration": digest.duration_s,
        "reason": digest.reason,
        "trouble": digest.trouble,
    }
