"""The published contract of OpenPAI's REST server: every request and every answer of the stand-in goes through it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import jsonschema
import yaml
from openapi_core import Config, OpenAPI
from openapi_core.testing import MockRequest, MockResponse

from platforms.exchange_form import form_of

HERE = Path(__file__).parent / "contract"
_ITS_FAULT = (400, 413)
_OF_PROXIES = (401, 413, 429, 500, 502, 503)
"""Statuses with which something in front of the server may answer, in words of its own."""


def read_yaml(text: bytes | str) -> Any:
    """The content of a YAML document, by libyaml: jobs hold long words, for which the reader in Python takes long."""
    return yaml.load(text, Loader=yaml.CSafeLoader)


@lru_cache
def exit_specs() -> Mapping[int, Mapping[str, Any]]:
    """PAI's table of exit codes."""
    entries = read_yaml((HERE / "k8s-job-exit-spec.yaml").read_bytes())["spec"]
    return {entry["code"]: {key: value for key, value in entry.items() if key != "pattern"} for entry in entries}


class Contract:
    """Raises: AssertionError for what is outside of the contract."""

    def __init__(self) -> None:
        config = Config(extra_media_type_deserializers={"text/yaml": lambda body, **_: read_yaml(body)})
        self._api = OpenAPI.from_file_path(str(HERE / "rest-server-openapi-2.2.7.corrected.yaml"), config=config)
        self._enforced = _validator("job-protocol-v2.server-enforced.schema.json")
        self._hived = _validator("job-protocol-v2.hived-extras.schema.json")
        self._known: set[tuple[object, ...]] = set()

    def check_request(self, asked: MockRequest, status: int) -> None:
        """One of a form that was seen before is not looked at again, which takes long.

        A request that is refused is looked at, too, unless what is wrong with it is why it was refused.
        """
        if status not in _ITS_FAULT:
            known = (asked.method, form_of(asked.path), str(asked.parameters.query), form_of(asked.body or b""))
            self._once(known, lambda: self._api.validate_request(asked), f"request {asked.method} {asked.path}")

    def check_answer(self, asked: MockRequest, status: int, content_type: str, body: bytes) -> None:
        if content_type.startswith("application/json") and status not in _OF_PROXIES:
            answer = MockResponse(body, status_code=status, content_type="application/json")
            known = (asked.method, form_of(asked.path), status, form_of(body))
            self._once(known, lambda: self._api.validate_response(asked, answer), f"answer {status} to {asked.path}")

    def _once(self, known: tuple[object, ...], check: Any, what: str) -> None:
        if known not in self._known:
            self._say(check, what)
            self._known.add(known)

    def faults_of_job(self, content: Any, hived: bool) -> list[str]:
        """What the server would say of a job that is submitted."""
        found = [error.message for error in self._enforced.iter_errors(content)]
        return found + [error.message for error in self._hived.iter_errors(content) if hived]

    @staticmethod
    def _say(check: Any, what: str) -> None:
        try:
            check()
        except Exception as error:
            cause: BaseException = error
            while cause.__cause__ is not None:
                cause = cause.__cause__
            more = [each.message[:300] for each in getattr(cause, "schema_errors", [])]
            raise AssertionError(f"{what} is outside of the contract: {error!r} {cause!r} {more}") from error


def _validator(name: str) -> jsonschema.Draft7Validator:
    return jsonschema.Draft7Validator(json.loads((HERE / name).read_text()))
