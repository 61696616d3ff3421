"""What a browser that is signed in gives to other users of its machine, and what they can do with it: nothing."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest

from e2e.running import starting
from forwarded_port import forwarded, status_of_raw
from nnilite._running import launch
from nnilite.testing import eventually
from nnilite.testing.ports import free_port
from other_user import STRANGER, ask_all_at, request_to
from platforms.chromium import faults
from stranger import Heard, stranger

pytestmark = [pytest.mark.real, pytest.mark.timeout(180)]

DRAWS = """
import os, nnilite, zlib, struct, pathlib
def part(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
png = b"\\x89PNG\\r\\n\\x1a\\n" + part(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0))
png += part(b"IDAT", zlib.compress(b"\\0\\0\\xff\\0")) + part(b"IEND", b"")
folder = pathlib.Path(os.environ["NNI_OUTPUT_DIR"])
(folder / "a picture.png").write_bytes(png)
(folder / "notes.txt").write_text("written by the trial")
nnilite.report_final_result(nnilite.get_next_parameter()["x"])
"""
SESSION_NAME = "localStorage['nnilite-session /api/v1/']"
STORED = """
new Promise((settle, fail) => {
  const opening = indexedDB.open("nnilite", 1);
  opening.onerror = () => fail(opening.error);
  opening.onsuccess = () => {
    const all = opening.result.transaction("sessions").objectStore("sessions").getAll();
    const told = ({ name, key }) => [name, key.constructor.name, key.extractable, key.usages];
    all.onsuccess = () => settle(all.result.map(told));
  };
})
"""
READ = "fetch('/api/v1/experiment').then(answer => answer.status)"
STOP = """
fetch('/api/v1/experiment/stop', {method: 'POST', headers: {'Content-Type': 'application/json'}, body: '{}'})
  .then(answer => answer.status)
"""


def port_of(url: str) -> int:
    return urlsplit(url).port or 0


def keyed(start: Any, **config: Any) -> Any:
    """A running experiment that asks everybody for a key."""
    running = start(DRAWS, maxTrialNumber=1, requireToken=True, **config)
    running.wait("DONE")
    return running


@pytest.fixture(scope="module")
def lasting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """One that asks everybody for a key, for the tests that leave its manager and its trial as they are."""
    folder = tmp_path_factory.mktemp("lasting")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NNILITE_HOME", str(folder / "home"))
        with starting(folder) as start:
            yield keyed(start)


def signed_in(open_page: Any, link: str) -> tuple[Any, str]:
    """A page that has been signed in by a link, and the name of its session."""
    page = open_page(link)
    page.expected_errors += ["401", "421"]
    page.get_by_text("Sign out", exact=True).wait_for()
    return page, page.evaluate(SESSION_NAME)


def resumed(running: Any, port: int) -> str:
    """The address of the experiment's next manager, at this port."""
    running.entry = launch.resume(running.entry, options=launch.ManagerOptions(port=port), detach=False)
    running.client = running.connect()
    return str(running.entry.url)


def opened_by(values: set[str], url: str, method: str, path: str, body: str = "") -> set[str]:
    """What another user's program gets who sends each of these values as any kind of key."""
    about = f"Origin: http://localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    kinds = ("X-Nnilite-Session: ", "Authorization: Bearer ", "Cookie: ", "Sec-WebSocket-Protocol: ")
    headers = [f"{name}{value}\r\n{about}" for value in sorted(values) for name in kinds]
    requests = [request_to(method, path, head, body) for head in headers]
    answers = ask_all_at(("AF_INET", "127.0.0.1", port_of(url)), requests, STRANGER)
    assert len(answers) == len(requests)
    return {answer.split()[1] for answer in answers}


def test_another_users_server_gets_no_key_from_a_signed_in_browser(lasting: Any, open_page: Any) -> None:
    page, name = signed_in(open_page, lasting.client.sign_in_link())
    manager = urlsplit(page.url).netloc
    greedy = f"""<title>mine</title><iframe src="http://{manager}/"></iframe><img src="http://{manager}/icon.svg">
    <script>fetch("http://{manager}/api/v1/experiment", {{credentials: "include"}}).catch(() => fetch("/it-failed"))
    </script>"""
    with stranger(pages={"/": ("text/html", greedy)}) as other:
        for host in ("127.0.0.1", "localhost"):
            neighbour = page.context.new_page()
            neighbour.goto(f"http://{host}:{other.port}/")
        eventually(lambda: sum("it-failed" in first for first, _, _ in other.heard) == 2)
    assert name not in other.text()
    assert not any("cookie" in headers for _, headers, _ in other.heard)


