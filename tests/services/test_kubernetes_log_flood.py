"""A log that grows faster than it is read, and one whose line has no end: what that takes of the manager's memory."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from itertools import repeat
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("kubernetes")

from nnilite.testing import eventually
from nnilite_kubernetes import _api, _log, _role_records
from nnilite_kubernetes._api import ApiError, Cluster, LogStream
from nnilite_kubernetes._log import PodLog

LINE = b"2026-01-01T00:00:%02d.%09dZ " + b"x" * 100_000 + b"\n"


class Answer:
    """An answer that is made as it is read."""

    status = 200

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self.taken = 0
        self.is_closed = threading.Event()

    def stream(self, size: int, decode_content: bool) -> Iterator[bytes]:
        for piece in self._pieces:
            self.taken += len(piece)
            yield piece

    def close(self) -> None:
        self.is_closed.set()


class OneLog:
    """A cluster of which only one container's log is asked for."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer

    def follow_log(self, *place: str, since: str) -> LogStream:
        return LogStream(self._answer)

    def pod_log(self, *place: str, since: str) -> LogStream:
        return LogStream(Answer(iter([])))


Follow = Callable[[Iterator[bytes]], tuple[PodLog, Answer]]


@pytest.fixture
def follow() -> Follow:
    def begin(pieces: Iterator[bytes]) -> tuple[PodLog, Answer]:
        answer = Answer(pieces)
        cluster: Any = OneLog(answer)
        found = PodLog(cluster, "default", "pod", "main")
        found.follow()
        return found, answer

    return begin


def test_a_kubelets_word_that_it_cannot_read_the_log_does_not_hide_what_follows(follow: Follow) -> None:
    begun = b"2026-01-01T00:00:00.000000001Z begun\n"
    pod_log, answer = follow(iter([begun + b"unable to retrieve container logs for containerd://abc\n"]))
    assert answer.is_closed.wait(60)
    pod_log.read(True, ended=True)
    assert pod_log._since() == "2026-01-01T00:00:00Z"
    rest = begun + b"2026-01-01T00:00:01.000000001Z the rest\n"
    pod_log._cluster.pod_log = lambda *place, since: LogStream(Answer(iter([rest])))  # type: ignore[method-assign]
    [output] = pod_log.read(True, ended=True)
    assert output.data == b"the rest\n"


def size(pod_log: PodLog) -> int:
    return sum(map(len, pod_log._unread))


def test_what_is_not_read_yet_waits_in_the_connection(follow: Follow) -> None:
    pod_log, answer = follow(LINE % divmod(number, 10) for number in range(500))
    eventually(lambda: size(pod_log) >= _log._UNREAD_BYTES)
    assert not answer.is_closed.wait(0.3)
    assert size(pod_log) < _log._UNREAD_BYTES + 200_000
    text = b"".join(event.data for event in pod_log.read(True) if hasattr(event, "data"))
    text += b"".join(event.data for event in pod_log.read(True, ended=True) if hasattr(event, "data"))
    assert text.count(b"\n") == 500
    assert answer.taken == 500 * len(LINE % (0, 0))


def test_who_is_not_read_for_long_is_not_followed_any_more(follow: Follow, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_log, "_UNREAD_S", 0.1)
    pod_log, answer = follow(LINE % divmod(number, 10) for number in range(500))
    assert answer.is_closed.wait(60)
    eventually(lambda: not pod_log._is_followed)
    assert size(pod_log) < _log._UNREAD_BYTES + 200_000


def test_a_line_without_an_end_is_cut_and_the_next_ones_are_whole(follow: Follow) -> None:
    def pieces() -> Iterator[bytes]:
        yield b"2026-01-01T00:00:00.000000001Z "
        yield from [b"9" * 65536] * 500
        yield b"9\n2026-01-01T00:00:00.000000002Z the next\n"

    pod_log, answer = follow(pieces())
    assert answer.is_closed.wait(60)
    assert size(pod_log) < _log._LONGEST_LINE_BYTES + 100_000
    [output] = pod_log.read(True, ended=True)
    assert output.data.splitlines()[1:] == [b"the next"]


def test_of_a_log_that_is_asked_for_no_more_is_taken_than_there_is_room_for(follow: Follow) -> None:
    def numbered() -> Iterator[bytes]:
        yield from (LINE % divmod(number, 10) for number in range(300))

    pod_log, answer = follow(iter([]))
    assert answer.is_closed.wait(60)
    pod_log._finish()
    pod_log._is_ending = False
    pod_log._cluster.pod_log = lambda *place, since: LogStream(Answer(numbered()))  # type: ignore[method-assign]
    found = [b"".join(event.data for event in pod_log.read(True) if hasattr(event, "data")) for _ in range(5)]
    assert max(map(len, found)) < _log._UNREAD_BYTES + 200_000
    assert sum(map(len, found)) == 300 * (100_000 + 1)


def test_at_the_end_of_a_container_its_log_has_an_end(follow: Follow, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_log, "_LAST_LINES_S", 0.1)
    monkeypatch.setattr(_log, "_LAST_BYTES", 10_000_000)
    pod_log, _ = follow(LINE % divmod(number, 10) for number in range(500))
    pod_log._finish()
    assert size(pod_log) < 10_200_000


def test_a_log_that_is_kept_ends_where_its_kubelet_was_asked_to_end_it(tmp_path: Path) -> None:
    answer = Answer(repeat(b"9" * 65535 + b"\n", 1000))
    _role_records._save(LogStream(answer), tmp_path / "a.log", tmp_path / "a.new")
    assert (tmp_path / "a.log").stat().st_size < _role_records._MOST_BYTES + 100_000
    assert answer.is_closed.is_set()


def test_of_a_kept_log_a_line_without_an_end_is_cut(tmp_path: Path) -> None:
    _role_records._save(LogStream(Answer(repeat(b"9" * 65536, 100))), tmp_path / "a.log", tmp_path / "a.new")
    assert (tmp_path / "a.log").stat().st_size < _role_records._LONGEST_LINE_BYTES + 100_000


@pytest.mark.parametrize("status", [200, 500])
def test_an_answer_without_an_end_is_cut_off(status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    from kubernetes.client.configuration import Configuration

    credentials: Any = SimpleNamespace(configuration=Configuration(host="http://here"), headers=dict, source="here")
    cluster, answer = Cluster(credentials), Answer(repeat(b"9" * 65536, 1000))
    answer.status = status
    monkeypatch.setattr(_api, "_MOST_BYTES", 1_000_000)
    pool: Any = SimpleNamespace(request=lambda *_, **__: answer)
    cluster._way = _api._ApiPools(credentials.configuration, pool)
    with pytest.raises(ApiError, match="more than 1000000 bytes"):
        cluster.call("GET", "/api")
    assert answer.taken < 1_200_000
