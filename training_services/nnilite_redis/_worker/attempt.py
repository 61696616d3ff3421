"""One attempt of a trial on this worker: its folder, its keeper, and its reports.

task.json    what the manager said, until the keeper has its specification; holds the trial's token
spec.json    the keeper's specification; holds it, too
job.json     the task without secrets, and the keeper's process id: stays until the folder goes
asked        why the keeper was ordered to end: `cancel`, `stop` or `fenced`
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from nnilite.records import Json
from nnilite.service import JobState, JobStatus
from nnilite.services.gpu import environment
from nnilite.services.keeper_folder import KeeperFolder
from nnilite.services.worker_side import (
    DELIVERY_S,
    PATIENCE_S,
    USUAL_GRACE_S,
    FolderLooks,
    is_folder_there,
    is_stopped,
    is_there,
    kill_groups,
    make_attempt_folder,
    remove_tree,
    running_groups,
    write_private,
)
from nnilite_redis._worker import guard
from nnilite_redis._worker.confirmations import Confirmations
from nnilite_redis._worker.guard import read_json
from nnilite_redis._worker.task import WorkerTask, read_task

OURS = ("task.json", "spec.json", "job.json", "asked", "code", ".nni")
"""What in the folder is never the trial's output."""

SENT = ("parameter.cfg", "trial.stdout", "trial.stderr")
"""What the manager has, too, once all is delivered."""

CANCEL, STOP, FENCED = "cancel", "stop", "fenced"
_LEAVE_S = 1.0
_LAST_WORDS_S = 10.0
_looks = FolderLooks()  # shared by this worker's trials, so that a hanging folder delays no other trial


