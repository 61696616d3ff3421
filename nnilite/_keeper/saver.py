"""Copies what an attempt saves to the shared storage, and brings it what earlier attempts have saved there.

The trial writes to a folder on its own machine, so that a slow or missing storage never holds it up. Checkpoints are
copied as they change; checkpoints and outputs are copied again after its command has ended, before its end is reported,
so that the next attempt finds them wherever it runs.

The next attempt does not report again what was reported before its checkpoint. So a checkpoint counts once the manager
has confirmed these reports: if this machine is lost before, the next attempt begins with an earlier one. A manager that
confirms nothing for long is not waited for any more, as hours of work weigh more than results on the way to them.

Each attempt has a list of its newest checkpoint, `checkpoints/<trial>/<attempt>.json`, written after its files:

    saved   time of the newest file (seconds)
    files   {path: {"object": name in the storage, "size": bytes, "mtime_ns": time} or {"link": target}}

So an attempt that its manager has abandoned, but that still runs somewhere, never changes what its successor reads.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import stat
import tempfile
import threading
from functools import partial
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterator, List, Optional, Set, Tuple

from . import plain_file
from .checkpoint_note import CheckpointNote
from .enclosed import EnclosedFolder
from .folder import Folder, is_checkpoint_draft
from .outbox import LEAST_UNCONFIRMED_S, UNCONFIRMED_S
from .patient_storage import PatientStorage
from .spec import Spec
from .storage import LocalFile, Storage, StorageError, check_object_name, make_code_name

if TYPE_CHECKING:
    from .report_sender import ReportSender

CHECKPOINTS = "checkpoint"  # in the attempt's folder, where the service has no place for them
_PRIVATE = ("code", "spec.json", "job.json", CHECKPOINTS)  # not the trial's output, like all names with a dot in front
_SAVE_EVERY_S = 60.0
_LOOK_S = 0.2
_MOST_EARLIER = 50
_MOST_FETCHES = 10  # attempts to fetch a checkpoint that another attempt keeps replacing
_MOST_LIST_CHARS = 64 << 20
_MOST_TIME_NS = 1 << 62
_UNCONFIRMED = "a checkpoint counts although the manager has not confirmed the reports before it"
_State = Tuple[int, int]  # a file's size and time of the last change


class Saver:
    """The attempt's side of the shared storage, by a `PatientStorage`."""

    def __init__(self, spec: Spec, folder: Folder) -> None:
        self._spec = spec
        self._folder = folder
        self._entry = spec.storage
        self._parts = [str(part) for part in self._entry.get("parts") or ()]
        self._shared = PatientStorage(spec.storage)
        self._stop = threading.Event()
        self._last_sentence = ""
        self._files: Dict[str, Dict[str, Any]] = {}  # what is in the storage, in the form of the list
        self._states: Dict[str, _State] = {}
        self._listed: Dict[str, Dict[str, Any]] = {}  # the entries of the list
        self._sent: Set[str] = set()  # the names of this attempt's files in the storage
        self._number = 0
        self._sender: Optional[ReportSender] = None
        self._unconfirmed_s = 0.0
        self.checkpoint_dir = spec.checkpoint_dir or os.path.join(spec.directory, CHECKPOINTS)
        self._note = CheckpointNote(self.checkpoint_dir)
        self._exchange = threading.Lock()
        self._may_bring = True
        self._apart = frozenset(map(str, self._entry.get("apart") or ()))
        self._writer: Optional[int] = None  # the attempt that wrote what is here; None if that is unknown

    def restore(self, wanted: Callable[[], bool]) -> None:
        """Bring the newest checkpoint of earlier attempts, unless a newer one is here.

        Without one, the trial starts afresh.

        `wanted` says whether the trial is still to start.
        """
        if "checkpoints" not in self._parts:
            return
        self._writer = self._note.read(self._look())
        if self._spec.attempt:
            trouble = self._shared.run(self._restore, wanted)
            with self._exchange:
                self._may_bring = False
            if trouble:
                self._report_once("the trial starts without the checkpoints of its earlier attempts: " + trouble)
        # Other processes of a job save nothing, and may have the same folder.
        if self._spec.checkpoint_dir and not self._entry.get("read_only"):
            self._write_note(self._spec.attempt)

    def fetch_code(self, name: str, wanted: Callable[[], bool]) -> Optional[str]:
        """Return the path of the code package `name`, a hash; None if the storage cannot deliver it."""
        if "code" not in self._parts:
            return None
        path = os.path.join(self._folder.inner, name + ".tar.gz")
        found: List[bool] = []

        def fetch() -> None:
            found.append(self._shared.open().get(make_code_name(name), path, self._shared.moved))

        trouble = self._shared.run(fetch, wanted, patience_s=0.0)
        if trouble:
            self._folder.add_to_log("the code comes from the manager: " + trouble)
        return path if found == [True] else None

    def start(self, sender: ReportSender) -> None:
        """Begin to copy checkpoints as they change."""
        self._sender = sender
        if "checkpoints" in self._parts and not self._entry.get("read_only"):
            try:
                threading.Thread(target=self._save_regularly, name="saver", daemon=True).start()
            except RuntimeError as error:  # the machine has no room for a thread
                self._report_once("checkpoints stay on this machine until the end of the trial, since {}".format(error))

    def finish(self, succeeded: bool, wanted: Callable[[], bool]) -> str:
        """Copy what is not in the storage yet. Return why that was not possible, as a sentence; "" if it was."""
        self._stop.set()
        if self._entry.get("read_only"):
            return ""
        sentences = []
        last = partial(self._save_checkpoints, wanted, LEAST_UNCONFIRMED_S)
        for part, save in (("checkpoints", last), ("outputs", self._save_outputs)):
            if part in self._parts:
                trouble = self._shared.run(save, wanted)
                if part == "checkpoints" and not trouble and self._files != self._listed:
                    trouble = "the manager has not confirmed the reports before them"
                if trouble:
                    sentences.append("its {} stay in {} on its machine: {}".format(part, self._place_of(part), trouble))
        if succeeded and not sentences and self._entry.get("keep") == "none":
            trouble = self._shared.run(self._forget, wanted)
            if trouble:
                self._report_once("its checkpoints stay in the shared storage, against checkpoint.keep: " + trouble)
        for sentence in sentences:
            self._report_once(sentence)
        return "\n".join(sentences)

    def _place_of(self, part: str) -> str:
        return self.checkpoint_dir if part == "checkpoints" else self._spec.directory

    def _report_once(self, sentence: str) -> None:
        """Report to the user by the trial's standard error and the keeper's log, each sentence once."""
        if sentence == self._last_sentence:
            return
        self._last_sentence = sentence
        self._folder.add_to_log(sentence)
        try:
            words = "nnilite: {}\n".format(sentence).encode("utf-8", "replace")
            plain_file.write(self._folder.stderr, words, flags=os.O_APPEND)
        except OSError:  # the keeper's log has it
            return

    def _save_regularly(self) -> None:
        while not self._stop.wait(float(self._entry.get("save_every_s") or _SAVE_EVERY_S)):
            try:
                with self._shared.turn:
                    if not self._stop.is_set():
                        self._save_checkpoints(lambda: not self._stop.is_set(), UNCONFIRMED_S)
                self._last_sentence = ""
            except (StorageError, OSError, ValueError) as error:
                self._report_once("checkpoints stay on this machine for now: {}: {}".format(self._shared.title, error))

    # Checkpoints

    def _restore(self) -> None:
        storage, troubles = self._shared.open(), []
        for number in range(self._spec.attempt - 1, max(-1, self._spec.attempt - 1 - _MOST_EARLIER), -1):
            if self._writer is not None and number <= self._writer:
                break  # the files here are as new
            try:
                if self._restore_from(storage, number):
                    break
            except ValueError as error:  # what an attempt before it has saved is better than nothing
                troubles.append("those of attempt {} cannot be used: {}".format(number, error))
        else:
            if troubles:
                raise ValueError(troubles[0])
        for trouble in troubles:
            self._report_once("the trial starts with older checkpoints: " + trouble)

    def _restore_from(self, storage: Storage, number: int) -> bool:
        """Bring what this attempt has saved, unless newer files are here. Return False if it has saved nothing.

        Times are compared only where it is unknown which attempt wrote what is here: clocks differ between machines.

        Raises: ValueError if it is damaged.
        """
        known, tries = self._list_of(storage, number), 0
        while known is not None and (self._writer is not None or known["saved"] > self._find_newest_time()):
            try:
                self._fetch(storage, number, known["files"])
                return True
            except ValueError:
                # Its manager may have abandoned the attempt while it still runs, and replaces what is fetched here.
                before, known, tries = known, self._list_of(storage, number), tries + 1
                if known == before or tries == _MOST_FETCHES:
                    raise
        return known is not None

    def _write_note(self, attempt: int) -> None:
        try:
            self._note.write(attempt, self._writer, self._look())
        except OSError as error:
            self._folder.add_to_log("who writes the checkpoints cannot be noted: {}".format(error))

    def _look(self) -> Dict[str, _State]:
        """Return the checkpoint's files and links here, by their relative paths."""
        return _states(self.checkpoint_dir, lambda name: name in self._apart or is_checkpoint_draft(name))

    def _find_newest_time(self) -> float:
        """Return the time of the newest file here, in seconds; 0 if there is none."""
        return max((state[1] for state in self._look().values()), default=0) / 1e9

    def _list_of(self, storage: Storage, number: int) -> Optional[Dict[str, Any]]:
        with tempfile.TemporaryDirectory(dir=self._folder.inner) as scratch:
            path = os.path.join(scratch, "list")
            if not storage.get(self._list_name(number), path, self._shared.moved):
                return None
            with open(path, encoding="utf-8") as file:
                text = file.read(_MOST_LIST_CHARS + 1)
        if len(text) > _MOST_LIST_CHARS:
            raise ValueError("the list {} is too long".format(self._list_name(number)))
        try:
            return _read_list(text)
        except (ValueError, TypeError, AttributeError, KeyError, OverflowError, RecursionError) as error:
            raise ValueError("the list {} is damaged".format(self._list_name(number))) from error

    def _fetch(self, storage: Storage, number: int, files: Dict[str, Any]) -> None:
        """Put the files of this attempt where the present ones are, all or none.

        A storage that hung may deliver when the trial has been started without them: that one's files stay.
        """
        os.makedirs(os.path.dirname(self.checkpoint_dir), exist_ok=True)
        draft = tempfile.mkdtemp(prefix=".checkpoint-", dir=os.path.dirname(self.checkpoint_dir))
        try:
            links = {path: facts["link"] for path, facts in sorted(files.items()) if "link" in facts}
            # The draft is new, and links come after all files, so that no file is written through one.
            for path, facts in sorted(files.items()):
                _check_inside(path)
                if path in links:
                    continue
                target = os.path.join(draft, path)
                os.makedirs(os.path.dirname(target), exist_ok=True)
                if not storage.get(facts["object"], target, self._shared.moved):
                    raise ValueError("the file {} is gone from it".format(facts["object"]))
                if os.path.getsize(target) != facts["size"]:
                    raise ValueError("the file {} is truncated".format(facts["object"]))
                os.utime(target, ns=(facts["mtime_ns"], facts["mtime_ns"]))
            with EnclosedFolder(draft) as folder:
                for path, leads_to in links.items():
                    if not folder.link(path, leads_to):
                        self._report_once(
                            "the link {!r:.200} leads out of the checkpoint, so it is left out".format(path)
                        )
            with self._exchange:
                if not self._may_bring:
                    raise StorageError("the trial has started before its checkpoints were there")
                for name in self._apart:
                    with contextlib.suppress(FileNotFoundError):
                        os.rename(os.path.join(self.checkpoint_dir, name), os.path.join(draft, name))
                shutil.rmtree(self.checkpoint_dir, ignore_errors=True)
                os.rename(draft, self.checkpoint_dir)
                self._writer = number
                self._files = self._listed = dict(files)
                self._states = self._look()
        finally:
            shutil.rmtree(draft, ignore_errors=True)

    def _save_checkpoints(self, wanted: Callable[[], bool], unconfirmed_s: float) -> None:
        """Copy what has changed since the last time, then write the new list, unless that is not wanted any more."""
        now = self._look()
        if now == self._states and self._files == self._listed:
            return
        storage = self._shared.open()
        self._copy(storage, now)
        # A list without files would hide the checkpoint of an earlier attempt.
        if self._files != self._listed:
            if not self._await_reports(wanted, unconfirmed_s):
                return
            saved = max((facts.get("mtime_ns", 0) for facts in self._files.values()), default=0) / 1e9
            self._put_json(storage, self._list_name(self._spec.attempt), {"saved": saved, "files": self._files})
            self._listed = self._files
        self._drop(storage)

    def _copy(self, storage: Storage, now: Dict[str, _State]) -> None:
        """Copy what has changed since the last time."""
        files: Dict[str, Dict[str, Any]] = {}
        states = dict(now)
        for path in sorted(now):
            if path in self._files and now[path] == self._states.get(path):
                files[path] = self._files[path]
                continue
            facts = self._send(storage, path)
            if facts is None:  # it is being written: keep the version before, and take it at the next look
                states.pop(path)
                facts = self._files.get(path)
            elif "size" in facts:
                states[path] = (facts["size"], facts["mtime_ns"])
            if facts is not None:
                files[path] = facts
        self._files, self._states = files, states

    def _await_reports(self, wanted: Callable[[], bool], limit_s: float) -> bool:
        """Wait until the manager has what was reported before the files were copied, but not without end.

        Return False if the list is not to be written now.
        """
        # Where services read the trial's folder, only that file has its reports.
        _sync(self._folder.metrics)
        if self._sender is None:
            return True
        left_s = max(limit_s - self._unconfirmed_s, LEAST_UNCONFIRMED_S)
        asked = self._sender.ask()
        while not self._sender.is_confirmed(asked, _LOOK_S):
            if not wanted() or self._sender.fenced:
                return False
            left_s -= _LOOK_S
            self._unconfirmed_s += _LOOK_S
            if left_s <= 0:
                self._folder.add_to_log(_UNCONFIRMED)
                return True
        self._unconfirmed_s = 0.0
        return True

    def _drop(self, storage: Storage) -> None:
        """Delete what this attempt has saved of earlier checkpoints and has not in the present one."""
        for name in sorted(self._sent - {facts.get("object") for facts in self._files.values()}):
            storage.delete(name)
            self._sent.discard(name)

    def _send(self, storage: Storage, path: str) -> Optional[Dict[str, Any]]:
        """Copy one file. Return None if it is written to meanwhile, or gone."""
        here = os.path.join(self.checkpoint_dir, path)
        if os.path.islink(here):
            return {"link": os.readlink(here)}
        self._number += 1
        name = self._own_name("{}/{}".format(self._number, path))
        with _pin(here, self._folder.inner) as source:
            state = _state(source)
            if state is None:
                return None
            try:
                self._sent.add(name)
                storage.put(name, source, self._shared.moved)
            except StorageError:
                if _state(source) == state:
                    raise
            if _state(source) != state:
                return None
        return {"object": name, "size": state[0], "mtime_ns": state[1]}

    def _forget(self) -> None:
        """Delete what the trial has saved: the experiment keeps no checkpoints, and its manager cannot reach them."""
        storage = self._shared.open()
        for number in range(self._spec.attempt, -1, -1):
            known = self._list_of(storage, number)
            if known is not None:
                objects = [facts["object"] for facts in known["files"].values() if facts.get("object")]
                for name in [check_object_name(self._spec.trial, name) for name in objects]:
                    storage.delete(name)
                storage.delete(self._list_name(number))

    def _list_name(self, number: int) -> str:
        return "checkpoints/{}/{}.json".format(self._spec.trial, number)

    def _own_name(self, path: str) -> str:
        return "checkpoints/{}/{}/{}".format(self._spec.trial, self._spec.attempt, path)

    def _put_json(self, storage: Storage, name: str, value: Any) -> None:
        with tempfile.TemporaryDirectory(dir=self._folder.inner) as scratch:
            path = os.path.join(scratch, "list")
            with LocalFile(path) as file:
                file.write(json.dumps(value).encode("ascii"))
            storage.put(name, path, self._shared.moved)

    # Outputs

    def _save_outputs(self) -> None:
        """Copy the attempt's folder, except for nnilite's own files."""
        storage = self._shared.open()
        for path in sorted(_states(self._spec.directory, _is_private)):
            here = os.path.join(self._spec.directory, path)
            if os.path.abspath(here).startswith(self.checkpoint_dir + os.sep) or os.path.islink(here):
                continue
            storage.put("trials/{}/{}/{}".format(self._spec.trial, self._spec.attempt, path), here, self._shared.moved)


