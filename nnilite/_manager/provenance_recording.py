"""Records what runs: code, git state, Python and its packages, commands, names of variables, seeds and GPUs.

It is in `provenance.json` of the experiment's folder, with one entry for each start of a manager, the latest last. All
of it is about this machine; packages are those of the Python that runs the manager. What trials run with on their hosts
comes from them, as an attribute that the SDK sets (`nnilite._sdk.worker_facts`). Nothing here may hold up or end an
experiment: it is recorded in a thread after the start, programs have a time limit, and what is not found is left out.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import math
import os
import platform
import re
import shutil
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

from nnilite import codedir
from nnilite._engine.engine import CLEANUP_S
from nnilite._experiments.documents import as_json, write_content
from nnilite._experiments.provenance_reading import FILE_NAME, read_starts
from nnilite._logging.redaction import redact
from nnilite._manager.cpu_quota import count_processors
from nnilite._sdk.worker_facts import list_packages
from nnilite._version import __version__
from nnilite.config import CheckedConfig
from nnilite.config.secrets import masked_text
from nnilite.errors import CodeDirError, DamagedFile, UnreadableFile
from nnilite.records import Json
from nnilite.services.task_ends import end_tasks
from nnilite.units import HIDDEN

log = logging.getLogger(__name__)

_AFTER_S = 1.0  # leaves the start of the first trials undisturbed
_END_S = 3.0  # how long a manager that ends waits for it
_HASHING_S = 60.0
_PROGRAM_S = 10.0
_MOST_DIFF_BYTES = 200_000
_MOST_STARTS = 20
_MOST_BYTES = 16 << 20  # with more, the oldest starts are left out
_CHUNK = 1 << 20

# Git takes no lock, which a kill would leave in the user's repository, and asks neither a server nor a person. It runs
# nothing that a repository names in its own configuration, which comes with a folder from another person: no hook, no
# transport, no filter (`_own_filters`), and no other git in a submodule, whose configuration would count there. The
# user's own filters do run, such as that of LFS: without them, files would differ that are the same.
_GIT_OPTIONS = ("core.fsmonitor=false", "core.hooksPath=/dev/null", "diff.autoRefreshIndex=false")
_GIT_DIFF = ("diff", "HEAD", "--no-color", "--no-ext-diff", "--no-textconv", "--ignore-submodules=dirty")
_GIT_ENVIRONMENT = {"GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "GIT_ALLOW_PROTOCOL": ""}
_FILTER = re.compile(r"filter\.([\w.-]+)\.\w+", re.ASCII)
# With these, as in a hook of git, it would look at another repository.
_OF_ANOTHER = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR", "GIT_OBJECT_DIRECTORY", "GIT_PREFIX")
_PRIVATE_KEY = re.compile(r"(-----BEGIN [A-Z ]*PRIVATE KEY-----).*?(-----END|\Z)", re.DOTALL)


async def record_start(directory: Path, config: CheckedConfig, over: asyncio.Event) -> None:
    """Record this start soon after it, or at the end of a manager that ends before. A failure is only logged."""
    if not config.record_provenance:
        return
    began, loop, finished = time.time(), asyncio.get_running_loop(), asyncio.Event()
    await _first(over.wait(), _AFTER_S)

    def record() -> None:
        try:
            _record(directory, config, began)
        except (OSError, DamagedFile, UnreadableFile) as error:
            log.warning("the provenance cannot be recorded: %s", error)
        with contextlib.suppress(RuntimeError):  # the manager has ended without it
            loop.call_soon_threadsafe(finished.set)

    # The code may lie on a file system that does not answer, and a pool's thread would be waited for at the end.
    try:
        threading.Thread(target=record, name="provenance", daemon=True).start()
    except RuntimeError as error:  # this process may have no more threads
        log.warning("the provenance cannot be recorded: %s", error)
        return
    ends = [asyncio.create_task(one.wait()) for one in (finished, over)]
    await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    await end_tasks(ends, CLEANUP_S)
    await _first(finished.wait(), _END_S)


async def _first(event: Coroutine[Any, Any, Any], limit_s: float) -> None:
    """Wait for an event, or until the time is over."""
    with contextlib.suppress(asyncio.TimeoutError):
        await asyncio.wait_for(event, limit_s)


def _record(directory: Path, config: CheckedConfig, began: float) -> None:
    starts = [*read_starts(directory), describe(config, began)]
    starts = starts[-_MOST_STARTS:]
    while len(content := as_json({"starts": [*starts]})) > _MOST_BYTES and len(starts) > 1:
        starts = starts[1:]
    write_content(directory / FILE_NAME, content)


def describe(config: CheckedConfig, began: float) -> dict[str, Json]:
    """Return what runs on this machine with a config, from its start at `began` in seconds since the epoch."""
    settings = [config.settings(name) for name, _, _ in config.services]
    folder = Path(config.trial_code_directory)
    return {
        "time": began,
        "nnilite": __version__,
        "commands": [one.trial_command or "" for one in settings],
        "seeds": _seeds(config),
        "code": _code(folder, codedir.PackageLimits(config.code_limits.max_files, config.code_limits.max_size)),
        "git": _git(folder, config.secrets),
        "python": {
            "version": platform.python_version(),
            "executable": sys.executable,
            "packages": dict(sorted(list_packages().items())),
        },
        "machine": {"system": _describe_system(), "processors": count_processors(), "gpus": _gpus()},
        "environment": sorted(os.environ),
    }


def _seeds(config: CheckedConfig) -> dict[str, Json]:
    algorithms = {"tuner": config.tuner, "assessor": config.assessor}
    found = {word: one.class_args.get("seed") for word, one in algorithms.items() if one}
    return {word: seed for word, seed in found.items() if isinstance(seed, (int, str))}


def _code(folder: Path, limits: codedir.PackageLimits) -> dict[str, Json]:
    """Return the hash of each file of the code directory, and one of all of them; where that fails, the reason."""
    try:
        listed = codedir.list_files(folder, limits)
        files: dict[str, Json] = dict(_hashes(listed))
    except (CodeDirError, OSError) as error:
        return {"folder": str(folder), "hash": None, "files": {}, "reason": str(error).splitlines()[0]}
    text = "".join(f"{path}\0{digest}\n" for path, digest in files.items())
    whole = hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()
    return {"folder": str(folder), "hash": whole, "files": files, "reason": ""}


def _hashes(listed: codedir.FileList) -> Iterator[tuple[str, str]]:
    """Yield each file's path and hash. Raises: OSError, also where this takes too long."""
    deadline = time.monotonic() + _HASHING_S
    for file in listed.files:
        if time.monotonic() > deadline:
            raise OSError(f"the files could not be read within {_HASHING_S:.0f} s")
        if file.target is None and not stat.S_ISDIR(file.mode):
            yield os.fsencode(file.path).decode(errors="replace"), hash_of(listed.root / file.path)


