"""Tags and notes of trials: in the database, and over the REST interface."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from manager.fake_backend import filled
from manager.rest_server import Client, serving
from nnilite._answers.backend import RemarksQuery, TrialQuery, TrialRemarks
from nnilite._engine import messages
from nnilite._store.contents import check_rows
from nnilite._store.database_file import FILE_NAME
from nnilite._store.reader import Reader
from nnilite._store.trial_remarks import write_remarks
from nnilite._store.writer import Store
from nnilite.errors import Conflict, NotFound, StoreError
from nnilite.records import Trial, TrialState


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    """The database of an experiment that runs: its store is open, and has written two trials.

    Its folder was named on a machine whose names are not UTF-8.
    """
    found = tmp_path / os.fsdecode(b"menu\xe9") / FILE_NAME
    found.parent.mkdir()
    with contextlib.closing(Store.create(found, "abc", 1.0)) as store:
        store.claim()
        store.write([messages.SaveTrial(Trial(f"t{n}", n, {"x": n}, n, created=1.0)) for n in range(2)])
        yield found


def read(path: Path, work: Callable[[Reader], Any]) -> Any:
    async def answer() -> Any:
        with contextlib.closing(Reader(path)) as reader:
            return await work(reader)

    return asyncio.run(answer())


def remarks(path: Path, **query: Any) -> list[TrialRemarks]:
    return list(read(path, lambda reader: reader.remarks(RemarksQuery(**query))))


def test_remarks_are_kept_and_read_in_the_order_of_change(path: Path) -> None:
    first = write_remarks(path, TrialRemarks("t1", ("good", "to look at"), "as in the paper\n"))
    second = write_remarks(path, TrialRemarks("t0", (), "odd"))
    assert remarks(path) == [first, second]
    third = write_remarks(path, TrialRemarks("t1", (), "", first.revision))
    assert remarks(path) == [second, third]
    assert remarks(path, after=second.revision) == [third]
    assert remarks(path, trials=["t0", "none"]) == [second]
    assert remarks(path, trials=[]) == []
    assert remarks(path, limit=1) == [second]


def test_trials_are_found_by_all_of_several_tags(path: Path) -> None:
    write_remarks(path, TrialRemarks("t0", ("good", "a,b"), ""))
    write_remarks(path, TrialRemarks("t1", ("good",), "a,b"))

    def found(*tags: str) -> list[str]:
        return [one.id for one in read(path, lambda reader: reader.trials(TrialQuery(tags=tags))).trials]

    assert found("good") == ["t0", "t1"]
    assert found("good", "a,b") == ["t0"]
    assert found("goo") == []


def test_nobody_overwrites_what_they_have_not_seen(path: Path) -> None:
    kept = write_remarks(path, TrialRemarks("t0", ("mine",), ""))
    for revision in (0, kept.revision + 1):
        with pytest.raises(Conflict, match="these remarks have changed in the meantime"):
            write_remarks(path, TrialRemarks("t0", ("theirs",), "", revision))
    with pytest.raises(NotFound, match="no trial 't9'"):
        write_remarks(path, TrialRemarks("t9", (), ""))
    assert remarks(path) == [kept]


def test_of_many_simultaneous_changes_one_wins(path: Path) -> None:
    kept: list[TrialRemarks] = []
    begin = threading.Barrier(4)

    def write(name: str) -> None:
        begin.wait(60)
        with contextlib.suppress(Conflict):
            kept.append(write_remarks(path, TrialRemarks("t0", (name,), "")))

    threads = [threading.Thread(target=write, args=(f"by {n}",)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(kept) == 1
    assert remarks(path) == kept


def test_the_engine_goes_on_and_leaves_remarks_alone(tmp_path: Path) -> None:
    path = tmp_path / FILE_NAME
    running = Trial("t0", 0, {"x": 1}, 0, created=1.0)
    with contextlib.closing(Store.create(path, "abc", 1.0)) as store:
        store.claim()
        store.write([messages.SaveTrial(running)])
        kept = write_remarks(path, TrialRemarks("t0", ("good",), ""))
        store.write(
            [messages.SaveTrial(Trial("t0", 0, {"x": 1}, 0, state=TrialState.SUCCEEDED, created=1.0, ended=2.0))]
        )
    assert remarks(path) == [kept]
    assert read(path, lambda reader: reader.trial("t0"))[0].state is TrialState.SUCCEEDED


def test_what_no_database_can_keep_is_replaced(path: Path) -> None:
    kept = write_remarks(path, TrialRemarks("t0", ("a\ud800",), "b\udfff"))
    assert kept.note.startswith("b")
    assert remarks(path) == [kept]


def test_a_database_that_is_gone_is_not_made_anew(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="is missing") as caught:
        write_remarks(tmp_path / "none.sqlite", TrialRemarks("t0", (), ""))
    assert caught.value.busy
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("change", ["tags = '[1]'", "tags = 'no json'", "note = x'00'", "trial = 9", "revision = -1"])
def test_remarks_of_a_stranger_are_checked(path: Path, change: str) -> None:
    write_remarks(path, TrialRemarks("t0", ("good",), ""))
    with contextlib.closing(sqlite3.connect(path)) as db:
        check_rows(db)
        db.execute(f"UPDATE remarks SET {change}")
        with pytest.raises(StoreError, match="remarks"):
            check_rows(db)


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    with serving(filled(tmp_path)) as client:
        yield client


def put(client: Client, trial: str = "End02", **change: Any) -> Any:
    body = {"tags": ["good"], "note": "", "revision": 0} | change
    return client.ask("PUT", f"/api/v1/trials/{trial}/remarks", body)


def test_remarks_are_changed_and_told_wherever_trials_are(client: Client) -> None:
    assert client.get("/trials/End02/remarks").json == {"trial": "End02", "tags": [], "note": "", "revision": 0}
    kept = put(client, tags=[" good ", "good", "slow"], note=" see the paper\n").json
    assert kept == {"trial": "End02", "tags": ["good", "slow"], "note": "see the paper", "revision": 1}
    assert client.get("/trials/End02/remarks").json == kept
    assert client.get("/remarks").json == {"remarks": [kept]}
    assert client.get("/remarks?after=1").json == {"remarks": []}
    listed = client.get("/trials?tag=good&tag=slow").json["trials"]
    for trial in (client.get("/trials/End02").json, *client.get("/export").json, *listed):
        assert (trial["id"], trial["tags"], trial["note"]) == ("End02", ["good", "slow"], "see the paper")
    assert len(listed) == 1
    assert client.get("/trials?tag=none").json["total"] == 0
    assert ',"good, slow",see the paper,' in client.get("/export?format=csv").body.decode()


def test_remarks_are_changed_where_the_experiment_is_only_viewed(client: Client) -> None:
    client.backend.read_only = True
    assert put(client).status == 200
    assert client.get("/trials/End02").json["tags"] == ["good"]


@pytest.mark.parametrize(
    ("change", "status", "field"),
    [
        ({"tags": "good"}, 400, "tags"),
        ({"tags": [""]}, 400, "tags"),
        ({"tags": ["two\nlines"]}, 400, "tags"),
        ({"tags": [str(n) for n in range(21)]}, 400, "tags"),
        ({"note": 1}, 400, "note"),
        ({"note": "x" * 20_001}, 400, "note"),
        ({"revision": True}, 400, "revision"),
        ({"revision": -1}, 400, "revision"),
        ({"name": "other"}, 400, "name"),
        ({"revision": 1}, 409, None),
        ({"trial": "none"}, 404, None),
    ],
)
def test_wrong_remarks_are_refused_with_their_field(
    client: Client, change: dict[str, Any], status: int, field: str | None
) -> None:
    reply = put(client, **change)
    assert (reply.status, reply.json.get("field")) == (status, field)
    assert client.backend.remarked == {}


def test_a_field_that_is_missing_is_named(client: Client) -> None:
    reply = client.ask("PUT", "/api/v1/trials/End02/remarks", {"tags": [], "note": ""})
    assert (reply.status, reply.json["field"]) == (400, "revision")
