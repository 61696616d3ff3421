"""Webhooks are told what happened, in order and signed, also by a process after one that failed or was killed."""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from standardwebhooks.webhooks import Webhook

from nnilite._engine import messages
from nnilite._store.writer import Store
from nnilite._webhooks.__main__ import WebhookSender
from nnilite._webhooks.webhook_events import WebhookEventReader
from nnilite.config import WebhookConfig, from_dict, load
from nnilite.errors import ConfigError
from nnilite.records import ExperimentState, Json, Trial, TrialState
from nnilite.testing.listener import Handler, Listener
from nnilite.units import SecretText

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


class _Hook(Handler):
    owner: Inbox

    def do_POST(self) -> None:
        body = self.body()
        status = self.owner.statuses.pop(0) if self.owner.statuses else 200
        if status < 300:
            self.owner.got.append((dict(self.headers), body))
        if self.owner.odd_answer:
            self.wfile.write(self.owner.odd_answer)
        else:
            self.send(status, "text/plain", b"thank you")


class Inbox:
    """What an address was sent; it answers `statuses` first, and then 200."""

    def __init__(self) -> None:
        self.got: list[tuple[dict[str, str], bytes]] = []
        self.statuses: list[int] = []
        self.odd_answer = b""
        self.listener = Listener(_Hook, self)

    @property
    def told(self) -> list[str]:
        return [headers["webhook-id"].removeprefix("abcd-") for headers, _ in self.got]


@pytest.fixture
def inbox() -> Iterator[Inbox]:
    made = Inbox()
    made.listener.start()
    yield made
    made.listener.stop()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with contextlib.closing(Store.create(tmp_path / "nnilite.sqlite", "abcd", 1.0)) as made:
        yield made


@contextlib.contextmanager
def teller(store: Store, inbox: Inbox, **fields: Any) -> Iterator[WebhookSender]:
    """What one process does; the position stays."""
    hook = WebhookConfig(SecretText(f"{inbox.listener.url}/services/T0KEN?sig=a%2Bb"), **fields)
    news = WebhookEventReader(store.path, "abcd", "digits", True)
    with contextlib.closing(news):
        yield WebhookSender(hook, news, store.path.with_name("0.json"), "webhook 1")


def trial(number: int, value: Json = None, reason: str = "", violates: str = "") -> messages.SaveTrial:
    state = TrialState.FAILED if value is None else TrialState.SUCCEEDED
    fields: dict[str, Any] = {"state": state, "reason": reason, "created": 1.0, "ended": 9.0, "value": value}
    fields["violates"] = violates
    return messages.SaveTrial(Trial(f"T{number}", number, {"lr": number}, number, **fields))


def end(state: ExperimentState = ExperimentState.DONE) -> messages.SaveExperiment:
    return messages.SaveExperiment(state, "", 5.0, 9.0, messages.Settings(1))


def test_each_best_result_failure_and_the_end_are_told_once_and_in_order(store: Store, inbox: Inbox) -> None:
    store.write([trial(0, 0.5)])
    store.write([trial(1, 0.4), trial(2, reason="exit code 1")])
    with teller(store, inbox) as process:
        assert process.step()
        store.write([trial(2, reason="exit code 1"), trial(3, 0.9)])
        assert process.step()
    with teller(store, inbox) as process:
        store.write([end()])
        assert process.step()
        assert process.step()
    assert inbox.told == ["best-T0", "failure-T2", "best-T3", "end-1"]
    best = json.loads(inbox.got[2][1])
    assert (best["type"], best["data"]["trial"]["parameters"], best["data"]["previous"]) == ("best", {"lr": 3}, 0.5)
    assert best["text"] == "digits (abcd): trial 3 (T3) has the best result so far, 0.9"
    assert json.loads(inbox.got[3][1])["data"]["trials"] == {"FAILED": 1, "SUCCEEDED": 3}