def hash_of(path: Path) -> str:
    """Return the SHA-256 of a file in hex. Raises: OSError, also where something else is in its place."""
    digest = hashlib.sha256()
    with codedir.open_code_file(path) as file:
        while piece := file.read(_CHUNK):
            digest.update(piece)
    return digest.hexdigest()


def _git(folder: Path, secrets: frozenset[str]) -> dict[str, Json] | None:
    """Return commit, branch and the difference to the commit; None where there is no repository.

    The difference and the number of untracked files are None where git does not answer.
    """
    commit = (_git_says(folder, "rev-parse", "HEAD") or "").strip()
    if not commit:
        return None
    filters = _own_filters(folder)
    words = (*filters, *_GIT_DIFF, "--submodule=short") if filters is not None else ()
    diff = _git_says(folder, *words, most=_MOST_DIFF_BYTES) if words else None
    untracked = _git_says(folder, "ls-files", "--others", "--exclude-standard")
    return {
        "commit": commit,
        "branch": (_git_says(folder, "rev-parse", "--abbrev-ref", "HEAD") or "").strip(),
        "diff": None if diff is None else _hide_secrets(diff, secrets),
        "isCut": len((diff or "").encode()) >= _MOST_DIFF_BYTES,
        "untracked": None if untracked is None else len(untracked.splitlines()),
    }


def _own_filters(folder: Path) -> list[str] | None:
    """Return git's options without which programs would run that the repository's own configuration has for its files.

    None where such a filter has a name that no option can have.
    """
    outputs = [
        _git_says(folder, "config", scope, "--includes", "--null", "--name-only", "--get-regexp", r"^filter\.") or ""
        for scope in ("--local", "--worktree")
    ]
    found = [_FILTER.fullmatch(name) for name in "".join(outputs).split("\0") if name]
    names = sorted({one.group(1) for one in found if one})
    options = [f"filter.{name}.{what}" for name in names for what in ("process=", "required=false")]
    return [word for option in options for word in ("-c", option)] if all(found) else None


def _git_says(folder: Path, *words: str, most: int = 1 << 20) -> str | None:
    options = [word for option in _GIT_OPTIONS for word in ("-c", option)]
    environment = {name: value for name, value in os.environ.items() if name not in _OF_ANOTHER}
    return _output(["git", *options, "-C", str(folder), *words], most, {**environment, **_GIT_ENVIRONMENT})


def _hide_secrets(text: str, secrets: frozenset[str]) -> str:
    text = redact(text, [secret for secret in secrets if len(secret) > 3])
    text = _PRIVATE_KEY.sub(rf"\g<1>{HIDDEN}\g<2>", text)
    return "\n".join(map(masked_text, text.split("\n")))


def _describe_system() -> str:
    """Return what `platform.platform` does. On Linux that starts a program, to learn the name of the processor."""
    if sys.platform != "linux":
        return platform.platform()
    kernel = os.uname()
    return f"{kernel.sysname}-{kernel.release}-{kernel.machine}-with-{''.join(platform.libc_ver())}"


def _gpus() -> list[Json]:
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    return list((_output(query, 1 << 16) or "").splitlines()) if shutil.which("nvidia-smi") else []


def _output(command: list[str], most: int, environment: dict[str, str] | None = None) -> str | None:
    """Return the first bytes that a program prints, as text; None if it is missing, fails, or takes too long."""
    if shutil.which("timeout"):  # else the program would outlive a manager that ends meanwhile
        command = ["timeout", "-s", "KILL", str(math.ceil(_PROGRAM_S) + 1), *command]
    try:
        with subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            start_new_session=True,
        ) as program:
            limit = threading.Timer(_PROGRAM_S, _end_group, [program])
            limit.daemon = True
            limit.start()
            try:
                assert program.stdout is not None
                found = program.stdout.read(most)
                is_cut = bool(program.stdout.read(1))
                if is_cut:
                    _end_group(program)
                failed = program.wait() != 0 and not is_cut
            finally:
                limit.cancel()
    except OSError:
        return None
    return None if failed else found.decode(errors="replace")


def _end_group(program: subprocess.Popen[bytes]) -> None:
    """End a program with those that it has started, which have the same output."""
    if program.returncode is None:  # it was not waited for, so its process id is still its own
        with contextlib.suppress(ProcessLookupError):
            os.killpg(program.pid, signal.SIGKILL)
