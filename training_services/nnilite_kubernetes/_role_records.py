"""The records of trials' pods: how each one ended, and its output, kept with the attempt on this machine.

    trials/<trial>/<attempt>/roles.json            one entry for each pod: role, rank, state, exit code, ...
    trials/<trial>/<attempt>/roles/worker-1.log

Those of a distributed trial are `pods.json` and `pods/`, since its keepers record its ranks in `roles.json`.

Pods are deleted early: by operators when their job has ended, and by this service. So threads of this module read a
log as soon as its pod begins to end, up to its end. `refresh` reads those of running pods. If keepers report to the
manager, the log of the reporting pod is read only if it has failed: the trial's output comes as events.
"""

from __future__ import annotations

import contextlib
import json
import logging
import re
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path

from nnilite.platform_http import limited_by
from nnilite.records import Json
from nnilite.service import JobState, JobStatus
from nnilite.services.worker_side import is_there
from nnilite_kubernetes._api import ApiError, Cluster, LogStream
from nnilite_kubernetes._log import EVENT
from nnilite_kubernetes._manifest import ATTEMPT, ROLE, TRIAL, Role
from nnilite_kubernetes._status import disruption, find_container_start, find_node, judge_pod_end, rank

log = logging.getLogger(__name__)

_THREADS = 16
_MOST_BYTES = 16_000_000  # limit for one log
_LONGEST_LINE_BYTES = 4_000_000
_LOG_S = 600.0  # for one log that is read to its end
_PAUSES_S = (1.0, 3.0)  # before a last log is asked for again
_TAKEN = ("ENDING", "DELETED", JobState.LOST.value, JobState.CANCELED.value)
_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")


