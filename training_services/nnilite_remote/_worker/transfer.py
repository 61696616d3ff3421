"""Files that come to this machine's cache, and folders that are sent from it."""

from __future__ import annotations

import fcntl
import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile
import time
from typing import Any, BinaryIO, Callable, cast

from nnilite.services.worker_side import (
    FOLDER,
    EnclosedFolder,
    NotRegularFile,
    UnsafeName,
    fetch_command,
    is_folder_there,
)
from nnilite_remote._worker.processes import NotHere, WorkerRefusal, make_folder

_CHUNK_BYTES = 1 << 20
_LISTED_MAX, _LOOKED_AT_MAX, _LISTED_BYTES = 10_000, 100_000, 2_500_000
_SIGN_EVERY_S = 3.0
_MOST_MESSAGE_CHARS = 1000
_STAYS = ("spec.json", "job.json", "code")


def place_of(settings: dict[str, Any]) -> str:
    """Return the folder of all experiments, relative to the user's home. Raises: OSError."""
    return os.path.join(os.path.expanduser("~"), os.path.expanduser(settings["directory"]))


def receive(settings: dict[str, Any], say: Callable[[dict[str, Any]], None]) -> None:
    """Receive a file into the cache, from where an earlier transfer broke off. Raises: WorkerRefusal, OSError."""
    cache = os.path.join(place_of(settings), "cache")
    make_folder(cache)
    target, size = os.path.join(cache, settings["name"]), settings["size"]
    if os.path.exists(target):
        say({"offset": size, "done": True})
        return
    part, path = _part(cache, "%s.%s" % (settings["name"], settings["sha256"][:16]))
    with part:
        have = min(part.seek(0, os.SEEK_END), size)
        facts = os.statvfs(cache)
        free = facts.f_bavail * facts.f_frsize
        if free < size - have:
            os.unlink(path)
            raise WorkerRefusal(
                "no space: %s needs %d MB, and %d MB are free" % (cache, (size - have) >> 20, free >> 20)
            )
        say({"offset": have})
        digest = _receive(part, have, size)
        part.flush()
        if digest != settings["sha256"]:
            os.unlink(path)
            raise WorkerRefusal("%s was damaged on its way" % settings["name"])
        os.fsync(part.fileno())
        os.replace(path, target)
    say({"done": True})


def fetch(settings: dict[str, Any], say: Callable[[dict[str, Any]], None]) -> None:
    """Have the keeper copy the code from the shared storage, and say why that is not possible, or "".

    Meanwhile it sends a sign of life every few seconds, so that a broken connection is noticed. Raises: OSError.
    """
    cache = os.path.join(place_of(settings), "cache")
    command = fetch_command(
        sys.executable, os.path.join(cache, settings["keeper"]), os.path.join(cache, settings["name"])
    )
    given: bytes | None = json.dumps(settings["storage"]).encode("ascii")
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        while True:
            try:
                data, _ = process.communicate(given, timeout=_SIGN_EVERY_S)
                break
            except subprocess.TimeoutExpired:
                given = None
                say({"busy": True})
    finally:
        process.kill()
    output = data.decode("utf-8", "replace").strip()[-_MOST_MESSAGE_CHARS:]
    say({"trouble": "" if process.returncode == 0 else output or "exit status %d" % process.returncode})


def _part(cache: str, stem: str) -> tuple[BinaryIO, str]:
    """Return a partial file that has no other writer: the longest of the abandoned ones, or a new one."""
    names = [name for name in os.listdir(cache) if name.startswith(stem) and name.endswith(".part")]
    names.sort(key=lambda name: -_size(os.path.join(cache, name)))
    for name in [*names, "%s.%d-%d.part" % (stem, os.getpid(), time.time())]:
        path = os.path.join(cache, name)
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(file)
            continue
        except OSError:  # a file system without locks: only a file of our own is safe
            if name in names:
                os.close(file)
                continue
        # The previous holder of the lock may have renamed or removed the file.
        if name in names and not _leads_to(path, file):
            os.close(file)
            continue
        return os.fdopen(file, "r+b"), path
    raise WorkerRefusal("no partial file can be made in %s" % cache)


