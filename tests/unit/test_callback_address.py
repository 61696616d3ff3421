"""Where the machines of a platform reach the manager."""

from __future__ import annotations

import socket
from types import SimpleNamespace

import pytest

from nnilite.errors import ConfigError, NoCapacity, ServiceError
from nnilite.services import callback_address as module
from nnilite.services.callback_address import CallbackAddress, ExternalCallbackAddress

PLATFORM = "https://platform.example:6443"


def context(url, top=None, by_log=False):
    defaults = {"nniManagerIp": top} if top else {}
    return SimpleNamespace(callback_url=lambda: url, defaults=defaults, reports_by_log=by_log)


def ways(monkeypatch, **known):
    """By which of this machine's addresses it goes to the platform, and to everywhere else."""
    table = {"platform.example": known["platform"], "192.0.2.1": known.get("elsewhere", "10.0.0.7")}
    monkeypatch.setattr(module, "_address_towards", lambda host, port: table[host])


@pytest.mark.parametrize(
    ("url", "given", "top", "expected"),
    [
        ("http://127.0.0.1:8080", "10.0.0.5", "10.0.0.6", "http://10.0.0.5:8080"),
        ("http://127.0.0.1:8080", None, "10.0.0.6", "http://10.0.0.6:8080"),
        ("https://127.0.0.1:8080/nni", "fd00::1", None, "https://[fd00::1]:8080/nni"),
        ("http://10.0.0.9:8080/x", None, None, "http://10.0.0.9:8080/x"),
        ("http://localhost:8080", None, None, "http://10.0.0.3:8080"),
        ("http://[::1]:8080", None, None, "http://10.0.0.3:8080"),
    ],
)
def test_the_address_is_given_or_the_managers_own_or_found(monkeypatch, url, given, top, expected):
    ways(monkeypatch, platform="10.0.0.3")
    assert CallbackAddress(context(url, top), given, PLATFORM).find() == expected


def test_a_platform_on_this_machine_has_containers_that_reach_it_by_another_address(monkeypatch):
    ways(monkeypatch, platform="127.0.0.1")
    assert CallbackAddress(context("http://127.0.0.1:8080"), None, PLATFORM).find() == "http://10.0.0.7:8080"


def test_a_machine_without_a_way_to_the_platform_says_so():
    with pytest.raises(ServiceError, match=r"this machine has no way to nobody\.invalid"):
        CallbackAddress(context("http://127.0.0.1:8080"), None, "https://nobody.invalid").find()


@pytest.mark.parametrize(
    ("way", "cure"),
    [
        ("127.0.0.1", r"which is their own container; set nniManagerIp to an address .* or set callback: log"),
        ("127.0.0.9", r"which is their own container"),
        ("nobody.invalid", r"start it with --host 0\.0\.0\.0, or set nniManagerIp .* or set callback: log"),
    ],
)
def test_a_manager_that_trials_cannot_reach_is_told_what_would_help(monkeypatch, way, cure):
    ways(monkeypatch, platform=way, elsewhere=way)
    address = CallbackAddress(context("http://127.0.0.1:8080"), None, PLATFORM)
    with pytest.raises(
        ConfigError, match=rf"nniManagerIp: trials would connect to the manager at {way}:8080, .*{cure}"
    ):
        address.check()
    with pytest.raises(NoCapacity, match=cure):
        address.find_or_wait()
    CallbackAddress(context("http://127.0.0.1:8080", by_log=True), None, PLATFORM).check()


def test_an_address_that_is_given_is_not_doubted():
    """It may be that of a proxy, which this machine cannot reach."""
    address = CallbackAddress(context("http://127.0.0.1:9"), "nobody.invalid", PLATFORM)
    address.check()
    assert address.find_or_wait() == "http://nobody.invalid:9"
    CallbackAddress(context("http://10.0.0.9:9"), None, PLATFORM).check()


def test_a_manager_that_listens_there_is_reachable(monkeypatch):
    here = "0.0.0.0"
    with socket.create_server((here, 0)) as listening:
        ways(monkeypatch, platform=here)
        port = listening.getsockname()[1]
        manager = context(f"http://127.0.0.1:{port}")
        assert CallbackAddress(manager, None, PLATFORM).find_or_wait() == f"http://{here}:{port}"


@pytest.mark.parametrize(
    ("url", "given", "found"),
    [
        ("http://127.0.0.1:8080", "::1", "http://[::1]:8080"),
        ("http://127.0.0.1:8080", "nni.example.org", "http://nni.example.org:8080"),
        ("https://nni.example.org/x", None, "https://nni.example.org/x"),
    ],
)
def test_far_away_an_address_is_the_given_one_or_the_managers_own(url, given, found):
    address = ExternalCallbackAddress(context(url), given, "Azure's nodes")
    address.check()
    assert (address.find(), address.find_or_wait()) == (found, found)


def test_far_away_an_address_that_nobody_gave_is_asked_for():
    address = ExternalCallbackAddress(context("http://127.0.0.1:8080"), None, "Azure's nodes")
    refusal = r"Azure's nodes cannot reach this manager at 127\.0\.0\.1:8080; set `callback: log`"
    with pytest.raises(ConfigError, match=refusal):
        address.check()
    with pytest.raises(NoCapacity, match=refusal):
        address.find_or_wait()
    ExternalCallbackAddress(context("http://127.0.0.1:8080", by_log=True), None, "Azure's nodes").check()