class RoleRecords:
    """Keeps the records. The watch of the pods calls `record`; several threads may call all methods."""

    def __init__(
        self, cluster: Cluster, namespace: str, folder: Path, by_log: bool = False, name: str = "roles"
    ) -> None:
        """Set up without any record. `by_log`: keepers report only by their logs; `name`: of file and folder."""
        self._cluster = cluster
        self._namespace = namespace
        self._folder = folder
        self._by_log = by_log
        self._name = name
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="pod-logs")
        self._lock = threading.Lock()
        self._readers: dict[str, Future[None]] = {}  # by pod uid: the last reading, which began when the pod ended
        self._ending: dict[str, Path] = {}  # the folders of pods that are to end, by their uids
        self._closed = threading.Event()

    def close(self) -> None:
        """Stop reading. Readers end with the connections of the cluster, which must be closed after this.

        The next manager reads the rest, if it still exists then.
        """
        with self._lock:
            self._closed.set()
            for folder in set(self._ending.values()):
                self._leave(folder)
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _leave(self, folder: Path) -> None:
        """Record pods that are still ending as deleted; a later manager that sees their end corrects this."""
        entries = _read(folder, self._name)
        if entries is None:
            return
        for entry in entries:
            if entry["state"] == "ENDING" and entry["uid"] in self._ending:
                entry.update(state="DELETED", reason="it was still ending when its manager closed")
        _write(folder, self._name, entries)

    def record(self, pod: Json, role: Role, gone: bool = False, ending: bool = False) -> None:
        """Note a changed pod. When it has begun to end, or is about to, read its log to its end."""
        ending = ending or bool(pod["metadata"].get("deletionTimestamp"))
        if not (gone or ending or judge_pod_end(pod, role.container)) or _place(pod) is None:
            return
        with self._lock:
            if self._closed.is_set():
                return
            entry = self._enter(pod, role, gone)
            uid = pod["metadata"]["uid"]
            if gone:
                self._readers.pop(uid, None)
            if entry is None or gone or uid in self._readers or entry.get("read"):
                return
            if not self._comes_as_events(pod, role) or judge_pod_end(pod, role.container):
                self._readers[uid] = self._threads.submit(self._keep, pod, role, True)

    def refresh(self, pod: Json, role: Role) -> None:
        """Read the output of a running pod so far. Raises: ApiError."""
        with self._lock:
            busy = pod["metadata"]["uid"] in self._readers
            entry = None if busy or _place(pod) is None else self._enter(pod, role, False)
        if entry is not None and not entry.get("read"):
            self._keep(pod, role, False)

    def settle(self, pods: Sequence[Json], limit_s: float) -> None:
        """Wait until the logs of these pods, which have ended, are read."""
        readers = [self._readers.get(pod["metadata"]["uid"]) for pod in pods]
        wait([reader for reader in readers if reader is not None], timeout=limit_s)

    def failure(self, content: Json) -> JobStatus | None:
        """Return the first failure of a pod of this object's job that is the trial's own; None if there is none.

        The pods may be gone: operators delete them before they tell that a job has failed.
        """
        place = _attempt(content)
        entries = (_read(self._folder.joinpath("trials", *place), self._name) if place is not None else None) or []
        if any(entry.get("disrupted") for entry in entries):
            return None
        own = next((entry for entry in entries if entry.get("own")), None)
        if own is None:
            return None
        reason = f"{own['pod']}: {own['reason'] or own['state']}"
        code, host, started, ended = (own[name] for name in ("exitCode", "host", "started", "ended"))
        return JobStatus(JobState.FAILED, reason, code, host, started=started, ended=ended)

    def _enter(self, pod: Json, role: Role, gone: bool) -> Json | None:
        """Write the state of a pod into the record of its attempt. Return its entry, None if it cannot be written."""
        if _place(pod) is None:
            return None
        folder = self._find_folder(pod)
        entries = _read(folder, self._name)
        if entries is None:
            return None
        uid, number = pod["metadata"]["uid"], rank(pod)
        known = next((entry for entry in entries if entry["uid"] == uid), None)
        if known is None:
            before = sum((entry["role"], entry["rank"]) == (role.name, number) for entry in entries)
            name = f"{role.name}-{number}" + (f".{before}" if before else "")
            known = {
                "role": role.name,
                "rank": number,
                "pod": pod["metadata"]["name"],
                "uid": uid,
                "log": f"{name}.log",
                "reports": role.reports,
            }
            entries.append(known)
        known.update(_record_standing(pod, role, gone, known))
        if known["state"] == JobState.FAILED.value and "own" not in known:
            known["own"] = not any(map(_is_taken, entries))
        if not known.get("read") and self._comes_as_events(pod, role) and _has_ended_well(pod, role):
            known.update(read=True, log=_find_existing(folder, self._name, known["log"]))
        _write(folder, self._name, entries)
        if known["state"] == "ENDING":
            self._ending[uid] = folder
        else:
            self._ending.pop(uid, None)
        return known

    def _comes_as_events(self, pod: Json, role: Role) -> bool:
        """Return whether the keeper of a pod sends the trial's output to the manager."""
        return role.reports and rank(pod) == 0 and not self._by_log

    def _keep(self, pod: Json, role: Role, last: bool) -> None:
        """Copy a pod's log to its file. Raises: ApiError, if it is not the last time."""
        for pause_s in (*(_PAUSES_S if last else ()), None):
            try:
                self._copy(pod, role, last)
            except ApiError as error:
                if not last:
                    raise
                if error.passing and pause_s is not None and not self._closed.wait(pause_s):
                    continue
                log.info("the log of the pod %s cannot be read (any more): %s", pod["metadata"]["name"], error)
                if not error.passing:
                    self._finish(pod)
            except OSError as error:
                log.warning("the log of the pod %s cannot be kept: %s", pod["metadata"]["name"], error)
            return

    def _copy(self, pod: Json, role: Role, last: bool) -> None:
        folder, uid = self._find_folder(pod), pod["metadata"]["uid"]
        entry = next((entry for entry in _read(folder, self._name) or [] if entry["uid"] == uid), None)
        if entry is None or entry.get("read"):
            return
        path = folder / self._name / entry["log"]
        draft = path.with_suffix(".last" if last else ".new")  # the pod may end while somebody looks
        stream = self._cluster.log_stream(self._namespace, entry["pod"], role.container, _MOST_BYTES, follow=last)
        _save(stream, path, draft)
        if last:
            self._finish(pod)

    def _finish(self, pod: Json) -> None:
        """Finish with a pod whose log is complete."""
        folder = self._find_folder(pod)
        with self._lock:
            if self._closed.is_set():
                return
            entries = _read(folder, self._name)
            if entries is None:
                return
            for known in (known for known in entries if known["uid"] == pod["metadata"]["uid"]):
                known.update(read=True, log=_find_existing(folder, self._name, known["log"]))
            _write(folder, self._name, entries)

    def _find_folder(self, pod: Json) -> Path:
        """Return the folder of the pod's attempt; its labels were checked before."""
        trial, attempt = _place(pod) or ("", "")
        return self._folder / "trials" / trial / attempt


