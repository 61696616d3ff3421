"""The server of the page of all experiments: its sign-in rules, and what is checked of what it is sent."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import threading
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from manager.rest_server import Client, Reply, serving_application
from many_experiments import stopped
from nni_experiment import NniFolder
from nni_experiment import make as make_nni
from nnilite import Search
from nnilite._experiments import registry
from nnilite._experiments.documents import write_json
from nnilite._experiments.registry import RegistryEntry
from nnilite._hub import digests, hub_server
from nnilite._hub.comparison import _points
from nnilite._hub.digests import Digest
from nnilite._hub.handlers import reachable
from nnilite._hub.hub import Hub
from nnilite._hub.hub_server import make_application
from nnilite._running.launch import ManagerOptions
from nnilite.errors import Conflict, NniliteError
from nnilite.testing import eventually
from page_session import PageSession, trade
from stand_in_manager import PROFILE, StandIn, stand_in_manager

REMARKS = {"name": "new name", "tags": ["baseline", "wide"], "note": "better than\nthe last", "revision": 0}
TOKEN = "a token for the page of all experiments"


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    """A server that requires its token from everybody, with one stopped experiment `first`."""
    monkeypatch.setenv("NNILITE_HOME", str(tmp_path / "home of 'all' $HOME"))
    stopped("first", "the first one")
    found = Hub()
    with serving_application(lambda: make_application(found, TOKEN, ManagerOptions(), require_token=True)) as (
        application,
        port,
        loop,
    ):
        yield Client(cast(Any, SimpleNamespace(token=TOKEN)), port, application, loop)
    found.close()


def listed(hub: Client) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = hub.get("/experiments").json["experiments"]
    return found


def test_an_experiment_whose_manager_died_is_not_called_stopped(hub: Client) -> None:
    write_json(registry.find("first").directory / "manager.json", {"state": "RUNNING"})
    (found,) = listed(hub)
    assert (found["state"], found["canResume"]) == ("UNKNOWN", True)


def digest(hub: Client, experiment: str = "first") -> dict[str, Any]:
    """The digest of an experiment once it has been read."""

    def known() -> dict[str, Any] | None:
        return next(one["digest"] for one in listed(hub) if one["id"] == experiment)

    eventually(known, 60)
    return known() or {}


PATHS = (
    *(("GET", path) for path in ("/api/v1/experiments", "/api/v1/comparison?id=first")),
    *(("POST", f"/api/v1/{path}") for path in ("experiments", "checks", "experiments/first/open", "sign-in-links")),
    *(("DELETE", "/api/v1/experiments/first"), ("PUT", "/api/v1/experiments/first")),
)


@pytest.mark.parametrize(("method", "path"), PATHS)
def test_nothing_is_served_without_a_sign_in_or_with_a_wrong_token(hub: Client, method: str, path: str) -> None:
    for bad in ("", "Bearer wrong"):
        reply = hub.ask(method, path, b"{}", Authorization=bad)
        assert reply.status == 401
        assert b"nnictl ui" in reply.body
    assert hub.ask("GET", "/api/v1/experiments", Cookie="nnilite-.ui=1.2", Authorization="").status == 401
    assert registry.entry("first") is not None


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Sec_Fetch_Site": "cross-site"},
    ],
)
def test_requests_from_other_sites_are_refused_even_with_the_token(hub: Client, headers: dict[str, str]) -> None:
    assert hub.ask("DELETE", "/api/v1/experiments/first", **headers).status == 403
    assert registry.entry("first") is not None


def test_a_link_signs_in_once_and_the_key_opens_the_page_for_its_own_origin(hub: Client) -> None:
    link = hub.post("/sign-in-links", {}).json["path"].removeprefix("/#key=")
    page = PageSession(hub.ask, link)
    assert hub.post("/sessions", trade(link)[0], Authorization="").status == 401
    assert page.get("/experiments").status == 200
    delete = page.headers("DELETE", "/experiments/first")
    assert hub.ask("DELETE", "/api/v1/experiments/first", **delete).status == 403, "a browser says its origin"
    assert b"hub/app.js" in hub.ask("GET", "/", Authorization="").body
    hub.run(lambda: hub.application.context.gate.sign_in.sign_out(page.name))
    assert page.get("/experiments").status == 401


def test_the_list_tells_of_stopped_experiments_and_of_those_of_nni(hub: Client) -> None:
    folder = make_nni(registry.root(), NniFolder("oldone12"))
    before = sorted(path.name for path in folder.rglob("*"))
    assert {one["id"]: one["madeBy"] for one in listed(hub)} == {"first": "nnilite", "oldone12": "nni"}
    known = digest(hub)
    assert (sum(known["counts"].values()), known["maxTrials"], known["trouble"]) == (12, 12, "")
    assert known["best"] == pytest.approx(0.96, abs=0.1)
    assert digest(hub, "oldone12")["trouble"] == ""
    for method, verb, body in (("DELETE", "", None), ("POST", "/resume", {}), ("PUT", "", REMARKS)):
        reply = hub.ask(method, f"/api/v1/experiments/oldone12{verb}", body)
        assert (reply.status, "Microsoft NNI" in reply.json["error"]) == (409, True)
    assert sorted(path.name for path in folder.rglob("*")) == before


def test_an_experiment_that_cannot_be_read_says_why_and_hides_no_other(hub: Client) -> None:
    (stopped("broken", "a broken one") / "nnilite.sqlite").write_bytes(b"no database")
    (registry.root() / ".nnilite" / "lost.json").write_text("{")
    assert "nnilite.sqlite" in digest(hub, "broken")["trouble"]
    states = {one["id"]: (one["state"], bool(one["damage"])) for one in listed(hub)}
    assert states == {"first": ("STOPPED", False), "broken": ("STOPPED", False), "lost": ("DAMAGED", True)}


def test_a_deletion_takes_the_folder_and_nothing_that_does_not_look_like_one(hub: Client, tmp_path: Path) -> None:
    elsewhere = tmp_path / "mine"
    elsewhere.mkdir()
    registry.add("odd", "", elsewhere, "local", 1.0)
    assert "is left alone" in hub.ask("DELETE", "/api/v1/experiments/odd").json["error"]
    assert elsewhere.is_dir()
    assert hub.ask("DELETE", "/api/v1/experiments/first").json == {"deleted": "first"}
    assert not (registry.root() / "first").exists()
    assert registry.entry("first") is None
    assert hub.ask("DELETE", "/api/v1/experiments/first").status == 404


def test_an_experiment_with_a_manager_is_not_deleted_and_one_without_is_not_stopped(hub: Client) -> None:
    with registry.lock(registry.root() / "first"):
        reply = hub.ask("DELETE", "/api/v1/experiments/first")
        assert (reply.status, "stop it before" in reply.json["error"]) == (409, True)
    assert hub.post("/experiments/first/stop", {}).status == 409


@pytest.mark.parametrize(
    "path", ["/experiments/..%2Fhome", "/experiments/.nnilite", "/experiments/fir", "/experiments/x%0a"]
)
def test_ids_that_are_none_or_only_begin_like_one_are_not_found(hub: Client, path: str) -> None:
    assert hub.ask("DELETE", f"/api/v1{path}").status == 404
    assert registry.entry("first") is not None


def test_name_tags_and_note_are_kept_beside_the_experiment_and_listed_everywhere(hub: Client) -> None:
    assert hub.ask("PUT", "/api/v1/experiments/first", REMARKS).json == {"revision": 1}
    found = listed(hub)[0]
    assert (found["name"], found["tags"], found["note"]) == ("new name", ["baseline", "wide"], "better than\nthe last")
    assert registry.find("first").name == "new name"
    again = hub.ask("PUT", "/api/v1/experiments/first", {**REMARKS, "name": "", "tags": [], "revision": 1})
    assert again.json == {"revision": 2}
    assert registry.find("first").name == "the first one"


def test_remarks_that_somebody_has_changed_meanwhile_are_not_overwritten(hub: Client) -> None:
    assert hub.ask("PUT", "/api/v1/experiments/first", REMARKS).status == 200
    late = hub.ask("PUT", "/api/v1/experiments/first", {**REMARKS, "name": "another"})
    assert (late.status, "in the meantime" in late.json["error"]) == (409, True)
    assert listed(hub)[0]["name"] == "new name"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("name", bad) for bad in (3, "x" * 201, "two\nlines")),
        *(("tags", bad) for bad in ("word", [3], [""], ["x" * 41], ["a"] * 21)),
        *(("note", bad) for bad in (None, "x" * 20_001)),
        *(("revision", bad) for bad in ("0", True, 1.0)),
    ],
)
def test_bad_remarks_are_refused_with_their_field(hub: Client, field: str, value: object) -> None:
    reply = hub.ask("PUT", "/api/v1/experiments/first", {**REMARKS, field: value})
    assert (reply.status, reply.json["field"]) == (400, field)
    assert not (registry.root() / "first" / "remarks.json").exists()


def test_damaged_remarks_are_told_and_neither_hide_the_experiment_nor_are_overwritten(hub: Client) -> None:
    path = registry.root() / "first" / "remarks.json"
    path.write_text('{"tags": 3}')
    found = listed(hub)[0]
    assert (found["name"], found["damage"], "remove it" in found["trouble"]) == ("the first one", "", True)
    assert hub.ask("PUT", "/api/v1/experiments/first", REMARKS).status == 409
    assert path.read_text() == '{"tags": 3}'


def test_the_line_of_a_comparison_goes_on_to_the_last_result_whatever_it_was() -> None:
    values = [1.0, 3.0, 2.0, {"other": 1}, 9.0]
    trials = [{"value": value, "ended": 10.0 + number} for number, value in enumerate(values)]
    trials[-1]["violates"] = "latency <= 20 (25)"
    assert _points(trials, "default", "maximize", 10.0)[0] == [[1, 0.0, 1.0], [2, 1.0, 3.0], [5, 4.0, 3.0]]


def test_a_comparison_has_the_best_so_far_of_each(hub: Client) -> None:
    stopped("second", "", trials=30)
    found = hub.get("/comparison?id=first&id=second&id=first").json["experiments"]
    assert [one["id"] for one in found] == ["first", "second"]
    for one in found:
        bests = [best for _, _, best in one["points"]]
        assert bests == sorted(bests)
        assert one["best"]["value"] == bests[-1]
        assert one["points"][-1][0] == one["counts"]["SUCCEEDED"]
    assert hub.get("/comparison?id=gone").status == 404
    assert hub.get("/comparison").status == 400
    assert hub.get("/comparison?" + "&".join(f"id=x{n}" for n in range(11))).status == 400


def test_a_configuration_is_given_without_secrets_for_another_experiment(hub: Client) -> None:
    draft = hub.get("/experiments/first/config").json
    assert "trialCommand: sleep 60" in draft["text"]
    answer = check(hub, draft["text"], draft["folder"])
    assert answer.json["faults"] == []
    (compared,) = hub.get("/comparison?id=first").json["experiments"]
    assert compared["config"]["trialCommand"] == "sleep 60"
    assert hub.get("/experiments/gone/config").status == 404


def check(hub: Client, text: str, folder: object) -> Reply:
    return hub.post("/checks", {"text": text, "folder": folder})


def test_a_config_is_checked_with_the_lines_of_its_faults_and_nothing_is_started(hub: Client, tmp_path: Path) -> None:
    text = "searchSpace: {x: {_type: uniform, _value: [1, 0]}}\ntrialComand: x\ntrialConcurrency: many\n"
    faults = check(hub, text, str(tmp_path)).json["faults"]
    lines = {fault["line"]: fault["field"] for fault in faults}
    assert {2: "trialComand", 3: "trialConcurrency"}.items() <= lines.items()
    assert [one["id"] for one in listed(hub)] == ["first"]
    assert hub.post("/experiments", {"text": text, "folder": str(tmp_path)}).status == 400


@pytest.mark.parametrize("folder", ["", "relative", "/nowhere/at/all", "/\0", "~nobody-here", "/" + "x" * 5000])
def test_a_folder_that_is_none_is_a_fault_of_the_folder(hub: Client, folder: str) -> None:
    assert check(hub, "a: 1", folder).json["faults"][0]["field"] == "folder"


@pytest.mark.parametrize(("text", "folder"), [(3, "/tmp"), ("a: 1", None)])
def test_a_draft_of_the_wrong_shape_is_refused(hub: Client, text: Any, folder: Any) -> None:
    assert check(hub, text, folder).status == 400


def test_a_text_that_is_no_yaml_has_its_line(hub: Client, tmp_path: Path) -> None:
    fault = check(hub, "a: 1\nb: [", str(tmp_path)).json["faults"][0]
    assert fault["line"] in (2, 3)
    assert "YAML" in fault["message"]


@pytest.mark.parametrize(
    ("link", "host", "wanted"),
    [
        ("http://127.0.0.1:8080/#key=x", "localhost:8070", "http://127.0.0.1:8080/#key=x"),
        ("http://127.0.0.1:8080/#key=x", "[::1]:8070", "http://127.0.0.1:8080/#key=x"),
        ("http://127.0.0.1:8080/p/#key=x", "lab.example:8070", "http://lab.example:8080/p/#key=x"),
        ("https://lab:8080/", "other:8070", "https://lab:8080/"),
    ],
)
def test_an_experiment_is_opened_where_the_browser_has_found_the_page(link: str, host: str, wanted: str) -> None:
    assert reachable(link, host) == wanted


def test_an_experiment_behind_the_same_proxy_is_opened_through_it() -> None:
    assert reachable("http://127.0.0.1:8080/team/one/#key=x", "lab.example:443", "/team/hub") == "/team/one/#key=x"


def test_an_experiment_that_the_proxy_does_not_serve_is_not_opened_past_it() -> None:
    with pytest.raises(Conflict, match=r"port 8080 of .* which the proxy does not serve\. Forward it \(`ssh -L 8080:"):
        reachable("http://127.0.0.1:8080/#key=x", "lab.example:443", "/team/hub")
    assert reachable("http://127.0.0.1:8080/#key=x", "localhost:8070", "/team/hub") == "http://127.0.0.1:8080/#key=x"


def test_only_what_a_manager_made_can_be_resumed(hub: Client) -> None:
    assert {one["id"]: one["canResume"] for one in listed(hub)}["first"]
    Search({"x": {"_type": "uniform", "_value": [0, 1]}}, tuner="Random", storage=registry.root() / "mine").ask()
    assert not {one["id"]: one["canResume"] for one in listed(hub)}["mine"]


def test_the_end_waits_for_what_is_being_read(hub: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def slow(entry: RegistryEntry) -> Digest:
        begun.set()
        go_on.wait(60)
        return Digest()

    monkeypatch.setattr(digests, "_digest", slow)
    found = digests.Digests()
    found.read_known(registry.list_all())
    assert begun.wait(60)
    closing = threading.Thread(target=found.close)
    closing.start()
    closing.join(0.2)
    assert closing.is_alive()
    go_on.set()
    closing.join(60)
    assert not closing.is_alive()


def test_the_end_does_not_wait_for_a_manager_that_hangs(hub: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go_on, asked = threading.Event(), threading.Event(), []

    def hang(entry: RegistryEntry) -> Digest:
        asked.append(entry.id)
        begun.set()
        go_on.wait(60)
        return Digest()

    monkeypatch.setattr(digests, "_digest", hang)
    found = digests.Digests()
    with managing("first"):
        [entry] = registry.list_all()
        found.read_known([entry, replace(entry, id="second")])
        assert begun.wait(60)
        found.close()
        assert not go_on.is_set()
    go_on.set()
    assert asked == ["first"]


def test_a_page_that_asks_while_the_hub_is_being_closed_gets_what_is_known(hub: Client) -> None:
    found = digests.Digests()
    found.close()
    assert found.read_known(registry.list_all()) == {}


@contextmanager
def managing(experiment: str) -> Iterator[StandIn]:
    """A stand-in for the manager of an experiment."""
    folder = registry.root() / experiment
    with stand_in_manager() as manager, registry.lock(folder):
        (folder / "token").write_text("x" * 43)
        write_json(folder / "manager.json", {"state": "RUNNING", "url": manager.url})
        yield manager


ODD_PROFILES = (
    *({**PROFILE, "counts": counts} for counts in ("abc", 5, None, {"FAILED": {}})),
    *({**PROFILE, "objectives": objectives} for objectives in ("abc", 3, None)),
    *({**PROFILE, **part} for part in ({"best": [1]}, {"limits": []}, {"duration": "<b>"})),
    *([], None, "x", {}),
)


@pytest.mark.parametrize("answer", ODD_PROFILES)
def test_a_manager_whose_answers_make_no_sense_hides_no_other_experiment(hub: Client, answer: object) -> None:
    with managing("first") as manager:
        manager.says("GET /experiment", answer)
        stopped("second", "")
        assert digest(hub, "second")["trouble"] == ""
        assert "does not understand" in digest(hub)["trouble"]


@pytest.mark.parametrize("answer", [{**PROFILE, "objectives": {}}, {**PROFILE, "best": [1]}, [], {}])
def test_a_comparison_with_answers_that_make_no_sense_says_so(hub: Client, answer: object) -> None:
    with managing("first") as manager:
        manager.says("GET /experiment", answer)
        assert "does not understand" in hub.get("/comparison?id=first").json["error"]


@pytest.mark.parametrize(
    "link",
    [
        *({"path": "/#key=1", "host": host} for host in ("evil.example", "nnilite-0.localhost.evil.example", 3)),
        *({"path": path, "host": ""} for path in ("@evil.example/", ".evil.example/", None, 3)),
        *([], None, {}),
    ],
)
def test_a_manager_leads_the_browser_nowhere_else(hub: Client, link: object) -> None:
    with managing("first") as manager:
        manager.says("POST /sign-in-links", link)
        assert "no link to its page" in hub.post("/experiments/first/open", {}).json["error"]


def test_the_list_waits_for_no_manager_that_hangs(hub: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go_on = threading.Semaphore(0), threading.Event()
    asked = min(32, (os.cpu_count() or 1) + 4)  # as many threads as Python has for blocking calls

    def hang(*_: object) -> str:
        begun.release()
        go_on.wait(60)
        return "http://127.0.0.1:1/"

    monkeypatch.setattr(Hub, "open", hang)
    with ThreadPoolExecutor(asked) as pages:
        opened = [pages.submit(hub.post, "/experiments/first/open", {}) for _ in range(asked)]
        assert all(begun.acquire(timeout=60) for _ in opened)
        try:
            assert [one["id"] for one in listed(hub)] == ["first"]
        finally:
            go_on.set()


def test_a_digest_for_which_there_is_no_thread_is_read_later(hub: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    found = digests.Digests()
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse_thread)
        assert found.read_known(registry.list_all()) == {}
    eventually(lambda: "first" in found.read_known(registry.list_all()), 60)
    found.close()


def refuse_thread(_: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


def test_a_disk_that_failed_for_a_moment_is_read_again(hub: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digests, "AGAIN_S", 0.0)
    with monkeypatch.context() as patched:
        patched.setattr(digests, "_digest", lambda entry: Digest(trouble="disk I/O error"))
        assert digest(hub)["trouble"] == "disk I/O error"
    eventually(lambda: digest(hub)["trouble"] == "", 60)


def test_a_full_disk_is_told_to_the_person_with_its_place(hub: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", refuse)  # as a failed write, it does not name its file
        reply = hub.ask("PUT", "/api/v1/experiments/first", REMARKS)
    folder = registry.root() / "first"
    assert reply.json == {
        "error": f"{folder / 'remarks.json'}: No space left on device; free some disk space, then try again."
    }
    assert not [path for path in folder.iterdir() if "remarks" in path.name]


def test_the_folder_of_the_token_is_closed_to_others(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("NNILITE_HOME", str(tmp_path))
    hub_server.folder().mkdir(parents=True)
    hub_server.folder().chmod(0o755)
    hub_server.run(ManagerOptions(), require_token=False, ready=lambda _: os.kill(os.getpid(), signal.SIGTERM))
    assert hub_server.folder().stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(
    ("method", "path", "asks"),
    [
        ("POST", "experiments/first/open", "open"),
        ("POST", "experiments/first/stop", "stop"),
        ("POST", "experiments/first/resume", "resume"),
        ("GET", "comparison?id=first", "chosen"),
    ],
)
def test_its_end_waits_for_no_manager_that_hangs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, method: str, path: str, asks: str
) -> None:
    begun, go_on, ended = threading.Event(), threading.Event(), threading.Event()

    def hang(*_: object) -> None:
        begun.set()
        go_on.wait(20)
        ended.set()

    def interrupt(address: str) -> None:
        body = b"{}" if method == "POST" else None
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"{address}api/v1/{path}", body, headers, method=method)
        with ThreadPoolExecutor(1) as page:
            answer = page.submit(urllib.request.urlopen, request, timeout=60)
            begun.wait(60)
            os.kill(os.getpid(), signal.SIGTERM)
            assert isinstance(answer.exception(60), OSError)

    monkeypatch.setenv("NNILITE_HOME", str(tmp_path))
    monkeypatch.setattr(Hub, asks, hang)
    page = ThreadPoolExecutor(1)
    try:
        hub_server.run(ManagerOptions(port=0), require_token=False, ready=lambda url: page.submit(interrupt, url))
        assert (begun.is_set(), ended.is_set()) == (True, False)
    finally:
        go_on.set()
        page.shutdown()


def test_a_disk_without_locks_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setenv("NNILITE_HOME", str(tmp_path))
    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(NniliteError, match=r"hub/lock cannot be locked \(No locks available\)"):
        hub_server.run(ManagerOptions(), require_token=False, ready=print)


def test_a_failure_without_a_status_of_its_own_is_in_the_log(
    hub: Client, monkeypatch: pytest.MonkeyPatch, kept_log: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise NniliteError("the list of experiments is out of reach")

    monkeypatch.setattr(Hub, "listed", fail)
    assert hub.get("/experiments").status == 500
    [line] = [one for one in kept_log.records if "out of reach" in one.message]
    assert line.levelname == "ERROR"
