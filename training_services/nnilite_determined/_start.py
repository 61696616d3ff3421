"""Run in the container: start the keeper, obey Determined's preemption signal, and keep checkpoints.

Its text is part of the experiment's entrypoint, so it needs Python 3.8 and the standard library alone, and boto3, which
Determined installs in each container, where checkpoints are stored in S3. Its arguments are a JSON object with
`experiment`, `trial` and `nodes`, and the words of the command that becomes the keeper.

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
from typing import Any, Dict, Mapping, Optional, Sequence, Tuple

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
    place = "nnilite/{}/{}".format(about["experiment"], about["trial"])
    if variables.get(NODE, "0") != "0":  # the first node saves for all
        storage = {}
    folder, bucket = _checkpoints(storage, place, environment.get("DET_LATEST_CHECKPOINT") or "")
    command = [*words[1:], "--checkpoints", folder] if folder else words[1:]
    child = subprocess.Popen(command, env=dict(environment, **variables))
    preemption = Preemption(environment, child)
    signal.signal(signal.SIGTERM, preemption.forward)
    threading.Thread(target=preemption.watch, daemon=True).start()
    code = _wait(child, bucket)
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


def _checkpoints(storage: Mapping[str, Any], place: str, latest: str) -> Tuple[str, Optional[CheckpointBucket]]:
    """Return the folder for checkpoints, and the bucket for its copy. No folder: the keeper's own, in the container.

    The files that Determined's own library saved in the attempt before are available as `determined-latest`.
    """
    base = mounted(storage)
    try:
        if base:
            folder = os.path.join(base, place)
            os.makedirs(folder, exist_ok=True)
            link(os.path.join(folder, LATEST), os.path.join(base, latest) if latest else "")
            return folder, None
        if storage.get("type") == "s3":
            folder = os.path.abspath("nnilite-checkpoints")
            os.makedirs(folder, exist_ok=True)
            bucket = CheckpointBucket(storage, place, folder)
            bucket.load(latest)
            return folder, bucket
    except (OSError, ImportError) as error:
        _say("checkpoints stay in this container and are lost with it: {}".format(error))
    return "", None


def link(path: str, target: str) -> None:
    """Let `path` lead to `target`, and to nothing if that is empty. Raises: OSError."""
    if os.path.islink(path):
        os.unlink(path)
    if target and not os.path.exists(path):
        os.symlink(target, path)


class CheckpointBucket:
    """The trial's folder for checkpoints, in an S3 bucket too. Raises: OSError, ImportError without boto3."""

    def __init__(self, storage: Mapping[str, Any], place: str, folder: str) -> None:
        self._name = str(storage["bucket"])
        self._prefix = str(storage.get("prefix") or "").strip("/")
        self._place = place
        self._folder = folder
        self._known: Dict[str, Tuple[int, int]] = {}
        boto3, self._errors = _import_boto3()
        self._client = boto3.client(
            "s3",
            endpoint_url=storage.get("endpoint_url"),
            aws_access_key_id=storage.get("access_key"),
            aws_secret_access_key=storage.get("secret_key"),
        )

    def load(self, latest: str) -> None:
        """Fetch the files of earlier attempts, and Determined's own latest checkpoint."""
        self._fetch(self._place, self._folder)
        self._known = self._files()
        if latest:
            self._fetch(latest, os.path.join(self._folder, LATEST))

    def save(self) -> None:
        """Send what has changed since."""
        now = self._files()
        try:
            for name, state in now.items():
                if self._known.get(name) != state:
                    self._client.upload_file(os.path.join(self._folder, name), self._name, self._key(self._place, name))
                    self._known[name] = state
            for name in set(self._known) - set(now):
                self._client.delete_object(Bucket=self._name, Key=self._key(self._place, name))
                del self._known[name]
        except self._errors as error:
            raise OSError("cannot write to the bucket {}: {}".format(self._name, error)) from error

    def _fetch(self, place: str, folder: str) -> None:
        start = self._key(place, "")
        try:
            pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=self._name, Prefix=start)
            for key in [item["Key"] for page in pages for item in page.get("Contents") or []]:
                path = os.path.normpath(os.path.join(folder, key[len(start) :]))
                if not path.startswith(folder + os.sep) or key.endswith("/"):
                    continue
                os.makedirs(os.path.dirname(path), exist_ok=True)
                self._client.download_file(self._name, key, path)
        except self._errors as error:
            raise OSError("cannot read the bucket {}: {}".format(self._name, error)) from error

    def _key(self, place: str, name: str) -> str:
        return "/".join(part for part in (self._prefix, place) if part) + "/" + name

    def _files(self) -> Dict[str, Tuple[int, int]]:
        """Return size and time of each file, without Determined's own files."""
        found = {}
        for folder, folders, names in os.walk(self._folder):
            if folder == self._folder and LATEST in folders:
                folders.remove(LATEST)
            for name in names:
                path = os.path.join(folder, name)
                try:
                    state = os.stat(path)
                except OSError:  # it was renamed meanwhile
                    continue
                found[os.path.relpath(path, self._folder)] = (state.st_size, state.st_mtime_ns)
        return found


def _import_boto3() -> Tuple[Any, Tuple[Any, ...]]:
    """Return boto3, which lies where this Python does not look, as it was started without `site`.

    Raises: ImportError.
    """
    import site

    site.main()
    sys.path.append(site.getusersitepackages())
    import boto3
    from boto3.exceptions import Boto3Error
    from botocore.exceptions import BotoCoreError, ClientError

    return boto3, (Boto3Error, BotoCoreError, ClientError)


def _wait(child: subprocess.Popen[bytes], bucket: Optional[CheckpointBucket]) -> int:
    """Return the keeper's exit code once its files are in the bucket."""
    while True:
        try:
            code: Optional[int] = child.wait(_SAVE_EVERY_S if bucket else None)
        except subprocess.TimeoutExpired:
            code = None
        try:
            if bucket is not None:
                bucket.save()
        except OSError as error:
            _say("cannot save checkpoints now: {}".format(error))
        if code is not None:
            return code


def _say(sentence: str) -> None:
    sys.stderr.write(sentence + "\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))
