"""The first program of a job: it gets the keeper and becomes it. It needs Python 3.8 and nothing installed.

A platform that only runs a command gets the text of this module, compressed, within that command, with the text of
`nnilite._cpython` in place of its import: `nnilite.services.bootstrap` makes it. So this module imports only the
standard library; the keeper does the rest (see `job`).


    --from PLACE        the instructions: a file, a folder with a file `spec`, `env:NAME` for environment variables,
                        or `url:NAME` for an environment variable that has the URL of an object
    --work DIR          a folder for the job's own files, made if it is missing
    --files DIR         the folder of the files that the instructions name, by default that of the instructions
    --task NAME         `run`; `resume` and `prepare`, like --role, --rank and --checkpoints, are explained in `job`

The instructions are JSON, compressed by zlib:

    spec                the keeper's specification
    keeper, code        where to get them: {"file": path}, {"url": URL} or {"variable": name}, with "packed": true if
                        they are compressed by zlib or bz2. keeper has "sha256"; code has the "hash" of the package, and
                        is missing where the specification names the code (`download` fetches it from the manager)
    roles, log_stays, log_tells_end, shared      see `job`

This process becomes the keeper, which so gets the signals of the platform. A failure before that is reported by one
sentence: on standard error, as an event in the job's log, and in FILE.

The trial waits for all of this, and modules take most of the time, above all where an image has no bytecode of the
standard library. So only parts of the interpreter are imported at the top, and the rest where it is used.
"""

from __future__ import annotations

import os
import sys
import time
import zlib

from nnilite._cpython import loads, sha256, signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple, TypeVar

    T = TypeVar("T")

NOT_STARTED = 4
STOPPED = 143
_EVENT = "NNILITE_EVENT "
_START = "start.json"
_DOWNLOAD_LIMIT_S = 900.0
_FILE_LIMIT_S = 120.0  # a network file system may show a new file late
_PAUSE_S = (0.2, 10.0)
_TIMEOUT_S = 30.0
_CHUNK_BYTES = 1 << 20
_REFUSALS = (400, 401, 403, 404, 410)
_SIGTERMS: List[int] = []  # Python drops the exception of a handler that it runs within a destructor
_MESSAGE_BYTES = 4000  # Kubernetes keeps 4096 bytes
_OPTIONS = ("message", "from", "work", "files", "role", "rank", "task", "checkpoints", "storage")


class Failed(Exception):
    """The job cannot be started. The text is one sentence."""


class Stopped(Failed):
    """The platform has requested the job's end."""


def main(words: Sequence[str]) -> int:
    """Become the keeper. Return an exit code if that is not possible."""
    options: Dict[str, str] = {}
    try:
        signal.signal(signal.SIGTERM, _stop)
        options = read_options(words)
        return _start(options, words)
    except Stopped as error:
        tell_end(options.get("message"), {"code": None, "message": str(error), "cause": "interrupted"})
        return STOPPED
    except Failed as error:
        # Nothing of the user's has run yet: the manager tries the trial again, elsewhere if it can.
        tell_end(options.get("message"), {"code": None, "message": str(error), "cause": "machine"})
        return NOT_STARTED


def read_options(words: Sequence[str]) -> Dict[str, str]:
    """Return the options by their names. Raises: Failed."""
    if len(words) % 2 or not {word[2:] for word in words[::2]} <= set(_OPTIONS):
        raise Failed("the bootstrap does not understand the words {!r}".format(list(words)))
    options = {words[number][2:]: words[number + 1] for number in range(0, len(words), 2)}
    for name in ("message", "work", "files", "checkpoints", "storage"):
        if name in options:
            options[name] = os.path.abspath(options[name])
    if not options.get("from") or not options.get("work"):
        raise Failed("the bootstrap needs --from and --work")
    return options


def tell_end(message_file: Optional[str], end: Mapping[str, Any]) -> None:
    """Report the end of a job that has no keeper, in its log and in the file that the platform reads."""
    _say(end["message"])
    import json

    sys.stdout.write(_EVENT + json.dumps(dict(end, type="exit", time=time.time())) + "\n")
    sys.stdout.flush()
    write_message(message_file, end)


