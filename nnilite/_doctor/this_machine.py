"""Checks of this machine. What they write, they remove again."""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import socket
import sqlite3
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from nnilite._doctor.finding import ROOM_CURE, Finding, cure_disk, divided, fault, ok, warning
from nnilite._experiments import registry
from nnilite._manager.port_choice import listening
from nnilite._network.host_names import is_loopback
from nnilite._rest.page_name import ADDRESSES, new_page_name
from nnilite._rest.port_binding import bind
from nnilite.errors import NniliteError, ServiceError
from nnilite.services.gpu import GpuRules, impossible, read_gpus
from nnilite.services.section_fields import GPU_OPTION
from nnilite.units import format_size

FREE_BYTES = 1 << 30
SLOW_FSYNC_S = 0.05
"""Each round of the engine waits for one fsync; an SSD needs 1 ms, a spinning disk 10 ms."""

OPEN_FILES = 1024
SKEW_S = 5.0
# The mean of several: a single fsync may be unusually fast or slow.
_FSYNCS = 5
_BUILT = 1_750_000_000.0  # the middle of 2025: no clock that is right is before the making of this program
_CONNECT_S = 3.0
_PROXIES = ("http_proxy", "https_proxy", "all_proxy")


def check_python() -> Iterator[Finding]:
    """Check the interpreter that runs managers and tuners, and its SQLite."""
    version = ".".join(map(str, sys.version_info[:3]))
    # 3.31 brought `trusted_schema`, which keeps a stranger's database from calling functions.
    if sqlite3.sqlite_version_info < (3, 31, 0):
        old = f"Python {version} comes with SQLite {sqlite3.sqlite_version}, which is older than 3.31"
        yield fault("python", old, "use a Python with a newer SQLite, such as one of your distribution's or of conda")
    elif sys.platform == "win32":
        yield fault("python", "managers do not run on Windows", "run nnictl in WSL, or on Linux or macOS")
    else:
        yield ok("python", f"{version} at {sys.executable}, SQLite {sqlite3.sqlite_version}")


def check_port(host: str, port: int | None) -> Iterator[Finding]:
    """Check whether a manager could listen there. Port 0 always works; None is 8080, or the next free one."""
    hosts = [host, *ADDRESSES] if new_page_name(host) else [host]
    try:
        sockets = listening(partial(bind, hosts), port, registry.root())
    except NniliteError as error:
        yield divided("port", str(error), "choose another with --host and --port")
        return
    free = sockets[0].getsockname()[1] if port is None else port or "any"
    for one in sockets:
        one.close()
    yield ok("port", f"{host or 'every address'}, port {free} is free")


def check_disk(folder: Path) -> Iterator[Finding]:
    """Check space, rights, locks and the speed of fsync where experiments are kept, and the clock of that disk."""
    place = _find_nearest(folder)
    try:
        with tempfile.TemporaryDirectory(prefix=".nnilite-doctor-", dir=place) as draft:
            yield from _free(folder, shutil.disk_usage(draft).free)
            yield from _locks(folder, Path(draft))
            yield from _measure_speed(folder, Path(draft))
            yield from _skew(folder, Path(draft))
    except OSError as error:
        yield fault("disk", f"{folder} cannot be written: {error.strerror or error}", cure_disk(error))


def _find_nearest(folder: Path) -> Path:
    """Return the folder itself or, before the first experiment, the nearest existing one above it."""
    return next((one for one in (folder, *folder.parents) if one.exists()), folder)


def _free(folder: Path, free: int) -> Iterator[Finding]:
    if free < FREE_BYTES:
        yield warning("disk", f"only {format_size(free)} are free in {folder}", ROOM_CURE)
    else:
        yield ok("disk", f"{folder} has {format_size(free)} free")


def _locks(folder: Path, draft: Path) -> Iterator[Finding]:
    try:
        with registry.lock(draft):
            pass
    except NniliteError as error:
        sentence = str(error).replace(str(draft), str(folder))
        yield divided("disk", sentence, "keep experiments on a local disk (experimentWorkingDirectory)")


