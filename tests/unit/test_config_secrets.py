"""Secrets in configs: from the environment, and never shown."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from nnilite.config import from_dict, load
from nnilite.config.secrets import masked_text
from nnilite.errors import ConfigError

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


LEAK = "pw7-LEAK"
MACHINE = {"host": "h", "user": "u", "password": LEAK}


def errors_of(data):
    """All that is said of a config with something wrong in it; "" if nothing is."""
    try:
        config = from_dict(data)
        config.checked()
    except ConfigError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("machines", [MACHINE, [[MACHINE]], {"a": MACHINE}, [{**MACHINE, "port": {"password": LEAK}}]])
@pytest.mark.parametrize("platform", ["cloud", None, 5, {"platform": "cloud", "password": LEAK}])
def test_a_password_in_a_config_of_the_wrong_shape_is_not_quoted(machines, platform):
    service = {"platform": platform, "machineList": machines}
    for shape in (service, [service], {"service": service}, str(service), [str(service)]):
        said = errors_of({"trialCommand": "run", "trialConcurrency": 1, "searchSpace": {}, "trainingService": shape})
        assert said
        assert LEAK not in said


@pytest.mark.parametrize("value", [[LEAK], {"value": LEAK}, {"password": [LEAK]}, 3.5])
@pytest.mark.parametrize("field", ["password", "sshPassphrase", "port", "sshKeyFile", "user"])
def test_a_secret_of_the_wrong_type_is_not_quoted(field, value):
    if field not in ("password", "sshPassphrase") and value in ([LEAK], {"value": LEAK}):
        value = {"apiKey": value}
    said = errors_of({"trainingService": {"platform": "cloud", "machineList": [{**MACHINE, field: value}]}})
    assert LEAK not in said


@pytest.mark.parametrize(
    "lines",
    [
        f"machineList: [{{host: h, password:{LEAK}}}]",
        f"machineList: [{{host: h, user: u, password: !{LEAK}}}]",
        f"machineList: [{{host: h, user: u, password: *{LEAK}}}]",
        f"machineList:\n  - host: h\n    password: '{LEAK}' '{LEAK}'",
        f"machineList:\n  - password:{LEAK}",
        f"machineList: host=h password={LEAK}",
        f"machineList: ssh://me:{LEAK}@host",
        f"memory: token = {LEAK}",
        f"mode: 'secret: {LEAK}'",
    ],
)
def test_a_password_in_yaml_that_went_wrong_is_not_quoted(tmp_path: Path, lines: str):
    (tmp_path / "config.yaml").write_text(
        "trainingService:\n  platform: cloud\n" + lines.replace("\n", "\n  ").join(["  ", "\n"])
    )
    with pytest.raises(ConfigError) as caught:
        load(tmp_path / "config.yaml").checked()
    assert LEAK not in str(caught.value)
    assert "password:" not in str(caught.value) or "********" in str(caught.value)


FIELDS = ["trialConcurrency", "maxExperimentDuration", "tuner", "assessor", "trialCommand", "searchSpace", "checkpoint"]
FIELDS += ["codeLimits", "sharedStorage", "debug", "logLevel", "retryOn", "trainingService", "tunerGpuIndices"]
ANY = st.recursive(
    st.sampled_from([MACHINE, {"password": LEAK}, {"apiKey": [LEAK]}, f"password: {LEAK}", 1, None, "x"]),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["platform", "name", "a", *FIELDS]), inner)
    ),
    max_leaves=4,
)


@settings(max_examples=200)
@example({"tuner": {"name": f"password: {LEAK}"}, "assessor": {"className": f"password: {LEAK}"}})
@example({"trainingService": {"platform": f"password: {LEAK}"}})
@given(st.dictionaries(st.sampled_from(FIELDS), ANY, min_size=1))
def test_no_error_of_any_config_quotes_a_password(data):
    assert LEAK not in errors_of({"trialCommand": "run", **data})


@pytest.mark.parametrize(
    "before",
    [
        "login('hf_",
        "sk-proj-",
        "AKIA",
        "xoxb-",
        "h = {'Authorization': 'Basic ",
        "curl -H 'Bearer ",
        "DB_PASS=",
        "pwd: ",
    ],
)
def test_keys_are_known_by_their_names_and_by_their_shapes(before: str) -> None:
    assert "SFODNN7EXAMPLE" not in masked_text(f"{before}IOSFODNN7EXAMPLE")


@pytest.mark.parametrize(
    "text", ["cd src && pwd && run", "first_pass = 2", "ask-me-anything-now", "a.task-1234567890ab"]
)
def test_what_only_looks_a_little_like_a_key_is_shown(text: str) -> None:
    assert masked_text(text) == text