def write_message(path: Optional[str], end: Mapping[str, Any]) -> None:
    """Write an end to the file that the platform reads, if there is one, shortened to the bytes that it keeps."""
    if not path:
        return
    import json

    text = str(end.get("message") or "")
    while True:
        data = json.dumps({"nnilite": dict(end, message=text)}).encode("ascii")
        if len(data) <= _MESSAGE_BYTES or not text:
            break
        text = text[len(text) // 4 + 1 :]
    try:
        with open(path, "wb") as file:
            file.write(data)
    except OSError as error:
        _say("{} cannot be written: {}".format(path, error.strerror))


def _start(options: Mapping[str, str], words: Sequence[str]) -> int:
    """Get keeper and code as the instructions say, and become the keeper. Raises: Failed."""
    start, files = _instructions(options["from"])
    files = options.get("files", files or options["work"])
    if options.get("task") == "prepare" and start.get("shared"):
        return 0  # on a shared volume the reporting job puts the code in the same place
    try:
        os.makedirs(options["work"], mode=0o700, exist_ok=True)
        place = os.path.join(options["work"], ".boot-" + os.urandom(8).hex())
        os.mkdir(place, 0o700)
        keeper = _keeper(start["keeper"], files, place)
        try:
            _fetch_code(start, files, place)
        except Stopped:
            raise
        except Failed as error:
            start["failed"] = str(error)  # the keeper reports it to the manager
        start["files"] = files
        hidden = _list_secret_variables(options["from"], start)
        if hidden:
            _write_start(place, start)
    except OSError as error:
        raise Failed("the job's folder {} cannot be written: {}".format(options["work"], error.strerror)) from error
    # Until the keeper handles SIGTERM it is blocked, so that none is lost in between.
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    _check_sigterm()
    sys.stdout.flush()
    if hidden:
        _be_replaced([keeper, "job", os.path.join(place, _START), *words], hidden)
    # To start Python again, and to import all this again, would cost as much time as the rest of the start.
    sys.argv = [keeper, "job"]
    sys.path.insert(0, keeper)
    sys.modules["nnilite._keeper.bootstrap_program"] = sys.modules[__name__]
    program = __import__("nnilite._keeper.program", fromlist=["become_job"])
    return int(program.become_job(start, place, words))


def _write_start(place: str, start: Mapping[str, Any]) -> None:
    import json

    write_private(os.path.join(place, _START), json.dumps(start).encode("ascii"))


def _be_replaced(command: Sequence[str], hidden: Sequence[str]) -> None:
    """Replace this process, as its environment holds secrets that its trial could read in /proc."""
    import re

    of_secrets = re.compile("({})(_[0-9]+)?".format("|".join(hidden)))
    environment = {name: value for name, value in os.environ.items() if not of_secrets.fullmatch(name)}
    os.execve(sys.executable, [sys.executable, "-I", "-S", *command], environment)


def _list_secret_variables(place: str, start: Mapping[str, Any]) -> List[str]:
    """Return the environment variables that the trial must not inherit."""
    kind, _, name = place.partition(":")
    entries = [start["keeper"], start.get("code") or {}]
    return [name] * (kind in ("env", "url")) + [entry["variable"] for entry in entries if entry.get("variable")]


def _instructions(place: str) -> Tuple[Dict[str, Any], str]:
    """Return the instructions and the folder of their file, "" if they were not in a file. Raises: Failed."""
    kind, _, name = place.partition(":")
    folder = ""
    if kind == "env":
        data = _variable(name)
    elif kind == "url":
        url = os.environ.get(name, "")
        data = patiently("the specification", "storage", lambda: _content(url), _DOWNLOAD_LIMIT_S)
    else:
        path = os.path.abspath(place)
        path = os.path.join(path, "spec") if os.path.isdir(path) else path
        folder = os.path.dirname(path)
        data = patiently("the specification", path, lambda: _read(path), _FILE_LIMIT_S)
    try:
        return loads(zlib.decompress(data).decode("utf-8")), folder
    except (ValueError, zlib.error, RecursionError) as error:
        raise Failed("the specification in {} is damaged: {}".format(place, error)) from error


def _keeper(entry: Mapping[str, Any], files: str, place: str) -> str:
    """Bring the keeper to the job's own folder. Return its path. Raises: Failed, OSError."""
    target = os.path.join(place, "keeper.pyz")
    _fetch("the keeper", entry, files, target)
    if sha256(_read(target)).hexdigest() != entry["sha256"]:
        raise Failed("the keeper that the platform has handed over is damaged, or not ours")
    return target


def _fetch_code(start: Dict[str, Any], files: str, place: str) -> None:
    """Get the code and note its place for the keeper, which checks it when it unpacks it. Raises: Failed, OSError."""
    entry = start.get("code")
    if not entry:
        return
    target = os.path.join(place, entry["hash"] + ".tar.gz")
    there = os.path.join(files, entry.get("file") or "")
    if os.path.basename(there) == os.path.basename(target):
        patiently("the code", there, lambda: os.stat(there), _FILE_LIMIT_S)
        target = there  # the package may be large, so it is not copied
    else:
        _fetch("the code", entry, files, target)
    start["spec"]["code"] = {"archive": target}


def _fetch(what: str, entry: Mapping[str, Any], files: str, target: str) -> None:
    """Bring a file of the instructions to `target`. Raises: Failed, OSError if it cannot be written."""
    if entry.get("variable"):
        write_private(target, _variable(entry["variable"]))
    elif entry.get("url"):
        patiently(what, "storage", lambda: _download(entry["url"], target), _DOWNLOAD_LIMIT_S)
    else:
        path = os.path.join(files, entry["file"])
        patiently(what, path, lambda: _copy(path, target), _FILE_LIMIT_S)
    if entry.get("packed"):
        try:
            write_private(target, _unpack_bytes(_read(target)))
        except (zlib.error, ImportError, OSError, ValueError) as error:
            raise Failed("{} that the platform has handed over cannot be unpacked: {}".format(what, error)) from error


def _unpack_bytes(data: bytes) -> bytes:
    """Decompress. Raises: zlib.error, ValueError, OSError, ImportError where this Python was built without bz2."""
    if not data.startswith(b"BZh"):
        return zlib.decompress(data)
    import bz2

    return bz2.decompress(data)


def patiently(what: str, place: str, call: Callable[[], T], limit_s: float) -> T:
    """Return the result of a call that may fail for a while. Raises: Failed."""
    deadline = time.monotonic() + limit_s
    pause, longest = _PAUSE_S
    reported = ""
    while True:
        try:
            return call()
        except OSError as error:
            refused = getattr(error, "code", None) in _REFUSALS
            if refused or time.monotonic() > deadline:
                raise Failed("{} cannot be fetched from {}: {}".format(what, place, error)) from error
            if str(error) != reported:
                reported = str(error)
                _say("{} cannot be fetched from {} yet: {}".format(what, place, reported))
        _check_sigterm()
        time.sleep(pause)
        pause = min(longest, 2 * pause)


def _download(url: str, path: str) -> None:
    def copy(answer: Any) -> None:
        with open(path, "wb") as file:
            _pass_on(answer, file)
            wanted = answer.headers.get("Content-Length")
            if wanted and int(wanted) != file.tell():
                raise OSError("the connection broke off")

    _get(url, copy)


def _content(url: str) -> bytes:
    return _get(url, lambda answer: bytes(answer.read()))


def _get(url: str, use: Callable[[Any], T]) -> T:
    """Return the result of `use` on the answer to GET. The URL is a secret that gives access, so no error may show it.

    Raises: Failed, OSError.
    """
    if not url.startswith(("http://", "https://")) or not url.isprintable() or " " in url:
        raise Failed("the platform has handed over something that is not a URL")
    # These take twice as long to import as Python takes to start, and most jobs get everything without a network.
    import http.client
    import ssl
    import urllib.request

    context = ssl.create_default_context() if url.startswith("https:") else None
    try:
        with urllib.request.urlopen(url, timeout=_TIMEOUT_S, context=context) as answer:
            return use(answer)
    except http.client.HTTPException as error:
        raise OSError(str(error) or type(error).__name__) from error


def _variable(name: str) -> bytes:
    """Return the joined values of NAME, NAME_1, NAME_2 and so on, as one can have 128 kB at most. Raises: Failed."""
    pieces = [os.environ.get(name, "")]
    while "{}_{}".format(name, len(pieces)) in os.environ:
        pieces.append(os.environ["{}_{}".format(name, len(pieces))])
    if not pieces[0]:
        raise Failed("the platform has not handed over the environment variable {}".format(name))
    import base64

    try:
        return base64.b64decode("".join(pieces), validate=True)
    except ValueError as error:
        raise Failed("the environment variable {} is damaged: {}".format(name, error)) from error


def _copy(source: str, target: str) -> None:
    with open(source, "rb") as here, open(target, "wb") as there:
        _pass_on(here, there)


def _pass_on(source: Any, target: Any) -> None:
    piece = source.read(_CHUNK_BYTES)
    while piece:
        target.write(piece)
        piece = source.read(_CHUNK_BYTES)


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def write_private(path: str, data: bytes) -> None:
    """Write a file that only its owner can read. Raises: OSError."""
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(data)


def _say(sentence: str) -> None:
    sys.stderr.write(sentence + "\n")
    sys.stderr.flush()


def _stop(number: int, frame: Optional[FrameType]) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    _SIGTERMS.append(number)
    _check_sigterm()


def _check_sigterm() -> None:
    if _SIGTERMS:
        raise Stopped("canceled before its command was started")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
