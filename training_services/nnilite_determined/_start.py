"""Run in the container: start the keeper, obey Determined's preemption signal, and keep checkpoints.

Its text is part of the experiment's entrypoint, so it needs Python 3.8 and the standard library alone. Its arguments
are a JSON object with `experiment`, `trial`, `nodes`, `bucket` (the file with the program for an S3 bucket, "" if the
experiment stores its checkpoints elsewhere), and the words of the command that becomes the keeper.

Determined sends no SIGTERM to a trial that has to end: it uses a signal that a process has to poll for, when a user
cancels or pauses the experiment and when the scheduler needs the slots. The signal becomes a SIGTERM here, so the trial
has its grace period to save itself; exit code 0 then says that all went well.

Slots on several machines are one container on each. Determined has them wait for each other, and writes a file with the
addresses of all. Source: determined.exec.prep_container of 0.38.1, which runs before the entrypoint. Its `command` then
has the number of the container and the address of the first one in two variables.

Determined restarts a trial that was preempted, or whose container was lost, within the same experiment. nnilite retries
trials instead, since it can tell the attempts apart, so a second run ends at once.
"""

from __future__ import annotations

import json
import os
import signal
import ssl
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from types import FrameType
from typing import Any, Dict, List, Mapping, Optional, Sequence

SHARED = "/determined_shared_fs"
LATEST = "determined-latest"
EVENT = "NNILITE_EVENT "
NODE = "NNILITE_NODE"
FIRST_NODE = "NNILITE_FIRST_NODE"
# /run/determined/info/rendezvous.json: containers start in /run/determined/workdir.
_RENDEZVOUS = os.path.join("..", "info", "rendezvous.json")
_POLL_S = 60
_PAUSE_S = (1.0, 30.0)
_SAVE_EVERY_S = 30.0
_PLACE = "nnilite"
_STORAGE = "nnilite-storage"  # read and removed by the keeper, as it may hold the keys of the bucket