@contextlib.contextmanager
def _pin(path: str, folder: str) -> Iterator[str]:
    """Yield another name of a file, which stays the same file after the trial renames a newer one to `path`.

    A trial that saves faster than the storage copies would otherwise never have a checkpoint there. Where a file
    cannot have two names this is `path` itself.
    """
    name = os.path.join(folder, ".pinned-" + os.urandom(8).hex())
    try:
        os.link(path, name, follow_symlinks=False)
    except OSError:
        name = path
    try:
        yield name
    finally:
        if name != path:
            os.unlink(name)


def _is_private(name: str) -> bool:
    return name.startswith(".") or name in _PRIVATE


def _read_list(text: str) -> Dict[str, Any]:
    """Return the list of a checkpoint, with "saved" and "files". Raises: one of many errors if it is damaged."""
    known = json.loads(text)
    files = {path: _read_facts(facts) for path, facts in known["files"].items()}
    return {"saved": float(known.get("saved") or 0), "files": files}


def _read_facts(facts: Dict[str, Any]) -> Dict[str, Any]:
    if "link" in facts:
        return {"link": str(facts["link"])}
    mtime_ns = int(facts["mtime_ns"])
    if abs(mtime_ns) > _MOST_TIME_NS:
        raise ValueError("it has an impossible time")
    return {"object": str(facts["object"]), "size": int(facts["size"]), "mtime_ns": mtime_ns}


