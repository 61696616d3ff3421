"""Other users of the manager's machine: what they may ask, and what they get at its port when it has died."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from impostor import impostor, insistent
from nnilite import _registry
from nnilite._running import launch, managers
from other_user import STRANGER, ask_at

REPORTS = """
import nnilite, pathlib, time
nnilite.report_intermediate_result(0.125)
while not pathlib.Path(__file__).with_name("heard").exists():
    time.sleep(0.02)
nnilite.report_intermediate_result(0.625)
while not pathlib.Path(__file__).with_name("go").exists():
    time.sleep(0.02)
nnilite.report_final_result(0.875)
"""


def status(url: str, user: str | None = None) -> str:
    """What `GET /` gives a program of this user that sends no token."""
    parts = urlsplit(url)
    place = ("AF_INET", parts.hostname or "", parts.port or 0)
    return ask_at(place, "GET", f"{parts.path}/", user=user).split()[1]


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="the kernel lists no sockets here")
def test_on_this_machine_the_own_user_needs_no_token_and_others_do(start: Any) -> None:
    running = start(maxTrialNumber=1)
    assert managers.page_address(running.entry) == running.entry.url
    assert status(running.entry.url) == "200"
    assert status(running.entry.url, STRANGER) == "401"


@pytest.mark.parametrize(("always", "prefix"), [(True, ""), (False, "behind/a-proxy")])
def test_where_a_token_is_always_needed_the_address_signs_in(start: Any, always: bool, prefix: str) -> None:
    running = start(maxTrialNumber=1, requireToken=always)
    if prefix:
        running.stop()
        options = launch.ManagerOptions(port=0, url_prefix=prefix)
        running.entry = launch.resume(running.entry, options=options, detach=False)
    assert status(running.entry.url) == "401"
    page = managers.page_address(running.entry)
    assert re.fullmatch(re.escape(f"{running.entry.url}/?token=") + r"[\w-]{20,}", page)


def test_who_takes_a_dead_managers_port_gets_no_result_and_ends_no_trial(start: Any) -> None:
    running = start(REPORTS, maxTrialNumber=1)
    running.wait_for(lambda: list(running.client.metrics()))
    secret = launch.token(running.entry)
    code = Path(running.client.profile()["config"]["trialCodeDirectory"])
    (spec,) = running.directory.glob("trials/*/0/spec.json")
    port = running.entry.port
    running.kill_manager()
    with impostor(insistent(200), port) as stranger:
        (code / "heard").touch()
        running.wait_for(lambda: len(stranger.heard) > 3)
    said = "".join(stranger.heard)
    token = re.search(r'"token": "(\w+)"', spec.read_text())
    assert token is not None
    assert [word for word in (token[1], secret, "0.625", "POST", "Authorization") if word in said] == []
    again = running.resume()
    (code / "go").touch()
    again.wait("DONE")
    assert [metric["value"] for metric in again.client.metrics()] == [0.125, 0.625, 0.875]
    assert [len(again.client.trial(trial["id"])["attempts"]) for trial in again.trials()] == [1]
    again.entry = _registry.find(again.entry.id)
    again.stop()