def _measure_speed(folder: Path, draft: Path) -> Iterator[Finding]:
    descriptor = os.open(draft / "speed", os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        began = time.perf_counter()
        for _ in range(_FSYNCS):
            # Without new data, fsync returns at once.
            os.write(descriptor, bytes(4096))
            os.fsync(descriptor)
        each_s = (time.perf_counter() - began) / _FSYNCS
    finally:
        os.close(descriptor)
    if each_s > SLOW_FSYNC_S:
        cure = "keep experiments on a local disk (experimentWorkingDirectory); each report of a trial waits for this"
        yield warning("disk", f"an fsync in {folder} takes {each_s * 1000:.0f} ms", cure)
    else:
        yield ok("disk", f"an fsync takes {each_s * 1000:.1f} ms")


def _skew(folder: Path, draft: Path) -> Iterator[Finding]:
    (draft / "time").touch()
    # The clock of a file server sets the times of files on a network disk.
    skew_s = (draft / "time").stat().st_mtime - time.time()
    if abs(skew_s) > SKEW_S:
        cure = "synchronize both clocks (chrony, ntpd)"
        yield warning("clock", f"the clock of the disk at {folder} is {skew_s:+.0f} s off this machine's", cure)


def check_clock(now: float) -> Iterator[Finding]:
    """Check the clock. `now` is the machine's time in seconds since the epoch."""
    if now < _BUILT:
        date = time.strftime("%Y-%m-%d", time.gmtime(max(now, 0)))
        cure = "set the clock (`timedatectl set-ntp true`); certificates and logs depend on it"
        yield fault("clock", f"the clock of this machine says {date}", cure)
    else:
        yield ok("clock", time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(now)))


def check_limits() -> Iterator[Finding]:
    """Check how many files a manager may open: each connected keeper needs one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < OPEN_FILES:
        cure = f"`ulimit -n {OPEN_FILES}` before nnictl" if hard >= OPEN_FILES else "ask for a higher limit (nofile)"
        yield warning("limits", f"a program may open {soft} files only", cure)
    else:
        yield ok("limits", f"a program may open {soft} files")


def check_gpus(wanted: int, allowed: tuple[int, ...] | None = None) -> Iterator[Finding]:
    """Check the GPUs of this machine. `wanted`: how many a trial here needs; 0 if none."""
    try:
        gpus = read_gpus()
    except ServiceError as error:
        if wanted:
            cure = f"install the driver (`nvidia-smi` must work), or set {GPU_OPTION} to 0"
            yield fault("gpus", f"a trial needs {wanted}, and {error}", cure)
        else:
            yield ok("gpus", "none is needed, and none was found")
        return
    never = impossible(gpus, wanted, GpuRules(allowed=allowed)) if wanted else None
    if never is not None:
        yield fault("gpus", never, f"lower {GPU_OPTION}, or choose other gpuIndices")
    for gpu in gpus:
        if gpu.fault:
            yield warning("gpus", f"GPU {gpu.index}: {gpu.fault}", "leave it out of gpuIndices, or restart its driver")
    if never is None:
        yield ok("gpus", ", ".join(f"{gpu.index}: {gpu.name}" for gpu in gpus) or "none")


def check_proxies(environment: Mapping[str, str]) -> Iterator[Finding]:
    """Check the proxies that this environment names: whether they answer, and whether loopback is left out."""
    # Programs accept these variables in upper and lower case.
    known = {name.lower(): value for name, value in environment.items()}
    found = {name: known[name] for name in _PROXIES if known.get(name)}
    for name, url in found.items():
        yield from _proxy(name, url)
    excepted = [part.strip() for part in known.get("no_proxy", "").split(",")]
    if found and not ({"*", "127.0.0.1", "127.0.0.0/8"} & set(excepted)):
        cure = "`export NO_PROXY=localhost,127.0.0.1`; else programs of trials call this machine through the proxy"
        yield warning("proxy", "a proxy is set, also for 127.0.0.1", cure)
    if not found:
        yield ok("proxy", "none is set")


def _proxy(name: str, url: str) -> Iterator[Finding]:
    parts = urlsplit(url if "://" in url else f"http://{url}")
    place = f"{parts.hostname}:{parts.port or 80}"  # without user and password
    try:
        with contextlib.closing(socket.create_connection((parts.hostname or "", parts.port or 80), _CONNECT_S)):
            local = " (on this machine)" if is_loopback(parts.hostname or "") else ""
            yield ok("proxy", f"{name} is {place}{local}, and answers")
    except (OSError, ValueError) as error:
        cure = f"`unset {name}`, or set it to a proxy that works"
        yield fault(
            "proxy", f"{name} is {place}, and does not answer: {getattr(error, 'strerror', None) or error}", cure
        )