def _has_ended_well(pod: Json, role: Role) -> bool:
    """Return whether a pod has ended as it should: by itself, or because that was requested."""
    end = judge_pod_end(pod, role.container)
    return end is not None and end.state in (JobState.SUCCEEDED, JobState.CANCELED)


def _place(pod: Json) -> tuple[str, str] | None:
    """Return trial and attempt of a pod, None if its labels cannot be from this service."""
    return _attempt(pod) if (pod["metadata"].get("labels") or {}).get(ROLE) else None


def _attempt(content: Json) -> tuple[str, str] | None:
    """Return trial and attempt of an object, None if its labels cannot be from this service."""
    labels: Mapping[str, str] = content["metadata"].get("labels") or {}
    trial, attempt = str(labels.get(TRIAL) or ""), str(labels.get(ATTEMPT) or "")
    return (trial, attempt) if _NAME.fullmatch(trial) and attempt.isdecimal() else None


def _is_taken(entry: Mapping[str, Json]) -> bool:
    """Return whether a pod was taken away so that others may fail because of it."""
    return bool(entry.get("disrupted") or (entry.get("reports") and entry["state"] in _TAKEN))


def _find_existing(folder: Path, name: str, log: Json) -> Json:
    """Return the name of a log, None if the file does not exist."""
    return log if log and is_there(folder / name / log) else None


def _record_standing(pod: Json, role: Role, gone: bool, known: Mapping[str, Json]) -> dict[str, Json]:
    """Return the entry of a pod now; its end stays known when it is gone."""
    end = judge_pod_end(pod, role.container)
    if end is not None:
        started = end.started or find_container_start(pod, role.container)
        return {
            "state": end.state.value,
            "exitCode": end.exit_code,
            "reason": end.reason,
            "disrupted": bool(disruption(pod)) and end.state is JobState.LOST,
            "host": end.host,
            "started": started,
            "ended": end.ended or known.get("ended") or time.time(),
        }
    if gone and known.get("ended"):
        return {}
    state = "DELETED" if gone else "ENDING" if pod["metadata"].get("deletionTimestamp") else "RUNNING"
    ended = time.time() if gone else None
    host = find_node(pod)
    started = find_container_start(pod, role.container)
    return {"state": state, "exitCode": None, "reason": "", "host": host, "started": started, "ended": ended}


def _read(folder: Path, name: str) -> list[dict[str, Json]] | None:
    """Read the entries of an attempt; None if they cannot be read now, and must not be replaced."""
    try:
        return list(json.loads((folder / f"{name}.json").read_bytes()))
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        log.warning("cannot read %s now; leaving it as it is: %s", folder / f"{name}.json", error)
        return None
    except (ValueError, RecursionError) as error:
        log.warning("starting %s again: %s", folder / f"{name}.json", error)
        return []


def _write(folder: Path, name: str, entries: list[dict[str, Json]]) -> None:
    try:
        (folder / name).mkdir(mode=0o700, parents=True, exist_ok=True)
        draft = folder / f".{name}.json.new"
        draft.write_text(json.dumps(entries, indent=1))
        draft.replace(folder / f"{name}.json")
    except OSError as error:
        log.warning("%s cannot be written: %s", folder / f"{name}.json", error)


def _save(stream: LogStream, path: Path, draft: Path) -> None:
    """Save a log without the events of its keeper, unless it is empty. Raises: ApiError, OSError."""
    written = taken = 0
    try:
        lines = stream.lines(longest=_LONGEST_LINE_BYTES)
        with draft.open("wb") as file, limited_by(_LOG_S, stream.stop), contextlib.closing(lines):
            for line in lines:
                taken += len(line) + 1
                if not line.startswith(EVENT):
                    written += file.write(line + b"\n")
                if taken >= _MOST_BYTES:  # a kubelet may send more than it was asked for
                    break
            if taken >= _MOST_BYTES:
                file.write(b"(the log is longer; the rest was left out)\n")
    finally:  # also of one that broke off
        known = path.stat().st_size if is_there(path) else 0
        if written > known:
            draft.replace(path)
        else:
            draft.unlink()