def test_a_trial_that_is_run_again_is_told_of_again(store: Store, inbox: Inbox) -> None:
    def again(told: messages.SaveTrial) -> messages.SaveTrial:
        return told._replace(trial=replace(told.trial, attempt=1))

    with teller(store, inbox) as process:
        store.write([trial(0, reason="exit code 1"), trial(1, 0.5)])
        assert process.step()
        store.write([again(trial(0, reason="exit code 2")), again(trial(1, 0.9))])
        assert process.step()
    assert inbox.told == ["failure-T0", "best-T1", "failure-T0-1", "best-T1-1"]


def test_a_result_that_breaks_a_constraint_is_not_told_as_the_best(store: Store, inbox: Inbox) -> None:
    store.write([trial(0, 0.9, violates="latency <= 20 (25)")])
    store.write([trial(1, 0.4)])
    with teller(store, inbox) as process:
        assert process.step()
    assert inbox.told == ["best-T1"]
    assert json.loads(inbox.got[0][1])["data"]["previous"] is None


def test_an_experiment_that_goes_on_is_told_of_at_its_next_end(store: Store, inbox: Inbox) -> None:
    for state in (ExperimentState.DONE, ExperimentState.STOPPED, ExperimentState.RUNNING, ExperimentState.ERROR):
        store.write([end(state)])
        with teller(store, inbox) as process:
            assert process.step()
    assert inbox.told == ["end-1", "end-2"]


