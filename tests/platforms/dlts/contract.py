"""Checks requests and answers against the contract: DLTS' OpenAPI document, and the schemas that its server reads.

openapi-core reads the document, which is OpenAPI 3.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import jsonschema
import yaml
from openapi_core import OpenAPI
from openapi_core.exceptions import OpenAPIError
from openapi_core.testing import MockRequest, MockResponse

from platforms.exchange_form import form_of

_FOLDER = Path(__file__).parent / "contract"
_DOCUMENT = _FOLDER / "dlts-dashboard.openapi.yaml"
_HOST = "https://dlts.example.com"
STATES = json.loads((_FOLDER / "state-machine.json").read_text())
_ENDINGS = {("POST", "jobs"): "job", ("PUT", "status"): "status", ("POST", "endpoints"): "endpoints"}


class Contract:
    """Knows what is allowed; each check gives a sentence, "" if all is well."""

    def __init__(self) -> None:
        self._api = OpenAPI.from_dict(yaml.load(_DOCUMENT.read_text(), Loader=yaml.CSafeLoader))
        self._schemas = {
            name: json.loads((_FOLDER / "upstream-validator-schemas" / f"{name}.schema.json").read_text())
            for name in _ENDINGS.values()
        }
        self._known: set[tuple[object, ...]] = set()
        """The forms of exchanges that were found well: see `exchange_form`."""

    def broken_by_request(self, method: str, path: str, query: Mapping[str, str], body: bytes) -> str:
        """What is wrong with a request."""
        known = (method, form_of(path), str(query), form_of(body))
        if known in self._known:
            return ""
        try:
            self._api.validate_request(self._request(method, path, query, body))
            schema = _ENDINGS.get((method, path.rpartition("/")[2]))
            if schema:
                jsonschema.validate(json.loads(body), self._schemas[schema])
        except (OpenAPIError, jsonschema.ValidationError) as error:
            return f"{method} {path} is outside of the contract: {error!r}: {error.__cause__!r}"
        self._known.add(known)
        return ""

    def broken_by_answer(self, method: str, path: str, status: int, kind: str, data: bytes) -> str:
        """What is wrong with an answer."""
        known = (method, form_of(path), status, kind, form_of(data))
        if known in self._known:
            return ""
        response = MockResponse(data, status, {"Content-Type": kind}, kind)
        try:
            self._api.validate_response(self._request(method, path, {}, b"{}"), response)
        except OpenAPIError as error:
            return f"the answer {status} to {method} {path} is outside of the contract: {error!r}: {error.__cause__!r}"
        self._known.add(known)
        return ""

    @staticmethod
    def _request(method: str, path: str, query: Mapping[str, str], body: bytes) -> MockRequest:
        data = body if method in ("POST", "PUT") else None
        return MockRequest(_HOST, method.lower(), path, args=dict(query), data=data, content_type="application/json")
