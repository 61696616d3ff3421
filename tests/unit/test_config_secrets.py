"""Secrets in configs: from the environment, and never shown."""

from __future__ import annotations

import pytest

from fake_platforms import platforms
from nnilite.config import from_dict
from nnilite.errors import ConfigError

__all__ = ["platforms"]
pytestmark = pytest.mark.usefixtures("platforms")

SECRET = "p$'\"x\n"


def config(**section):
    machine = {"host": "h", "user": "u", **section.pop("machine", {})}
    return from_dict(
        {
            "searchSpace": {"x": {"_type": "uniform", "_value": [0, 1]}},
            "trialCommand": "run",
            "trialConcurrency": 1,
            "tuner": {"name": "TPE", "classArgs": {"apiKey": SECRET, "token_size": 5}},
            "trainingService": {"platform": "cloud", "machineList": [machine], **section},
        }
    )


def test_a_secret_is_read_from_the_environment(monkeypatch):
    monkeypatch.setenv("CLOUD_TOKEN", SECRET)
    checked = config(token="${env:CLOUD_TOKEN}").checked()
    assert checked.services[0].config.token == SECRET
    assert checked.json(secrets=True)["trainingService"]["token"] == SECRET
    assert SECRET in checked.secrets


def test_a_missing_variable_is_named(monkeypatch):
    monkeypatch.delenv("CLOUD_TOKEN", raising=False)
    with pytest.raises(ConfigError, match=r"trainingService.token: the environment variable 'CLOUD_TOKEN'"):
        config(token="${env:CLOUD_TOKEN}").checked()


@pytest.mark.parametrize(
    "section", [{"token": SECRET}, {"machine": {"password": SECRET}}, {"extra": {"password": SECRET}}]
)
def test_no_output_shows_a_secret(section):
    checked = config(**section).checked()
    shown = f"{checked!r} {checked.json()} {checked.training_service!r}"
    assert repr(SECRET)[1:-1] not in shown
    assert "********" in shown


def test_the_plugin_s_config_does_not_show_its_secrets():
    checked = config(token=SECRET, machine={"password": SECRET}).checked()
    assert repr(SECRET)[1:-1] not in repr(checked.services)


def test_free_arguments_are_hidden_by_their_names_only_as_text():
    shown = config().json()["tuner"]["classArgs"]
    assert shown == {"apiKey": "********", "token_size": 5}


def test_a_config_that_was_shown_cannot_be_used_with_its_stars():
    with pytest.raises(ConfigError, match="was hidden"):
        config(token="********").checked()


def test_a_secret_that_is_no_text_is_not_quoted_in_the_error():
    with pytest.raises(ConfigError) as caught:
        config(token=123456).checked()
    assert "123456" not in str(caught.value)