def _check_inside(path: str) -> None:
    """Check that a path does not lead out of the folder. Raises: ValueError."""
    if os.path.isabs(path) or os.path.normpath(path).split(os.sep)[0] == ".." or "\0" in path:
        raise ValueError("its list names {!r}, outside of the folder for checkpoints".format(path))


def _states(folder: str, hidden: Callable[[str], bool] = is_checkpoint_draft) -> Dict[str, _State]:
    """Return the files and links of a folder, by their relative paths. `hidden` names at its top are left out."""
    found: Dict[str, _State] = {}
    for place, folders, names in os.walk(folder):
        if place == folder:
            folders[:] = [name for name in folders if not hidden(name)]
        links = [name for name in folders if os.path.islink(os.path.join(place, name))]
        for name in [*names, *links]:
            left_out = is_checkpoint_draft(name) or (place == folder and hidden(name))
            state = None if left_out else _state(os.path.join(place, name))
            if state is not None:
                found[os.path.relpath(os.path.join(place, name), folder)] = state
    return found


def _state(path: str) -> Optional[_State]:
    """Return size and time of a file or link; None if it is gone or something else."""
    try:
        facts = os.lstat(path)
    except OSError:
        return None
    return (facts.st_size, facts.st_mtime_ns) if stat.S_ISREG(facts.st_mode) or stat.S_ISLNK(facts.st_mode) else None


def _sync(path: str) -> None:
    """Wait until the content is on the disk; a missing file has none. Raises: OSError."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return
    try:
        os.fsync(file)
    finally:
        os.close(file)