def test_the_page_keeps_nothing_but_its_key_and_what_is_no_secret(lasting: Any, open_page: Any) -> None:
    page, name = signed_in(open_page, lasting.client.sign_in_link())
    assert page.context.cookies() == []
    assert page.evaluate("Object.keys(localStorage).sort()") == ["nnilite-session /api/v1/"]
    assert page.evaluate(STORED) == [[name, "CryptoKey", False, ["sign"]]], "no script can read the key out"
    assert "key=" not in page.url
    page.reload()
    page.get_by_text("Live", exact=True).wait_for()
    assert page.evaluate(SESSION_NAME) == name


def test_what_is_heard_at_a_dead_managers_port_opens_no_later_manager(start: Any, open_page: Any) -> None:
    running = keyed(start)
    page, name = signed_in(open_page, running.client.sign_in_link())
    page.get_by_text("Live", exact=True).wait_for()
    port = port_of(running.entry.url)
    running.kill_manager()
    with stranger(port) as other:
        eventually(lambda: name in other.text(), 60)
        secrets = other.values()
    for place in (port, 0):
        url = resumed(running, place)
        assert opened_by(secrets, url, "GET", "/api/v1/experiment") == {"401"}
        assert opened_by({name}, url, "POST", "/api/v1/sign-in-links", "{}") == {"401"}
        running.kill_manager()


def test_all_that_is_sent_by_a_forwarded_port_opens_nothing(lasting: Any, open_page: Any) -> None:
    """The one who has the port is not asked for a proof by the manager: both can be reached by the same machine."""
    manager = port_of(lasting.entry.url)
    with forwarded(manager) as port:
        link = lasting.client.sign_in_link().replace(f":{manager}/", f":{port.port}/")
        page, name = signed_in(open_page, link)
        page.get_by_text("Live", exact=True).wait_for()
        page.evaluate("location.hash = '#/trials'")
        page.get_by_role("link", name=lasting.trials()[0]["id"]).wait_for()
    heard = set(port.requests())
    assert any(b"/api/v1/sessions " in request for request in heard)
    assert any(b"/api/v1/stream " in request for request in heard)
    assert link.partition("#key=")[2].encode() not in b"".join(heard)
    page.expected_errors.append("module script")  # what the page loads late may ask the stranger
    # What the page asks within a second of the manager's last proof still counts: a stranger who has the port by then
    # could pass on that one request. So the page first notices that nobody is there.
    page.get_by_text("Not connected", exact=True).wait_for()
    with stranger(port.port) as other:
        eventually(lambda: name in other.text(), 60)
        page.get_by_text("Not connected", exact=True).wait_for()
    assert opened_by({name}, lasting.entry.url, "GET", "/api/v1/experiment") == {"401"}
    heard |= {request_of(one) for one in other.heard}
    told = {request.split()[1]: status_of_raw(manager, request) for request in heard if b" /api/v1/" in request}
    assert {status for path, status in told.items() if b"/proof?" not in path} == {401}
    with forwarded(manager, port.port):
        page.get_by_text("Live", exact=True).wait_for()  # who had the port meanwhile has not signed it out


def request_of(heard: Heard) -> bytes:
    """A request as it was sent."""
    first, headers, body = heard
    head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"{first}\r\n{head}\r\n{body}".encode()


WITHOUT_CRYPTO = "Object.defineProperty(crypto, 'subtle', { value: undefined })"  # as over http from another machine
SAME_HASHES = """
async () => {
  const { sha256, hmacSha256 } = await import("./lib/sha256.js");
  const different = [];
  for (let length = 0; length < 300; length += 1) {
    const [bytes, secret] = [length, length + 1].map((size) => new Uint8Array(size).map((_, at) => at * 7 + size));
    const key = await crypto.subtle.importKey("raw", secret, { name: "HMAC", hash: "SHA-256" }, false, ["sign"]);
    const wanted = [await crypto.subtle.digest("SHA-256", bytes), await crypto.subtle.sign("HMAC", key, bytes)];
    const made = [sha256(bytes), hmacSha256(secret, bytes)];
    if (wanted.some((one, at) => String(new Uint8Array(one)) !== String(made[at]))) different.push(length);
  }
  return different;
}
"""