class WorkerAttempt:
    """Owned by the worker; only the keeper writes into `.nni`."""

    def __init__(self, task: WorkerTask, folder: Path, gpus: Sequence[int] | None) -> None:
        self.task = task
        self.path = folder / task.job.experiment / "trials" / task.job.trial / str(task.job.attempt)
        self._folder = KeeperFolder(self.path)
        self.gpus = gpus
        self.step = "the trial is being prepared"  # shown as the reason until its keeper starts
        self.failure = ""  # why it will never start here
        self.removed = False
        self.confirmations = Confirmations(self.path)
        self.storing = asyncio.Lock()  # held while its last files are being stored
        self.store_until = 0.0  # until then, last files that cannot be stored are tried again
        self.saved = False  # its last checkpoints are where others find them
        self.stored = False  # its outputs are in the store
        self._keeper: subprocess.Popen[bytes] | None = None
        self._delivery: subprocess.Popen[bytes] | None = None
        self._delivery_until = 0.0
        self._leave_by = 0.0  # when to kill a keeper that still delivers
        self._last: dict[str, Json] = {}
        self._asked_at: float | None = None  # when this worker has told it to end for the first time
        self._killed_unresponsive = False
        self._asked = ""  # as in the file, which may be gone or unwritten: a full disk, a swept folder

    # ------------------------------------------------------------ on disk

    def save(self, data: Mapping[str, Any]) -> None:
        """Save the task to disk, before Redis may forget it. Raises: OSError."""
        make_attempt_folder(str(self.path))
        given = {**data, "given_gpus": self.gpus and list(self.gpus)}
        write_private(str(self.path / "task.json"), json.dumps(given))

    @classmethod
    def found(cls, path: Path, folder: Path) -> WorkerAttempt | None:
        """Return the attempt that an earlier worker had in this folder; None if there is none. Raises: OSError."""
        data = _read_record(path / "job.json") or _read_record(path / "task.json")
        if not data:
            return None
        given = data.get("given_gpus")
        attempt = cls(read_task(data), folder, [int(index) for index in given] if isinstance(given, list) else None)
        return attempt if attempt.path == path else None

    @property
    def name(self) -> str:
        return self.task.name

    @property
    def begun(self) -> bool:
        """Return whether a keeper was started. Raises: OSError."""
        return is_there(self.path / "job.json")

    @property
    def asked(self) -> str:
        """Return why its end was asked for; "" if it was not."""
        if self._asked != FENCED:
            with contextlib.suppress(OSError):
                place = self.path / "asked"
                self._asked = _looks.look(str(self.path), "", lambda: place.read_text("ascii")) or self._asked
        return self._asked

    # ------------------------------------------------------------ the keeper

    def write_spec(self, archive: Path, callback: str, callback_file: Path, checkpoints: Path | None) -> None:
        """Write the specification. Raises: OSError."""
        given = environment(self.gpus if self.task.job.gpus else None if self.task.job.gpus is None else ())
        spec = self.task.job.spec_for(
            self.path,
            code={"archive": str(archive)},
            env=given,
            callback=callback,
            callback_file=str(callback_file),
            callback_ca=None,
            checkpoint_dir=None if checkpoints is None else str(checkpoints),
            send_output=True,
            orphan_s=self.task.orphan_s,
        )
        self._folder.create(spec)

    def token(self) -> str:
        """Return the trial's token, with which its keeper proves itself.

        "" where it has no specification (any more).
        """
        with contextlib.suppress(OSError):
            token = self._folder.spec().get("token")
            return token if isinstance(token, str) else ""
        return ""

    def start(self, keeper: Path) -> None:
        """Start the keeper; a second start does no harm, since it looks for another one at work. Raises: OSError."""
        self._keeper = _started(self._folder.run_command(keeper))
        public = {name: value for name, value in read_json(self.path / "task.json").items() if name != "spec"}
        self._folder.keep_note({**public, "spec": {}})
        (self.path / "task.json").unlink(missing_ok=True)

    def has_running_keeper(self) -> bool:
        if self._keeper is not None and self._keeper.poll() is None:
            return True
        delivering = self._delivery is not None and self._delivery.poll() is None
        return not delivering and self._folder.has_keeper()

    def _signal_keeper(self, number: int) -> None:
        pid = self._keeper.pid if self._keeper is not None and self._keeper.poll() is None else self._folder.keeper()
        if pid:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)

    def ask(self, why: str) -> None:
        """Have the keeper end the trial, once; fenced ones at once, since they may run elsewhere by now."""
        self._asked_at = time.monotonic() if self._asked_at is None else self._asked_at
        if self.asked in (why, FENCED) or (self.over and why != FENCED):
            return
        self._asked = why
        with contextlib.suppress(OSError):
            make_attempt_folder(str(self.path))
            (self.path / "asked").write_text(why, "ascii")
        if why == FENCED:
            guard.signal_trial(self.path, signal.SIGKILL)
        if not self.over:
            self._signal_keeper(signal.SIGTERM)

    def is_overdue(self) -> bool:
        """Return whether it was asked to end so long ago that `kill_unresponsive` has to be called."""
        if self._asked_at is None or self._killed_unresponsive:
            return False
        # One that an earlier worker has begun is known without its specification.
        grace_s = float(self.task.job.spec.get("grace_s", USUAL_GRACE_S) or 0)
        return time.monotonic() - self._asked_at > grace_s + PATIENCE_S

    def kill_unresponsive(self) -> None:
        """Kill, once, a trial that did not obey: a keeper that was stopped does not react. Blocks."""
        self._killed_unresponsive = True
        trial, keeper = None, 0
        with contextlib.suppress(OSError):
            trial, keeper = _looks.look(str(self.path), "", lambda: (self._folder.trial(), self._folder.keeper()))
        where = (self.name, str(self.path), trial)
        if running_groups(*where) or (keeper and is_stopped(keeper)):
            kill_groups(*where, [keeper] if keeper else ())

    # ------------------------------------------------------------ what is told of it

    @property
    def over(self) -> bool:
        """Return whether its command has ended, or will never start: it holds no processor any more."""
        if self.ended:
            return True
        with contextlib.suppress(OSError):  # a failing disk does not say
            return bool(_looks.look(str(self.path), "", lambda: self._folder.read_end() is not None))
        return False

    @property
    def ended(self) -> bool:
        """Return whether its end is reported."""
        return JobState(self.report()["state"]).ended

    def report(self) -> dict[str, Json]:
        """Return how it is.

        Whether the keeper runs is asked before how it ended: the other order misses an end in between.

        The end is not reported at once: for a while the keeper may report it to its manager itself, with all events
        before the end.
        """
        if not (self._last and JobState(self._last["state"]).ended):
            status = self._looked_at()
            self._last = {
                "state": status.state.value,
                "reason": status.reason[:2000],
                "exit_code": status.exit_code,
                "host": socket.gethostname(),
                "started": status.started,
                "ended": status.ended,
            }
        return self._last

    def _looked_at(self) -> JobStatus:
        try:
            return cast(JobStatus, _looks.look(str(self.path), "status", self._status))
        except OSError as error:
            reason = f"the trial's folder {self.path} cannot be read now: {error.strerror}"
            return JobStatus(JobState.UNKNOWN, reason)

    def _status(self) -> JobStatus:
        runs = self.has_running_keeper()
        ended, started = self._folder.read_end(), self._folder.started()
        if self.failure:
            return JobStatus(JobState.LOST, self.failure)
        if not self.begun:
            return self._judge_before_start()
        if runs and not started:
            return JobStatus(JobState.WAITING, "the trial's keeper is starting")
        if runs and ended is None:
            return JobStatus(JobState.RUNNING, started=started)
        if ended is not None and (unfinished := self._name_last_work(runs, ended)):
            return JobStatus(JobState.RUNNING, unfinished, started=started)
        if not runs and self._is_delivering():
            return JobStatus(
                JobState.RUNNING,
                "the trial's keeper was killed; a second one is delivering its events",
                started=started,
            )
        if ended is None:
            return JobStatus(
                JobState.LOST, "the trial's keeper was killed, or its machine was restarted", started=started
            )
        if self.asked in (STOP, FENCED):
            reason = "the worker was stopped" if self.asked == STOP else "the job was taken away"
            return JobStatus(JobState.LOST, reason, ended.exit_code, started=started, ended=ended.ended)
        return ended

    def _name_last_work(self, runs: bool, ended: JobStatus) -> str:
        """Return what its end waits for; "" if that can be reported."""
        if self.storing.locked() or (not self.saved and time.monotonic() < self.store_until):
            return "the trial's last files are being stored"
        is_recent = time.time() < (ended.ended or 0.0) + _LAST_WORDS_S
        return "the trial's last events are being delivered" if runs and is_recent else ""

    def _judge_before_start(self) -> JobStatus:
        if self.asked == CANCEL:
            return JobStatus(JobState.CANCELED, "the job was canceled before its command was started")
        if self.asked:
            return JobStatus(JobState.LOST, "the worker was stopped before the trial was started")
        return JobStatus(JobState.WAITING, self.step)

    def _is_delivering(self) -> bool:
        """Have a second keeper end the trial and deliver its events, if the first died before all was delivered."""
        delivered = read_json(self.path / ".nni" / "delivered")
        begin = self._delivery is None and not delivered and not self._leave_by
        if begin and is_there(self._folder.spec_file):
            keeper = self.path.parents[3] / "cache" / f"{self.task.keeper}.pyz"
            self._delivery_until = time.monotonic() + self._folder.grace_s() + DELIVERY_S
            with contextlib.suppress(OSError):
                self._delivery = _started(self._folder.deliver_command(keeper))
        if self._delivery is None or self._delivery.poll() is not None:
            return False
        if time.monotonic() > self._delivery_until:
            self._delivery.kill()
        return True

    # ------------------------------------------------------------ its end

    def release(self) -> None:
        """Release the trial: a keeper that still delivers leaves, and secrets are removed."""
        if self.has_running_keeper():
            self._leave_by = self._leave_by or time.monotonic() + _LEAVE_S
            self._signal_keeper(signal.SIGTERM if time.monotonic() < self._leave_by else signal.SIGKILL)
            return
        if not self.removed:
            self.removed = True
            with contextlib.suppress(OSError):
                remove_tree(str(self.path / "code"))
            for name in ("spec.json", "task.json"):
                (self.path / name).unlink(missing_ok=True)

    def outputs(self) -> list[Path]:
        """Return what the trial has written in addition to what the manager has. Raises: OSError."""
        if not is_folder_there(self.path):
            return []
        return [path for path in sorted(self.path.iterdir()) if path.name not in OURS + SENT]

    def clean(self) -> None:
        """Remove the folder, or all of it but what is to be kept."""
        if not (self.task.keep_outputs and not self.stored and self.outputs()):
            with contextlib.suppress(OSError):
                remove_tree(str(self.path))
        else:
            for name in OURS:
                with contextlib.suppress(OSError):
                    remove_tree(str(self.path / name))
        for folder in list(self.path.parents)[:3]:
            try:
                folder.rmdir()
            except OSError:
                return


def _started(command: list[str]) -> subprocess.Popen[bytes]:
    """Start a keeper. SIGTERM waits until it listens, so that no early cancel gets lost. Raises: OSError."""
    nothing = subprocess.DEVNULL
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        return subprocess.Popen(command, stdin=nothing, stdout=nothing, stderr=nothing, start_new_session=True)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


def list_attempts(folder: Path) -> list[Path]:
    """Return the folders of all attempts in a worker's folder.

    Raises: OSError if that is not known now: what an attempt has reported must not be overlooked.
    """
    trials = [trial for experiment in _list(folder) for trial in _list(experiment / "trials")]
    return [attempt for trial in trials for attempt in _list(trial)]


def _read_record(path: Path) -> dict[str, Any]:
    """Return a record that an earlier worker has written; {} if there is none. Raises: OSError."""
    try:
        value = json.loads(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _list(folder: Path) -> list[Path]:
    # `glob` finds nothing in a folder that cannot be read.
    try:
        return sorted(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
