"""What services read back from their own files, and from a trial's folder, in which the trial may write."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from nnilite._trackers.feed import read_position as tracked_position
from nnilite._webhooks.webhook_events import read_position
from nnilite.errors import ServiceError
from nnilite.service import JobStatus
from nnilite_local._attempt_folder import AttemptFolder
from nnilite_local._config import LocalConfig
from nnilite_local._gpus import GpuAllocator, make_gpu_rules
from nnilite_remote._bookings import Booking, Bookings
from nnilite_remote._pending_commands import CANCEL, FINISH, PendingCommands

SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=9), st.sampled_from(["/\ud800", "/\0"])
)
JSON = st.recursive(
    SCALARS, lambda part: st.one_of(st.lists(part, max_size=3), st.dictionaries(st.text(max_size=9), part, max_size=3))
)
NAMES = ("job", "directory", "pid", "start", "gpus", "time", "code", "message", "env", "grace_s", "machine")
RECORDS = st.dictionaries(st.sampled_from(NAMES), JSON)
FILES = st.one_of(
    *(st.binary(max_size=30), st.just(b"[" * 100_000)),
    st.one_of(JSON, RECORDS, st.dictionaries(st.text(max_size=5), st.one_of(RECORDS, st.tuples(JSON, JSON)))).map(
        lambda value: json.dumps(value).encode()
    ),
    st.lists(st.tuples(st.one_of(st.sampled_from([CANCEL, FINISH]), JSON), RECORDS)).map(
        lambda value: json.dumps(value).encode()
    ),
)
SETTINGS = settings(max_examples=50)


@SETTINGS
@given(content=FILES)
@example(content=b'{"time": "abc", "code": "x", "env": [], "grace_s": []}')
def test_whatever_stands_in_an_attempts_folder_has_the_types_that_the_service_expects(
    tmp_path: Path, content: bytes
) -> None:
    folder = AttemptFolder(tmp_path / "attempt")
    (folder.path / ".nni").mkdir(parents=True, exist_ok=True)
    for name in ("job.json", "spec.json", ".nni/started", ".nni/exit"):
        (folder.path / name).write_bytes(content)
    handle, ended = folder.handle(), folder.read_end("box")
    assert handle is None or (type(handle["pid"]) is int and handle["directory"] == str(folder.path))
    assert ended is None or isinstance(ended, JobStatus)
    assert isinstance(folder.started(), float | None)
    assert folder.grace_s() >= 0
    assert all(type(index) is int for index in folder.gpus())


def test_a_handle_comes_back_as_it_was_kept(tmp_path: Path) -> None:
    folder = AttemptFolder(tmp_path)
    handle = {"job": "j", "directory": str(tmp_path), "pid": 7, "start": "boot/7", "gpus": [0]}
    folder.keep_note(handle)
    assert folder.handle() == handle


@pytest.mark.parametrize(
    "changed", [{"directory": "/elsewhere"}, {"pid": -1}, {"pid": True}, {"start": None}, {"gpus": 3}]
)
def test_a_handle_that_the_trial_has_changed_is_none(tmp_path: Path, changed: dict[str, object]) -> None:
    folder = AttemptFolder(tmp_path)
    known = {"job": "j", "directory": str(tmp_path), "pid": 7, "start": "boot/7", "gpus": [0]}
    folder.keep_note({**known, **changed})
    assert folder.handle() is None


@SETTINGS
@given(content=FILES)
@example(content=b'{"j": ["/d", ["a"]]}')
def test_whatever_stands_in_the_bookings_a_service_starts(tmp_path: Path, content: bytes) -> None:
    place = tmp_path / "gpus.json"
    place.write_bytes(content)
    desk = GpuAllocator("abc", make_gpu_rules(LocalConfig()), place)
    desk.restore(lambda directory: directory.exists())
    assert all(directory.exists() for directory, _ in desk._bookings.values())
    place.write_bytes(content)
    bookings = Bookings(place)
    bookings.load()
    assert all(isinstance(job, str) for job in bookings._bookings)


@SETTINGS
@given(content=FILES)
def test_whatever_stands_in_the_pending_commands_a_service_starts(tmp_path: Path, content: bytes) -> None:
    place = tmp_path / "pending.json"
    place.write_bytes(content)
    pending = PendingCommands(place)
    pending.load()
    assert all(isinstance(job, str) for job in pending.jobs(CANCEL))


def test_what_is_pending_and_booked_comes_back(tmp_path: Path) -> None:
    handle = {"machine": "box", "job": "j", "directory": "/d"}
    PendingCommands(tmp_path / "pending").add(CANCEL, handle)
    pending = PendingCommands(tmp_path / "pending")
    pending.load()
    assert pending.jobs(CANCEL) == {"j": handle}
    Bookings(tmp_path / "booked").book("j", Booking("box", "/d", (1,)))
    booked = Bookings(tmp_path / "booked")
    booked.load()
    assert booked.get("j") == Booking("box", "/d", (1,))


def test_what_a_service_has_written_down_and_cannot_read_now_is_not_taken_for_nothing(tmp_path: Path) -> None:
    """A trial whose start was not answered would be started again elsewhere, and GPUs be given away twice."""
    place = tmp_path / "jobs.json"
    place.symlink_to(place)
    desk = GpuAllocator("e", make_gpu_rules(LocalConfig()), place)
    for read in (Bookings(place).load, PendingCommands(place).load, lambda: desk.restore(lambda folder: True)):
        with pytest.raises(ServiceError, match="cannot be read now"):
            read()


@pytest.mark.timeout(10)
def test_nobody_waits_at_a_pipe_in_the_place_of_what_a_service_has_written_down(tmp_path: Path) -> None:
    os.mkfifo(place := tmp_path / "jobs.json")
    desk = GpuAllocator("e", make_gpu_rules(LocalConfig()), place)
    for read in (Bookings(place).load, PendingCommands(place).load, lambda: desk.restore(lambda folder: True)):
        with pytest.raises(ServiceError, match=r"jobs.json cannot be read now: .*not a regular file"):
            read()


POSITIONS = st.fixed_dictionaries({}, optional=dict.fromkeys(("revision", "row", "best", "sequence", "ends"), JSON))


@SETTINGS
@given(
    content=st.one_of(st.binary(max_size=30), st.one_of(JSON, POSITIONS).map(lambda value: json.dumps(value).encode()))
)
@example(content=b'{"revision": 1%s, "row": NaN}' % (b"0" * 400))
def test_whatever_stands_in_the_position_of_a_tracker_or_webhook_it_goes_on(tmp_path: Path, content: bytes) -> None:
    place = tmp_path / "0.json"
    place.write_bytes(content)
    assert read_position(place).revision >= 0
    assert all(number >= 0 for number in tracked_position(place))