def test_a_browser_without_functions_for_codes_signs_by_those_of_the_page(lasting: Any, open_page: Any) -> None:
    page = open_page()
    page.add_init_script(WITHOUT_CRYPTO)
    page.goto(lasting.client.sign_in_link())
    page.get_by_text("Live", exact=True).wait_for()
    page.reload()
    page.get_by_text("Live", exact=True).wait_for()
    page.get_by_text("Sign out", exact=True).wait_for()


def test_the_pages_own_hashes_are_those_of_the_browser(lasting: Any, open_page: Any) -> None:
    page, _ = signed_in(open_page, lasting.client.sign_in_link())
    assert page.evaluate(SAME_HASHES) == []


def test_a_second_window_is_signed_in_and_out_with_the_first(lasting: Any, open_page: Any) -> None:
    page, _ = signed_in(open_page, lasting.client.sign_in_link())
    second = page.context.new_page()
    second.goto(page.url)
    second.get_by_text("Live", exact=True).wait_for()
    page.get_by_role("button", name="Sign out").click()
    second.get_by_text("Please sign in").wait_for()
    page.get_by_text("Please sign in").wait_for()


def test_a_signed_in_page_loads_no_program_from_its_port_later(lasting: Any, open_page: Any) -> None:
    page, _ = signed_in(open_page, lasting.client.sign_in_link())
    page.get_by_text("Live", exact=True).wait_for()
    page.wait_for_load_state("networkidle")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.resource_type))
    for place in ("trials", f"trials/{lasting.trials()[0]['id']}", "charts/pareto", "charts/metric", "experiment"):
        page.evaluate("place => { location.hash = `#/${place}`; }", place)
        page.locator(f"nav.tabs a[aria-current=page][href^='#/{place.partition('/')[0]}']").wait_for()
        eventually(lambda: page.get_by_text("Loading …").count() == 0)
    assert "script" not in asked


def test_after_a_resume_the_page_says_what_to_do(start: Any, open_page: Any) -> None:
    running = keyed(start)
    page, name = signed_in(open_page, running.client.sign_in_link())
    page.get_by_text("Live", exact=True).wait_for()
    port = port_of(running.entry.url)
    running.kill_manager()
    resumed(running, port)
    page.get_by_text("You are signed out").wait_for()
    page.get_by_text(f"nnictl webui url {running.entry.id}").wait_for()
    assert faults(page) == []
    assert page.evaluate(SESSION_NAME) is None
    page.goto(running.client.sign_in_link())
    page.get_by_text("Live", exact=True).wait_for()
    assert page.evaluate(SESSION_NAME) not in (None, name)


def test_a_page_that_a_stranger_left_at_the_port_gets_nothing_of_the_next_manager(start: Any, open_page: Any) -> None:
    """It is of the same origin as a page of the manager would be that has no name for each start."""
    running = start(maxTrialNumber=1)
    running.wait("DONE")
    port = port_of(running.entry.url)
    page = open_page(running.entry.url)
    page.get_by_text("Live", exact=True).wait_for()
    page.expected_errors.append("421")
    page.expected_errors.append("module script")  # what the page loads late may ask the stranger
    former = urlsplit(page.url).netloc
    running.kill_manager()
    with stranger(port):
        left = [page.context.new_page() for _ in range(3)]
        for one, host in zip(left, (f"127.0.0.1:{port}", f"localhost:{port}", former), strict=True):
            one.goto(f"http://{host}/")
            one.evaluate("navigator.serviceWorker.ready.then(() => true)")
    resumed(running, port)
    assert [one.evaluate(STOP) for one in left] == [401, 401, 421]
    assert [one.evaluate("fetch('/api/v1/experiment').then(answer => answer.status)") for one in left] == [
        401,
        401,
        421,
    ]
    fresh = open_page(running.client.sign_in_link())
    fresh.get_by_text("Live", exact=True).wait_for()
    running.wait("DONE")


def test_the_own_users_browser_needs_no_key_and_gets_none(start: Any, open_page: Any) -> None:
    running = start(maxTrialNumber=1)
    running.wait("DONE")
    for address in (
        running.entry.url,
        running.client.sign_in_link(),
        running.entry.url.replace("127.0.0.1", "localhost"),
    ):
        page = open_page(address)
        page.get_by_text("Live", exact=True).wait_for()
        assert urlsplit(page.url).hostname.endswith(".localhost")
        assert "key" not in page.url
        assert page.evaluate("Object.keys(localStorage)") == []