def test_what_an_address_did_not_take_is_sent_again_and_its_failure_said_once(
    store: Store, inbox: Inbox, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    inbox.statuses = [500, 404, 503]
    store.write([trial(0), trial(1, 0.1), end()])
    with teller(store, inbox) as process:
        assert [process.step(last=True) for _ in range(4)] == [False, False, False, True]
    assert inbox.told == ["failure-T0", "best-T1", "end-1"]
    said = [record.getMessage() for record in caplog.records if record.name == "nnilite.webhook"]
    assert len(said) == 2
    assert "answers 500" in said[0]
    assert said[1] == "webhook 1 works again"
    assert "T0KEN" not in caplog.text
    assert "sig=" not in caplog.text


def test_between_tries_there_is_a_pause_and_no_try(store: Store, inbox: Inbox) -> None:
    inbox.statuses = [500]
    store.write([trial(0)])
    with teller(store, inbox) as process:
        process._pause_s = 300.0
        assert not process.step()
        assert not process.step()
    assert inbox.told == []


def test_a_message_that_is_refused_for_good_does_not_hold_up_the_next(store: Store, inbox: Inbox) -> None:
    inbox.statuses = [400]
    store.write([trial(0), trial(1)])
    with teller(store, inbox) as process:
        assert process.step()
    assert inbox.told == ["failure-T1"]


@pytest.mark.parametrize(
    "rest",
    [
        b"Content-Length: 100\r\n\r\nit drips",
        b"Content-Length: 2000000\r\n\r\n" + b"x" * 2_000_000,
        b"Content-Length: 3\r\nContent-Encoding: gzip\r\n\r\nbad",
        b"Transfer-Encoding: chunked\r\n\r\nbad\r\n",
    ],
    ids=["drips", "large", "not gzip", "not chunked"],
)
def test_a_message_that_is_accepted_is_not_sent_again_whatever_follows(
    store: Store, inbox: Inbox, rest: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nnilite._webhooks.sending.TIMEOUT_S", 2)
    inbox.odd_answer = b"HTTP/1.1 200 OK\r\n" + rest
    store.write([trial(0), trial(1)])
    with teller(store, inbox) as process:
        assert process.step()
    assert inbox.told == ["failure-T0", "failure-T1"]


def test_only_what_is_wanted_is_told(store: Store, inbox: Inbox) -> None:
    store.write([trial(0), trial(1, 0.5), end()])
    with teller(store, inbox, events=["end"]) as process:
        assert process.step()
    assert inbox.told == ["end-1"]


def test_a_result_with_numbers_that_json_has_not_is_told_with_strings_in_their_place(
    store: Store, inbox: Inbox
) -> None:
    store.write([trial(0, {"default": 0.5, "loss": float("nan"), "worst": float("-inf")}), trial(1)])
    with teller(store, inbox) as process:
        assert process.step()
    assert inbox.told == ["best-T0", "failure-T1"]
    assert json.loads(inbox.got[0][1])["data"]["trial"]["value"] == {
        "default": 0.5,
        "loss": "NaN",
        "worst": "-Infinity",
    }


def test_a_trial_mentions_nobody_in_a_chat(store: Store, inbox: Inbox) -> None:
    reason = "<!channel> @all <https://evil|this>"
    store.write([trial(0, reason=reason)])
    with teller(store, inbox) as process:
        process.step()
    [(_, body)] = inbox.got
    told = json.loads(body)
    assert told["text"].endswith("has failed: < !channel> @ all < https://evil|this>")
    assert told["data"]["trial"]["reason"] == reason


def test_a_library_of_standard_webhooks_believes_the_signature(store: Store, inbox: Inbox) -> None:
    store.write([trial(0, 0.5)])
    with teller(store, inbox, secret=SecretText(SECRET)) as process:
        process.step()
    headers, body = inbox.got[0]
    assert Webhook(SECRET).verify(body, headers)["type"] == "best"
    with pytest.raises(Exception, match="No matching signature"):
        Webhook(SECRET).verify(body + b" ", headers)


@pytest.mark.parametrize("damage", ["{", '{"revision": -1}', '{"best": "high"}'])
def test_a_damaged_position_tells_everything_again(store: Store, inbox: Inbox, damage: str) -> None:
    store.path.with_name("0.json").write_text(damage)
    store.write([trial(0, 0.5)])
    with teller(store, inbox) as process:
        process.step()
    assert inbox.told == ["best-T0"]


@pytest.mark.parametrize(
    ("hook", "said"),
    [
        ({"url": "ftp://host/S3CRET"}, "webhooks.*url: must be an address"),
        ({"url": "https://me:S3CRET@host/"}, "url: must have neither a login"),
        ({"url": "https://host:99999/S3CRET"}, "url: must be an address"),
        ({"url": "https://host/", "secret": "S3CRET"}, "secret: must be `whsec_`"),
        ({"url": "https://host/", "events": ["best", "worst"]}, "events"),
        ({"url": "${env:NNILITE_NO_SUCH}"}, "'NNILITE_NO_SUCH' is not set"),
    ],
)
def test_a_webhook_that_cannot_work_is_said_without_its_secrets(hook: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        from_dict({"webhooks": [hook]}).checked()
    assert "S3CRET" not in str(caught.value)


def test_a_config_shows_neither_address_nor_secret() -> None:
    config = from_dict(
        {
            "searchSpace": {"x": {"_type": "uniform", "_value": [0, 1]}},
            "trialCommand": "true",
            "trialConcurrency": 1,
            "tuner": {"name": "Random"},
            "trainingService": {"platform": "local"},
            "webhooks": [{"url": "https://host/T0KEN", "secret": SECRET}],
        }
    ).checked()
    shown = json.dumps(config.json())
    assert "T0KEN" not in shown
    assert SECRET not in shown
    assert config.webhooks[0].events == ["best", "failure", "end"]


def test_a_webhook_of_a_yaml_file_says_which_events_it_wants(tmp_path: Path) -> None:
    hooks = "[{url: 'https://host/', events: [end]}, {url: 'https://host/', events: [x]}]"
    (tmp_path / "config.yaml").write_text(f"webhooks: {hooks}")
    with pytest.raises(ConfigError) as caught:
        load(tmp_path / "config.yaml").checked()
    assert "webhooks[1].events" in str(caught.value)
    assert "webhooks[0]" not in str(caught.value)
