"""The agent that stays: answers requests until its connection ends."""

from __future__ import annotations

import base64
import contextlib
import hmac
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, cast

from nnilite.services.slots import SlotAllocator, SlotError, SlotTerms
from nnilite.services.worker_side import (
    DELIVERY_S,
    MOST_DELIVERIES,
    TAKEN_CARE_OF,
    FolderHangs,
    FolderLook,
    FolderLooks,
    HostMeter,
    LookResult,
    NotRegularFile,
    boot_id,
    deliver_command,
    end_state,
    is_folder_there,
    is_made_by_others,
    is_there,
    open_regular,
    read_json,
    remove_tree,
    write_private,
)
from nnilite_remote._worker.attempt import HostedAttempt
from nnilite_remote._worker.checkpoints import restore, tidy_up, trace
from nnilite_remote._worker.gpus import Gpus
from nnilite_remote._worker.hosted_keepers import HostedKeepers
from nnilite_remote._worker.keeper_starter import KeeperStarter
from nnilite_remote._worker.processes import WorkerRefusal, make_folder
from nnilite_remote._worker.report_socket import ReportSocket
from nnilite_remote._worker.transfer import listed, place_of

_READ_LIMIT_BYTES = 1 << 20  # in base64 that is less than a line may have: the manager drops who sends longer ones
_MOST_REASON_CHARS = 1000
_STALE_PART_S = 86400.0
_STILL_RUNS = "an earlier attempt of this trial must end first: in %s process group %s cannot be killed"
_LAUNCHERS = ("mpirun", "horovodrun")
_SLOTS_S = 0.5  # time for which other agents may hold the lock while this one is blocked


class _SecondKeeper(NamedTuple):
    """A second keeper, which delivers the events that a dead one has left."""

    process: subprocess.Popen[bytes]
    until: float  # it is killed then
    number: int  # index of the node