def test_live_updates_and_downloads_work_with_a_key_alone(start: Any, open_page: Any) -> None:
    running = keyed(start)
    page, _ = signed_in(open_page, running.client.sign_in_link())
    page.get_by_text("Live", exact=True).wait_for()
    running.client.update(maxTrialNumber=2)
    page.evaluate("location.hash = '#/trials'")
    trial = eventually(lambda: running.trials()[1:] and running.trials()[1])["id"]
    page.get_by_role("link", name=trial).wait_for()
    running.wait_for(lambda: running.client.trial(trial)["state"] == "SUCCEEDED")
    page.evaluate("location.hash = '#/experiment/export'")
    for kind in ("CSV", "JSON"):
        with page.expect_download() as saving:
            page.get_by_role("link", name=kind, exact=True).click()
        assert trial in saving.value.path().read_text()


def test_a_trials_files_are_seen_with_a_key_alone(lasting: Any, open_page: Any) -> None:
    page, _ = signed_in(open_page, lasting.client.sign_in_link())
    page.evaluate("trial => { location.hash = `#/trials/${trial}?tab=files`; }", lasting.trials()[0]["id"])
    picture = page.locator("figure img")
    picture.wait_for()
    assert picture.evaluate("image => image.decode().then(() => image.naturalWidth)") == 1
    with page.context.expect_page() as opening:
        page.get_by_role("link", name="notes.txt").click()
    opening.value.get_by_text("written by the trial").wait_for()
    opening.value.reload()
    opening.value.get_by_text("sign in first").wait_for()  # a ticket is used once


def test_signing_out_ends_the_session(lasting: Any, open_page: Any) -> None:
    page, name = signed_in(open_page, lasting.client.sign_in_link())
    page.get_by_role("button", name="Sign out").click()
    page.get_by_text("Please sign in").wait_for()
    assert page.evaluate(SESSION_NAME) is None
    assert opened_by({name}, lasting.entry.url, "GET", "/api/v1/experiment") == {"401"}


@contextmanager
def hub(*words: str) -> Iterator[str]:
    """The address that `nnictl ui` prints."""
    command = [sys.executable, "-m", "nnilite._cli", "ui", "--json", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            yield json.loads("".join(server.stdout.readline() for _ in range(3)))["url"]
        finally:
            server.send_signal(signal.SIGINT)
            assert server.wait(60) == 0


@pytest.mark.long  # its sessions are those of a manager, which are tested above every day
def test_what_is_heard_at_a_dead_hubs_port_starts_no_command(start: Any, open_page: Any) -> None:
    keyed(start)
    with hub("--port", str(free_port()), "--require-token") as link:
        page, name = signed_in(open_page, link)
    with stranger(port_of(link)) as other:
        eventually(lambda: name in other.text(), 60)
    body = json.dumps({"text": "trialCommand: id", "folder": "/tmp"})
    with hub("--port", str(port_of(link)), "--require-token") as again:
        for method, path, sent in (("GET", "experiments", ""), ("POST", "experiments", body), ("POST", "checks", body)):
            assert opened_by({name}, again, method, f"/api/v1/{path}", sent) == {"401"}
        page.get_by_text("You are signed out").wait_for()
        page.get_by_text("nnictl ui", exact=True).wait_for()


@pytest.mark.long
def test_a_page_that_a_stranger_left_at_the_hubs_port_starts_no_command(start: Any, open_page: Any) -> None:
    start(maxTrialNumber=1)
    with hub("--port", str(free_port())) as address:
        page = open_page(address)
        page.expected_errors.append("421")  # the next hub has another name, and this page may ask it
        page.get_by_text("1 experiment", exact=False).first.wait_for()
    with stranger(port_of(address)):
        left = open_page(f"http://127.0.0.1:{port_of(address)}/")
        left.expected_errors.append("401")
        left.evaluate("navigator.serviceWorker.ready.then(() => true)")
    with hub("--port", str(port_of(address))):
        begin = STOP.replace("experiment/stop", "experiments")
        assert left.evaluate(begin) == 401


def test_an_experiment_is_opened_from_the_hub_by_a_link_of_its_own(start: Any, open_page: Any) -> None:
    running = keyed(start)
    with hub("--port", "0", "--require-token") as link:
        page, name = signed_in(open_page, link)
        with page.context.expect_page() as opening:
            page.locator(".name-cell .link").click()
        opened = opening.value
        opened.get_by_text("Live", exact=True).wait_for()
        assert opened.evaluate(SESSION_NAME) not in (None, name)
        assert opened.evaluate("opener") is None
        assert urlsplit(opened.url).port == port_of(running.entry.url)
