"""Whatever is in, or in the place of, a file that lists experiments: the others are listed, and a sentence says it."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nni_experiment import NniFolder, NniTrial
from nni_experiment import make as make_nni
from nnilite._cli.nnictl import run
from nnilite._experiments import nni_folders, registry
from nnilite._experiments.documents import write_json
from nnilite._hub import digests
from nnilite._hub.hub import Hub
from nnilite._plugins import user_algorithms
from nnilite.errors import NniliteError
from odd_json import JSON, SCALARS, SETTINGS, like
from stand_in_manager import Make

LISTINGS = [
    *(["experiment", "list", "--all"], ["experiment", "list", "--all", "--json"], ["top", "--json"]),
    *(["experiment", "show", "other"], ["trial", "ls", "other"]),
]
TIMES = [1_700_000_000_000, "N/A", 10**400, -1, 1e300, float("nan"), True, [], {}]
NNI_ENTRY = st.fixed_dictionaries(
    {},
    optional={
        "experimentName": st.one_of(st.just("old"), JSON),
        "platform": st.one_of(st.just("local"), JSON),
        "status": st.one_of(st.sampled_from(["DONE", "RUNNING", [], {}, 5]), JSON),
        "pid": st.one_of(st.integers(), SCALARS),
        "startTime": st.one_of(st.sampled_from(TIMES), JSON),
        "endTime": st.one_of(st.sampled_from(TIMES), JSON),
        "logDir": st.one_of(st.sampled_from(["/tmp", "/" + "x" * 5000, "/\ud800", "/a\0", "no"]), JSON),
    },
)
NNI_LIST = st.dictionaries(
    st.one_of(st.sampled_from(["a", "..", "x" * 300, "\ud800"]), st.text()), NNI_ENTRY, max_size=3
)


@pytest.fixture
def others(home: Path, whole: Path, make: Make) -> Path:
    """An experiment of ours that runs, one that has ended, and one of NNI."""
    make("other")
    return make_nni(home, NniFolder(trials=[NniTrial("AAAAA", {"x": 0.5}, 0, final=0.25)]))


def listed_whole() -> bool:
    """Whether all listing commands work, and list the three experiments."""
    codes = [run(command) for command in LISTINGS]
    return codes == [0] * len(LISTINGS) and {one.id for one in registry.list_all()} >= {"other", "abcd", "oldone12"}


@SETTINGS
@given(content=st.one_of(like(), NNI_LIST.map(lambda value: json.dumps(value).encode())))
@example(content=b'{"a": {"status": []}}')
@example(content=b'{"oldone12": {"status": {}}}')
@example(content=b'{"a": {"startTime": 1%s}}' % (b"0" * 400))
@example(content=b'{"%s": {"status": "DONE"}}' % (b"x" * 300))
@example(content=b'{"a": {"logDir": "/%s"}}' % (b"x" * 5000))
def test_any_list_of_nni_leaves_all_listings_working(others: Path, content: bytes) -> None:
    (others.parent / nni_folders.LIST).write_bytes(content)
    assert listed_whole()


def test_a_wrong_entry_of_nnis_list_is_left_out_and_named(others: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = others.parent / nni_folders.LIST
    sound = json.loads(place.read_bytes())
    write_json(place, {"a": {"status": []}, "b": {"startTime": 10**400}, **sound})
    assert run(["experiment", "list", "--all"]) == 0
    said = capsys.readouterr()
    assert "oldone12" in said.out
    assert f"The entry 'a' is left out: {place} is damaged (`status` must be text, not [])" in said.err.replace(
        "\\n", "\n"
    )
    assert said.err.count("The entry 'b' is left out") == 1


@SETTINGS
@given(content=like(name="n", tags=["a"], note="x", revision=3))
@example(content=b'{"name": "\\ud800", "tags": ["\\udfff"]}')
def test_any_remarks_leave_all_listings_working(others: Path, whole: Path, content: bytes) -> None:
    (whole / "remarks.json").write_bytes(content)
    assert listed_whole()
    assert len(hub_rows()) == 3


@SETTINGS
@given(content=like(state="DONE", ended=1.0))
def test_any_word_of_a_search_leaves_all_listings_working(others: Path, whole: Path, content: bytes) -> None:
    (whole / "processes").mkdir(exist_ok=True)
    (whole / "search.json").write_bytes(content)
    assert listed_whole()


@SETTINGS
@given(content=like(stamp=[1, 2], state="DONE", id="x", directory="/tmp", name="n", started=1.0, config={}))
def test_any_note_on_an_experiment_of_nni_leaves_all_listings_working(others: Path, home: Path, content: bytes) -> None:
    place = home / ".nnilite" / "nni" / "elsewhere"
    place.mkdir(parents=True, exist_ok=True)
    (place / nni_folders.COPY).write_bytes(content)
    assert listed_whole()


ROWS = st.tuples(
    *(st.one_of(st.integers(-(2**63), 2**63 - 1), st.floats(), st.text(max_size=5), st.binary(max_size=5), st.none()),),
    *(st.sampled_from(["AAAAA", "../../etc", "", 5, b"x"]),),
    *(st.sampled_from(["RUNNING", "IMPORT_DATA", "SUCCEEDED", "FINAL", "PERIODICAL", b"x", 1.5]),),
    *(
        st.one_of(
            JSON.map(json.dumps), st.sampled_from(["5", '"5"', "{", b"\xff", '{"parameters":1,"parameter_id":9e99}'])
        ),
    ),
    *(st.one_of(st.integers(-(2**63), 2**63 - 1), st.sampled_from(["9" * 5000, "1", b"1", 1e300])),),
)


@SETTINGS
@given(rows=st.lists(ROWS, min_size=1, max_size=4))
@example(rows=[(1, "AAAAA", "IMPORT_DATA", "5", 0)])
@example(rows=[(1, "AAAAA", "FINAL", "1", "9" * 5000)])
@example(rows=[(1, "AAAAA", "SUCCEEDED", '{"parameters": 1, "parameter_id": 1%s}' % ("0" * 30), 0)])
def test_any_row_of_nni_is_read_or_refused_in_a_sentence(others: Path, rows: list[tuple[object, ...]]) -> None:
    with contextlib.closing(sqlite3.connect(others / "db" / "nni.sqlite")) as db, db:
        for time, trial, event, data, number in rows:
            into = "TrialJobEvent(timestamp, trialJobId, event, data, sequenceId)"
            db.execute(f"INSERT INTO {into} VALUES (?, ?, ?, ?, ?)", (time, trial, event, data, number))
            into = "MetricData(timestamp, trialJobId, type, data, parameterId)"
            db.execute(f"INSERT INTO {into} VALUES (?, ?, ?, ?, ?)", (time, trial, event, data, number))
    assert run(["experiment", "show", "oldone12"]) in (0, 1)
    assert run(["trial", "ls", "oldone12"]) in (0, 1)
    assert listed_whole()


def test_a_trial_of_nni_has_no_folder_outside_of_its_experiment(others: Path) -> None:
    assert nni_folders.find_trial_folder(others, "AAAAA") is not None
    for name in ("../..", "..", ".", "", "/etc", "x" * 300, "\ud800"):
        assert nni_folders.find_trial_folder(others, name) is None


PLACES = [
    ".experiment",
    ".nnilite/wxyz.json",
    "abcd/manager.json",
    "abcd/remarks.json",
    "abcd/search.json",
    "abcd/token",
]
ODD: dict[str, Callable[[Path], object]] = {
    "a folder": Path.mkdir,
    "a pipe": os.mkfifo,
    "a device": lambda path: path.symlink_to("/dev/zero"),
    "a link to itself": lambda path: path.symlink_to(path),
    "nothing": lambda path: None,
    "no bytes": lambda path: path.touch(),
}


@pytest.mark.timeout(60)
@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("place", PLACES)
def test_whatever_is_in_the_place_of_a_file_the_others_are_listed(
    others: Path, home: Path, place: str, odd: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if place.endswith("search.json"):
        (home / "abcd" / "processes").mkdir()
    (home / place).unlink(missing_ok=True)
    ODD[odd](home / place)
    assert listed_whole()
    said = capsys.readouterr().err
    assert "bug in nnilite" not in said
    assert (odd == "nothing" or place.endswith("token")) or f"{home / place} ".replace("\n", "\\n") in said


def test_a_socket_in_the_place_of_a_file_is_said(
    others: Path, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(home / "abcd")
    (home / "abcd" / "manager.json").unlink()
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as sock:
        sock.bind("manager.json")
        assert listed_whole()
    assert "manager.json cannot be read now" in capsys.readouterr().err


def test_a_folder_that_may_not_be_looked_at_ends_no_listing(others: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.stat

    def refused(path: object, **rest: object) -> os.stat_result:
        if "closed" in str(path):
            raise PermissionError(13, "Permission denied", str(path))
        return real(path, **rest)  # type: ignore[arg-type]

    write_json(others.parent / nni_folders.LIST, {"a": {"logDir": "/closed"}})
    write_json(registry.find_path("wxyz"), {"id": "wxyz", "directory": "/closed/wxyz", "name": "", "platform": ""})
    monkeypatch.setattr(os, "stat", refused)
    monkeypatch.setattr(Path, "stat", refused)  # which has a reference of its own in Python 3.10
    assert listed_whole()
    assert [one.state for one in registry.entries() if one.id == "wxyz"] == ["UNREADABLE"]


def hub_rows() -> list[dict[str, object]]:
    hub = Hub()
    try:
        return hub.listed()
    finally:
        hub.close()


PROFILE = st.fixed_dictionaries(
    {}, optional=dict.fromkeys(("best", "counts", "limits", "objectives", "duration", "reason"), JSON)
)


@SETTINGS
@given(answer=st.one_of(JSON, PROFILE))
def test_any_answer_of_a_manager_is_a_digest_or_a_trouble(home: Path, answer: object) -> None:
    @contextlib.contextmanager
    def opened(*_: object, **__: object) -> Iterator[object]:
        yield type("Client", (), {"profile": lambda self: answer})()

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(digests, "opened", opened)
        found = digests._digest(registry.RegistryEntry("abcd", "", home))
    assert found.trouble == "" or found.trouble.startswith("The manager of experiment abcd gave an answer that")


@SETTINGS
@given(
    content=st.one_of(like(), like(name="n", kind="tuner", class_name="a.B", code_directory="").map(b"[%s]".__mod__))
)
@example(content=b'[{"name": 5, "kind": "tuner", "class_name": "a.B"}]')
def test_any_list_of_algorithms_is_used_or_refused_with_its_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes
) -> None:
    monkeypatch.setenv("NNI_CONFIG_DIR", str(tmp_path))
    (tmp_path / "algorithms.json").write_bytes(content)
    try:
        assert all(isinstance(one.name.lower(), str) for one in user_algorithms.registered())
    except NniliteError as error:
        assert str(tmp_path / "algorithms.json") in str(error)  # noqa: PT017
