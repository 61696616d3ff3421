"""Run on the node: make a folder for the trial, become the keeper, and leave a guard running.

Its text is part of the package that Ray unpacks on each node, so it needs Python 3.8 and the standard library alone.
Its arguments are a JSON object with `work` and `checkpoints`, folders that may be "", and the words of the command that
becomes the keeper. It prints when it begins, since Ray records only when the job was submitted.

A node of Ray stays when a job has ended. And where Ray kills a job (a node that is short of memory, a node agent that
has died), it kills the keeper and not the trial, which leads a session of its own: the trial would keep running while
it is retried elsewhere. So a second process, which Ray does not see, waits for the end of the keeper by a pipe that the
keeper holds open. Where the keeper was killed, the guard has another keeper end the trial and deliver the remaining
events; then it removes the folder.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zlib
from typing import Any, Dict, List, Mapping, Optional, Sequence

START = "NNILITE_START"
BEGIN = "NNILITE_BEGIN "
_EVENT = "NNILITE_EVENT "
_KEEPER = "nnilite-keeper.pyz"
_LAST_WORDS_S = 30.0
_PR_SET_PDEATHSIG = 1
_NOT_STARTED = 4


def main(words: Sequence[str], environment: Mapping[str, str]) -> int:
    """Become the keeper. Returns an exit code if that is not possible."""
    _end_with_parent(environment.get("NNILITE_PARENT"))
    settings = json.loads(words[0])
    command = list(words[1:])
    spec = read_spec(environment)
    try:
        base = tempfile.mkdtemp(prefix="nnilite-", dir=settings["work"] or None)
        shutil.copyfile(_KEEPER, os.path.join(base, "keeper.pyz"))
        if settings["checkpoints"]:
            command += ["--checkpoints", _checkpoints(settings["checkpoints"], spec)]
    except OSError as error:
        problem = "cannot create a folder for the trial's files on the node: {}".format(error)
        end = {"type": "exit", "time": time.time(), "code": None, "message": problem}
        sys.stdout.write("{}\n{}{}\n".format(problem, _EVENT, json.dumps(end)))
        return 4
    command[command.index("--work") + 1] = os.path.join(base, "job")
    sys.stdout.write("{}{:.3f}\n".format(BEGIN, time.time()))
    sys.stdout.flush()
    held = _leave_guard(base, spec)
    os.set_inheritable(held, True)
    os.execvpe(command[0], command, dict(environment))
    return 4


def _end_with_parent(parent: Optional[str]) -> None:
    """Have the keeper end its trial when the actor that has started it is gone. `parent`: its process id."""
    if parent is None:
        return
    import ctypes

    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)  # the keeper, which this process becomes, inherits it
    if os.getppid() != int(parent):
        sys.exit(_NOT_STARTED)


def read_spec(environment: Mapping[str, str]) -> Dict[str, Any]:
    """Return the keeper's specification; {} if it is damaged, which the bootstrap reports."""
    text, number = environment.get(START, ""), 1
    while "{}_{}".format(START, number) in environment:
        text += environment["{}_{}".format(START, number)]
        number += 1
    try:
        return dict(json.loads(zlib.decompress(base64.b64decode(text)).decode("utf-8"))["spec"])
    except (ValueError, KeyError, TypeError, zlib.error, RecursionError):
        return {}


def _checkpoints(folder: str, spec: Mapping[str, Any]) -> str:
    """Make the trial's own folder below the shared one. Raises: OSError."""
    own = os.path.join(folder, "nnilite", str(spec.get("experiment")), str(spec.get("trial")))
    os.makedirs(own, mode=0o700, exist_ok=True)
    return own


def _leave_guard(base: str, spec: Mapping[str, Any]) -> int:
    """Start the guard as a process without a parent. Returns the end of the pipe that is to be held open."""
    ear, held = os.pipe()
    child = os.fork()
    if child:
        os.close(ear)
        os.waitpid(child, 0)
        return held
    os.close(held)
    os.setsid()
    if os.fork():
        os._exit(0)
    try:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        os.chdir("/")
        os.read(ear, 1)
        clean_up(base, spec)
    finally:
        os._exit(0)


def clean_up(base: str, spec: Mapping[str, Any]) -> None:
    """End the trial of a keeper that was killed, deliver its remaining events, and remove the folder."""
    job = os.path.join(base, "job")
    try:
        if spec and os.path.exists(os.path.join(job, ".nni")) and not _was_reported(job):
            wait_s = min(float(spec.get("linger_s") or _LAST_WORDS_S), _LAST_WORDS_S)
            own = dict(spec, directory=job, linger_s=wait_s, **_silence(spec))
            if _deliver(base, own) != 0 and own.get("report") != "stdout":
                _deliver(base, dict(own, report="stdout"))
    finally:
        shutil.rmtree(base, ignore_errors=True)


def _silence(spec: Mapping[str, Any]) -> Dict[str, Any]:
    """Return what keeps a keeper from reporting: of a trial on several nodes only the first one reports."""
    if not spec.get("distributed") or os.environ.get("NNILITE_NODE") == "0":
        return {}
    return {"callback": None, "callback_file": None, "report": "rest", "send_output": False}


def _was_reported(job: str) -> bool:
    """Return whether the keeper came to its end: the trial has ended, and all is delivered or in the job's log."""
    return _record(job, "exit") is not None and bool((_record(job, "delivered") or {}).get("complete"))


def _record(job: str, name: str) -> Any:
    try:
        with open(os.path.join(job, ".nni", name), encoding="utf-8") as file:
            return json.load(file)
    except (OSError, ValueError, RecursionError):
        return None


def _deliver(base: str, spec: Mapping[str, Any]) -> int:
    """Have a second keeper deliver; return its exit code."""
    path = os.path.join(base, "spec.json")
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="ascii") as file:
        json.dump(spec, file)
    words: List[str] = [
        sys.executable,
        "-I",
        "-S",
        os.path.join(base, "keeper.pyz"),
        "deliver",
        spec["directory"],
        path,
    ]
    wait_s = float(spec["linger_s"]) + float(spec.get("grace_s") or 0) + _LAST_WORDS_S
    try:
        return subprocess.run(words, timeout=wait_s, check=False).returncode
    except (OSError, subprocess.TimeoutExpired):
        return -1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))