def main(words: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run the keeper to its end; return the exit code."""
    about = json.loads(words[0])
    if int(environment.get("DET_TRIAL_RUN_ID") or 1) > 1:
        _say("Determined started the job again; nnilite retries the trial itself")
        return 1
    nodes = int(about.get("nodes") or 1)
    variables: Dict[str, str] = {}
    if nodes > 1:
        try:
            variables = find_place(nodes, _RENDEZVOUS)
        except ValueError as error:
            end = {"type": "exit", "time": time.time(), "code": None, "message": str(error), "cause": ""}
            sys.stdout.write(EVENT + json.dumps(end) + "\n")
            sys.stdout.flush()
            return 1
    storage = (json.loads(environment.get("DET_EXPERIMENT_CONFIG") or "{}")).get("checkpoint_storage") or {}
    if variables.get(NODE, "0") != "0":  # the first node saves for all
        storage = {}
    command = [*words[1:], *_checkpoints(storage, about, environment.get("DET_LATEST_CHECKPOINT") or "")]
    child = subprocess.Popen(command, env=dict(environment, **variables))
    preemption = Preemption(environment, child)
    signal.signal(signal.SIGTERM, preemption.forward)
    threading.Thread(target=preemption.watch, daemon=True).start()
    code = child.wait()
    if preemption.heard:
        return 0
    return code if code >= 0 else 128 - code


def find_place(nodes: int, path: str) -> Dict[str, str]:
    """Return the variables of a node of a distributed trial.

    Raises: ValueError with a sentence if this container is not one of as many nodes.
    """
    try:
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
        number, addresses = int(found["container_rank"]), list(map(str, found["container_addrs"]))
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise ValueError("Determined's addresses of the trial's nodes cannot be read: {!r}".format(error)) from error
    if len(addresses) != nodes:
        raise ValueError(
            "the {} nodes of the trial are {} containers on Determined: set trialGpuNumber or slots to the number of "
            "slots of a machine".format(nodes, len(addresses))
        )
    return {NODE: str(number), FIRST_NODE: addresses[0]}


class Preemption:
    """Determined's signal that this container has to end."""

    def __init__(self, environment: Mapping[str, str], child: subprocess.Popen[bytes]) -> None:
        self.heard = False
        self._child = child
        self._master = (environment.get("DET_MASTER") or "").rstrip("/")
        self._allocation = environment.get("DET_ALLOCATION_ID") or ""
        self._token = environment.get("DET_SESSION_TOKEN") or ""
        self._context = trust(environment)

    def forward(self, number: int, frame: Optional[FrameType]) -> None:
        """Pass SIGTERM of this process on to the keeper."""
        self._end()

    def watch(self) -> None:
        """Wait for the signal, for as long as this process runs."""
        pause_s, longest_s = _PAUSE_S
        path = "/api/v1/allocations/{}/signals/".format(self._allocation)
        while self._master and self._allocation:
            try:
                if self._call("GET", "{}preemption?timeoutSeconds={}".format(path, _POLL_S)).get("preempt"):
                    self.heard = True
                    self._end()
                    self._call("POST", path + "ack_preemption", {"allocationId": self._allocation})
                    return
                pause_s = _PAUSE_S[0]
            except (OSError, ValueError, AttributeError) as error:
                if self.heard:
                    return
                _say("cannot ask Determined whether this trial has to end: {}".format(error))
                time.sleep(pause_s)
                pause_s = min(longest_s, 2 * pause_s)

    def _end(self) -> None:
        try:
            self._child.send_signal(signal.SIGTERM)
        except OSError:  # it has ended meanwhile
            pass

    def _call(self, method: str, path: str, body: Optional[Dict[str, str]] = None) -> Dict[str, Any]:
        request = urllib.request.Request(
            self._master + path,
            data=None if body is None else json.dumps(body).encode("ascii"),
            headers={"Content-Type": "application/json"},
            method=method,
        )
        # Of the other headers, urllib sends copies to wherever an answer leads.
        request.add_unredirected_header("Authorization", "Bearer " + self._token)
        with urllib.request.urlopen(request, timeout=_POLL_S + 15, context=self._context) as answer:
            return dict(json.loads(answer.read().decode("utf-8")))


def trust(environment: Mapping[str, str]) -> Optional[ssl.SSLContext]:
    """Return the certificates to trust for the master, as Determined names them in its containers."""
    if not (environment.get("DET_MASTER") or "").startswith("https:"):
        return None
    file = environment.get("DET_MASTER_CERT_FILE") or ""
    if file == "noverify":
        return ssl._create_unverified_context()
    context = ssl.create_default_context(cafile=file if file and os.path.exists(file) else None)
    if environment.get("DET_MASTER_CERT_NAME"):
        context.check_hostname = False  # the certificate is for another name, and Determined has handed it over itself
    return context


def mounted(storage: Mapping[str, Any]) -> str:
    """Return the folder of a checkpoint storage that is mounted in the container, "" for one that is not."""
    if storage.get("type") == "directory":
        return str(storage.get("container_path") or "")
    if storage.get("type") != "shared_fs":
        return ""
    inner = str(storage.get("storage_path") or "")
    if os.path.isabs(inner):
        inner = os.path.relpath(inner, str(storage.get("host_path") or "/"))
    return os.path.normpath(os.path.join(SHARED, inner))


def _checkpoints(storage: Mapping[str, Any], about: Mapping[str, Any], latest: str) -> List[str]:
    """Return the keeper's options for checkpoints. Without any they stay in the keeper's own folder, in the container.

    The files that Determined's own library saved in the attempt before are available as `determined-latest`.
    """
    base = mounted(storage)
    try:
        if base:
            folder = os.path.join(base, _PLACE, about["experiment"], about["trial"])
            os.makedirs(folder, exist_ok=True)
            link(os.path.join(folder, LATEST), os.path.join(base, latest) if latest else "")
            return ["--checkpoints", folder]
        if storage.get("type") == "s3" and about.get("bucket"):
            return _use_bucket(storage, about, latest)
    except (OSError, ImportError) as error:
        _say("checkpoints stay in this container and are lost with it: {}".format(error))
    return []


def _use_bucket(storage: Mapping[str, Any], about: Mapping[str, Any], latest: str) -> List[str]:
    """Return the options with which the keeper copies checkpoints to the bucket. Raises: OSError, ImportError."""
    folder = os.path.abspath("nnilite-checkpoints")
    os.makedirs(folder, exist_ok=True)
    with open(about["bucket"], encoding="utf-8") as file:
        text = file.read()
    program: Dict[str, Any] = {}
    exec(text, program)
    place = "{}/{}".format(_PLACE, about["experiment"])
    bucket = program["CheckpointBucket"](storage, place)
    try:
        bucket.load_former(about["trial"], folder)
        if latest:
            bucket.load_own(latest, os.path.join(folder, LATEST))
    except OSError as error:
        _say("the bucket {}: {}".format(storage.get("bucket"), error))
    entry = {"kind": "program", "program": text, "parts": ["checkpoints"], "save_every_s": _SAVE_EVERY_S}
    entry.update(apart=[LATEST], bucket=storage, place=place)
    with open(os.open(_STORAGE, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as target:
        target.write(json.dumps(entry))
    return ["--checkpoints", folder, "--storage", _STORAGE]


def link(path: str, target: str) -> None:
    """Let `path` lead to `target`, and to nothing if that is empty. Raises: OSError."""
    if os.path.islink(path):
        os.unlink(path)
    if target and not os.path.exists(path):
        os.symlink(target, path)


def _say(sentence: str) -> None:
    sys.stderr.write(sentence + "\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))