class Agent:
    """Answers requests until standard input ends. Keepers, in sessions of their own, continue."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.experiment: str = settings["experiment"]
        self.key: str = settings["key"]
        self.root = place_of(settings)
        self.folder = os.path.join(self.root, self.experiment)
        self.cache = os.path.join(self.root, "cache")
        self.keeper = os.path.join(self.cache, settings["keeper"])
        self._gpus = Gpus()
        self._meter = HostMeter()
        self._out = threading.Lock()
        self._starter = KeeperStarter(self.keeper, self.folder, self.say)
        self._looks = FolderLooks()
        self._keepers = HostedKeepers(self._starter, self._looks)
        self._reports = ReportSocket(self.say, partial(_has_token, self.folder))
        self._delivering: dict[str, _SecondKeeper] = {}  # by folder
        place = Path(self.root, ".slots", "%s.%s.%s.json" % (self.experiment, settings["service"], self.key))
        self._slots = SlotAllocator(place, self.experiment, self._holds_slot, _SLOTS_S)

    def hello(self, settings: dict[str, Any]) -> dict[str, Any]:
        """Return what the manager has to know of this machine. Raises: WorkerRefusal, OSError."""
        is_new = not os.path.isdir(self.root)
        make_folder(self.root)
        if is_made_by_others(self.root, is_new):
            raise WorkerRefusal(
                "%s, or a folder above it, is another user's, who could replace what trials run: set remoteDirectory"
                % self.root
            )
        for folder in (self.cache, self.folder):
            make_folder(folder)
        for name in os.listdir(self.cache):
            with contextlib.suppress(FileNotFoundError):  # another experiment cleans up, too
                _look_after(os.path.join(self.cache, name), name in settings["files"], settings["cache_s"])
        return {
            "root": self.root,
            "boot": boot_id(),
            "host": socket.gethostname(),
            "python": sys.version.split()[0],
            "interpreter": sys.executable,
            "system": sys.platform,
            "launchers": [name for name in _LAUNCHERS if shutil.which(name)],
            "cached": [name for name in os.listdir(self.cache) if not name.endswith(".part")],
        }

    def say(self, message: dict[str, Any]) -> None:
        data = json.dumps(message).encode("ascii") + b"\n"
        with self._out, contextlib.suppress(OSError):
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()

    def serve(self) -> None:
        quick = {"ping", "status", "start", "preload", "withdraw", "cancel", "callback", "answer"}
        for line in sys.stdin.buffer:
            request = json.loads(line.decode("utf-8"))
            if request["do"] in quick:
                self._answer(request)
            else:
                threading.Thread(target=self._answer, args=(request,), daemon=request["do"] != "finish").start()
        self._reports.close()
        with contextlib.suppress(OSError):  # nothing has come of it
            os.rmdir(self.folder)

    def _answer(self, request: dict[str, Any]) -> None:
        try:
            result = getattr(self, "do_" + request["do"])(request)
        except WorkerRefusal as refusal:
            self.say({"id": request["id"], "error": str(refusal), "unsure": refusal.unsure})
        except OSError as error:
            place = " (%s)" % error.filename if error.filename else ""
            self.say({"id": request["id"], "error": "%s%s" % (error.strerror or error, place), "errno": error.errno})
        else:
            if result is not None:
                self.say({"id": request["id"], "ok": result})

    # -- starting

    def do_ping(self, request: dict[str, Any]) -> dict[str, Any]:
        return {"use": self._meter.read()}

    def do_callback(self, request: dict[str, Any]) -> dict[str, Any]:
        place = os.path.join(self.folder, "callback-" + self.key)
        write_private(place, request["url"])
        if request["relayed"]:
            self._reports.listen(place + ".sock")
        return {}

    def do_answer(self, request: dict[str, Any]) -> None:
        """Deliver the manager's answer to a report. This request has no answer of its own."""
        self._reports.answer(request["caller"], request["line"])

    def do_start(self, request: dict[str, Any]) -> dict[str, Any] | None:
        """Start a keeper. The answer comes when the fork server has started it.

        If experiments share the slots of this machine, the answer may be the experiment that the job waits for; then
        nothing is started.
        """
        spec = request["spec"]
        attempt = HostedAttempt({"directory": spec["directory"]})
        known = self._starter.find_started(attempt, request["again"])
        if known is not None:
            return known
        for earlier in attempt.earlier(spec["job"]):
            left = self._keepers.end_given_up(earlier)
            if left:
                return {"waits": _STILL_RUNS % (earlier.path, " and ".join(map(str, left)))}
        for path in [self.keeper, *([spec["code"]["archive"]] if spec.get("code") else [])]:
            if not os.path.exists(path):
                return {"missing": os.path.basename(path)}
            os.utime(path)
        reason = _take_slot(self._slots, spec, request.get("terms") or {})
        if reason:
            return {"waits": reason}
        attempt.files.create(spec)
        self._starter.start(request["id"], spec["job"], attempt)
        return None

    def do_preload(self, request: dict[str, Any]) -> None:
        """Have modules imported once for all trials. The answer comes when the fork server knows the outcome."""
        # Trials have copies of the code below this folder, and none of them is there yet.
        self._starter.preload(request["id"], dict(request["order"], code=self.folder))

    def do_withdraw(self, request: dict[str, Any]) -> dict[str, Any]:
        """Withdraw a job that must not run here: it was not started, or runs elsewhere."""
        self._slots.free(request["job"])
        return {}

    # -- watching

    def do_status(self, request: dict[str, Any]) -> list[dict[str, Any]]:
        attempts = [HostedAttempt(job) for job in request["jobs"]]
        seen = self._looks.look_at_all([FolderLook(one.path, "status", partial(self._status, one)) for one in attempts])
        return [_describe_status(attempts[number], one) for number, one in enumerate(seen)]

    def _holds_slot(self, path: Path) -> bool | None:
        try:
            return cast("bool | None", self._looks.look(str(path), "slot", HostedAttempt.at(str(path)).runs))
        except FolderHangs:  # assume so: the job keeps what it holds
            return True

    def _status(self, attempt: HostedAttempt) -> dict[str, Any]:
        """Return a job's status. Look first whether the keeper runs, then how it ended: the other order misses ends."""
        if self._starter.is_starting(attempt.spec):
            return {"state": "WAITING", "reason": "its keeper is starting"}
        delivering = self._delivering.get(attempt.path)
        kept = self._keepers.has(attempt) or (delivering is None and attempt.files.has_keeper())
        exited, started = attempt.files.exited(), attempt.files.started()
        facts = {"started": _number(started.get("time")) if started else None}
        if exited is not None:
            return dict(facts, **_ended(exited))
        if kept:
            return dict(facts, state="RUNNING" if started else "WAITING", reason="" if started else "its keeper starts")
        return dict(facts, **self._abandoned(attempt, delivering))

    def _abandoned(self, attempt: HostedAttempt, delivering: _SecondKeeper | None) -> dict[str, Any]:
        """Handle a keeper that is gone without a report: first end the rest of its trial, and deliver its events."""
        if not is_folder_there(attempt.inner("")):
            return {"state": "LOST", "reason": "it never started, or its folder %s is gone" % attempt.path}
        rebooted = attempt.job.get("boot") not in (None, "", boot_id())
        reason = "its machine was restarted" if rebooted else "its keeper was killed"
        if not is_there(attempt.spec):
            return {"state": "LOST", "reason": reason}
        looked_after = {"state": "RUNNING", "reason": reason + "; the rest of its trial is being ended"}
        code = None if delivering is None else delivering.process.poll()
        if delivering is not None and code is None:
            if time.monotonic() < delivering.until:
                return looked_after
            delivering.process.kill()
            return {"state": "LOST", "reason": reason}
        number = 0 if delivering is None else delivering.number
        # One that could not do its work, on a disk in trouble perhaps, has not ended the trial: it may run on.
        if delivering is None or (code not in TAKEN_CARE_OF and number < MOST_DELIVERIES):
            self._delivering[attempt.path] = self._deliver(attempt, number + 1)
            return looked_after
        return {"state": "LOST", "reason": reason}

    def _deliver(self, attempt: HostedAttempt, number: int) -> _SecondKeeper:
        spec, nothing = attempt.files.spec(), subprocess.DEVNULL
        process = subprocess.Popen(
            deliver_command(sys.executable, self.keeper, attempt.files),
            stdin=nothing,
            stdout=nothing,
            stderr=nothing,
            start_new_session=True,
        )
        return _SecondKeeper(process, time.monotonic() + float(spec.get("grace_s") or 0) + DELIVERY_S, number)

    def do_cancel(self, request: dict[str, Any]) -> dict[str, Any]:
        """Send SIGTERM to the keeper, unless the trial has ended: a second one would cut the delivery short."""
        attempt = HostedAttempt(request["job"])
        ended = None
        with contextlib.suppress(FolderHangs):  # its keeper is told anyway
            ended = self._looks.look(attempt.path, "exit", attempt.files.exited)
        if ended is None:
            self._keepers.kill_after_grace(attempt)
            self._keepers.terminate(attempt)
        return {}

    def do_gpus(self, request: dict[str, Any]) -> list[dict[str, Any]]:
        return self._gpus.read(self.experiment)

    def do_reach(self, request: dict[str, Any]) -> dict[str, Any]:
        """Check that the manager can be reached directly. Raises: OSError."""
        try:
            socket.create_connection((request["host"], request["port"]), request["limit_s"]).close()
        except OSError as error:
            raise WorkerRefusal(str(error)) from error
        return {}

    # -- files

    def do_read(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return a piece of a file of an attempt: one of its streams, or a file of the keeper."""
        path = os.path.join(request["directory"], *request["name"].split("/"))

        def read() -> bytes:
            with open_regular(path) as file:
                file.seek(request["offset"])
                return file.read(min(request["limit"], _READ_LIMIT_BYTES))

        try:
            data = self._looks.look(request["directory"], "", read)
        except (FileNotFoundError, NotRegularFile):
            return {"data": None}
        return {"data": base64.b64encode(data).decode("ascii")}

    def do_files(self, request: dict[str, Any]) -> dict[str, Any]:
        """List the folder of an attempt, without the content of its files."""
        return {"files": listed(request["directory"])}

    def do_remove(self, request: dict[str, Any]) -> dict[str, Any]:
        """Tidy up after a trial: remove secrets and large files now; the rest goes when the experiment stops."""
        attempt = HostedAttempt(request["job"])

        def remove() -> None:
            with contextlib.suppress(OSError):
                remove_tree(os.path.join(attempt.path, "code"))
            if is_folder_there(attempt.inner("")):
                with open(attempt.inner("removed"), "wb"):
                    pass

        self._looks.look(attempt.path, "remove", remove)
        self._keepers.forget_later(attempt)
        return {}

    def do_trace(self, request: dict[str, Any]) -> dict[str, Any]:
        return trace(self.folder, request["trial"])

    def do_restore(self, request: dict[str, Any]) -> dict[str, Any]:
        restore(self.folder, request["trial"], request["attempt"], os.path.join(self.cache, request["archive"]))
        return {}

    def do_finish(self, request: dict[str, Any]) -> dict[str, Any]:
        """Finish the experiment on this machine: end canceled jobs, and remove what need not stay."""
        canceled = {job["directory"]: HostedAttempt(job) for job in request["canceled"]}
        ended = [attempt for attempt in _list_attempts(self.folder) if os.path.exists(attempt.inner("removed"))]
        attempts = list({attempt.path: attempt for attempt in [*ended, *canceled.values()]}.values())
        self._keepers.end(attempts, request["grace_s"])
        self._slots.leave()
        for attempt in attempts:
            attempt.clean(request["keep"] == "outputs")
        _remove_empty(self.folder, request["keep_checkpoints"])
        if not request["cache_s"]:
            shutil.rmtree(self.cache, ignore_errors=True)
        with contextlib.suppress(OSError):
            os.rmdir(self.root)
        return {"left": len(_list_attempts(self.folder))}


def _has_token(folder: str, job: str, token: str) -> bool:
    """Return whether this is the token of a job that was started here, according to its folder."""
    _, trial, number = ("--" + job).rsplit("-", 2)
    if not trial.isalnum() or not number.isdigit():
        return False
    with contextlib.suppress(OSError):
        known = HostedAttempt.at(os.path.join(folder, "trials", trial, number)).files.spec().get("token")
        return isinstance(known, str) and hmac.compare_digest(known.encode("utf-8"), token.encode("utf-8"))
    return False


def _list_attempts(folder: str) -> list[HostedAttempt]:
    """Return all attempts in an experiment's folder."""
    trials = os.path.join(folder, "trials")
    found = []
    for trial in _list_names(trials):
        for number in _list_names(os.path.join(trials, trial)):
            path = os.path.join(trials, trial, number)
            found.append(HostedAttempt({"directory": path, **(read_json(os.path.join(path, "job.json")) or {})}))
    return found


def _list_names(folder: str) -> list[str]:
    """Return what is in a folder. Another machine that has it on the same disk may clean up, too."""
    try:
        return os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []


def _remove_empty(folder: str, keep_checkpoints: bool) -> None:
    """Remove what is left of an experiment's folder, unless jobs still run there."""
    trials = os.path.join(folder, "trials")
    for trial in _list_names(trials):
        with contextlib.suppress(OSError):
            os.rmdir(os.path.join(trials, trial))
    if any(is_folder_there(attempt.inner("")) for attempt in _list_attempts(folder)):
        return
    for name in _list_names(folder):
        path = os.path.join(folder, name)
        if name.startswith("callback-") or name == "fork-server.log":
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
        elif name == "checkpoints":
            tidy_up(path, keep_checkpoints)
    for path in (trials, folder):
        with contextlib.suppress(OSError):
            os.rmdir(path)


def _look_after(path: str, needed: bool, keep_s: float) -> None:
    """Remove packages that have not been used for long."""
    age_s = time.time() - os.lstat(path).st_mtime
    if needed:
        os.utime(path)
    elif age_s > (_STALE_PART_S if path.endswith(".part") else max(keep_s, 60)):
        shutil.rmtree(path, ignore_errors=True) if os.path.isdir(path) else os.unlink(path)


def _take_slot(slots: SlotAllocator, spec: dict[str, Any], terms: dict[str, Any]) -> str:
    """Return the experiment that the job waits for; "" if it has a slot, or needs none. Raises: WorkerRefusal."""
    try:
        return slots.book(spec["job"], Path(spec["directory"]), SlotTerms(**terms))
    except SlotError as trouble:
        raise WorkerRefusal(str(trouble)) from trouble


def _describe_status(attempt: HostedAttempt, seen: LookResult) -> dict[str, Any]:
    """Return the status of a job; UNKNOWN while its folder cannot be read."""
    if seen.error is None:
        return cast("dict[str, Any]", seen.value)
    why = seen.error.strerror or str(seen.error)
    return {"state": "UNKNOWN", "reason": "its folder %s cannot be read now: %s" % (attempt.path, why)}


def _ended(exited: dict[str, Any]) -> dict[str, Any]:
    """Return how a job ended, by its keeper's record."""
    return {
        "state": end_state(exited),
        "reason": str(exited.get("message") or "")[:_MOST_REASON_CHARS],
        "exit_code": _number(exited.get("code")),
        "ended": _number(exited.get("time")),
    }


def _number(value: Any) -> Any:
    """Return a number of ordinary size; None for anything else, which a trial may have written."""
    return value if isinstance(value, (int, float)) and abs(value) < 1e18 else None