def _size(path: str) -> int:
    try:
        return os.path.getsize(path)
    except FileNotFoundError:  # another transfer has just finished
        return 0


def _leads_to(path: str, file: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(file))
    except FileNotFoundError:
        return False


def _receive(part: BinaryIO, have: int, size: int) -> str:
    """Write the incoming bytes to the file; return the hash of all of it."""
    digest = hashlib.sha256()
    part.seek(0)
    left = have
    while left:
        chunk = part.read(min(left, _CHUNK_BYTES))
        digest.update(chunk)
        left -= len(chunk)
    part.seek(have)
    part.truncate()
    stream = cast(io.BufferedReader, sys.stdin.buffer)
    left = size - have
    while left:
        chunk = stream.read1(min(left, _CHUNK_BYTES))
        if not chunk:
            raise WorkerRefusal("the connection broke off")
        digest.update(chunk)
        part.write(chunk)
        left -= len(chunk)
    return digest.hexdigest()


def send(settings: dict[str, Any], say: Callable[[dict[str, Any]], None]) -> None:
    """Send a folder as a tar stream: files, folders and links. Raises: WorkerRefusal, OSError.

    `attempt`: the folder is an attempt's, whose code and secrets are not sent.
    """
    folder = settings["path"]
    if not is_folder_there(folder):
        raise NotHere("the folder %s is gone" % folder)
    say({"found": True})
    with tarfile.open(fileobj=sys.stdout.buffer, mode="w|", format=tarfile.PAX_FORMAT) as archive:
        archive.inodes = _HardLinkSplitter()  # type: ignore[attr-defined]
        for top in sorted(os.listdir(folder)):
            if not (settings.get("attempt") and (top in _STAYS or top.endswith(".new"))):
                archive.add(os.path.join(folder, top), arcname=top, filter=_filter_sendable)
    sys.stdout.buffer.flush()


def send_file(settings: dict[str, Any], say: Callable[[dict[str, Any]], None]) -> None:
    """Send one file of an attempt. Raises: WorkerRefusal, OSError."""
    name = settings["name"]
    if name.split("/")[0] in _STAYS:
        raise NotHere("there is no file %s" % name)
    try:
        with EnclosedFolder(settings["path"]) as folder, folder.open(name) as file:
            say({"found": True})
            # As much as it has now: the trial may write to it faster than this sends.
            left = os.fstat(file.fileno()).st_size
            while left > 0:
                chunk = file.read(min(left, _CHUNK_BYTES))
                if not chunk:
                    break
                left -= len(chunk)
                sys.stdout.buffer.write(chunk)
    except (FileNotFoundError, NotRegularFile, UnsafeName) as error:
        raise NotHere("there is no file %s (any more)" % name) from error
    sys.stdout.buffer.flush()


def listed(directory: str) -> list[list[Any]] | None:
    """Return the entries of an attempt's folder: path, size, time, kind and target; None if the folder is gone."""
    try:
        folder = EnclosedFolder(directory)
    except (FileNotFoundError, NotADirectoryError):
        return None
    found: list[list[Any]] = []
    length = 0
    with folder:
        for entry in folder.walk(_LOOKED_AT_MAX, lambda parts: len(parts) == 1 and parts[0] in (*_STAYS, ".nni")):
            if entry.kind != FOLDER:
                facts = entry.facts
                one = [entry.path, facts.st_size, facts.st_mtime, entry.kind, entry.target]
                length += len(json.dumps(one)) + 2
                if len(found) >= _LISTED_MAX or length > _LISTED_BYTES:
                    break
                found.append(one)
    return found


class _HardLinkSplitter(dict):  # type: ignore[type-arg]
    """Makes each name of a file with several (hard links) a file of its own: a stream cannot refer to the first."""

    def __contains__(self, inode: object) -> bool:
        return False


def _filter_sendable(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    if member.name in (".nni/sdk", ".nni/lock") or not (member.isreg() or member.isdir() or member.issym()):
        return None
    return member
