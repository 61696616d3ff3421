"""The recorded contract of Resource Manager and run history: each request and each answer goes through it."""

from __future__ import annotations

from pathlib import Path

import yaml
from openapi_core import OpenAPI
from openapi_core.testing import MockRequest, MockResponse

from platforms.exchange_form import form_of

_FILES = ("aml-command-job-subset.openapi.yaml", "vm-sizes.openapi.yaml")
HERE = Path(__file__).parent / "contract"


class AzureContract:
    """`check` returns what is outside of the contract."""

    def __init__(self) -> None:
        recorded, more = (yaml.load((HERE / name).read_bytes(), Loader=yaml.CSafeLoader) for name in _FILES)
        recorded["paths"].update(more["paths"])
        self._api = OpenAPI.from_dict(recorded)
        self._known: set[tuple[object, ...]] = set()

    def check(self, asked: MockRequest, status: int, body: bytes) -> list[str]:
        """One exchange. Those of a form that was seen before are not looked at again, which takes long."""
        sent = form_of(asked.body or b"")
        key = (asked.method, form_of(asked.path), str(asked.parameters.query), sent, status, form_of(body))
        if key in self._known:
            return []
        faults = []
        answer = MockResponse(body, status_code=status, content_type="application/json")
        try:
            self._api.validate_request(asked)
        except Exception as error:  # noqa: BLE001 - openapi-core has no common error, and all are faults
            faults.append(f"request {asked.method} {asked.path}: {_causes(error)}")
        if body:
            try:
                self._api.validate_response(asked, answer)
            except Exception as error:  # noqa: BLE001 - the same
                faults.append(f"our own answer {status} to {asked.method} {asked.path}: {_causes(error)}")
        if not faults:
            self._known.add(key)
        return faults


def _causes(error: BaseException) -> str:
    cause: BaseException = error
    while cause.__cause__ is not None:
        cause = cause.__cause__
    return f"{error!r} {cause!r} {[each.message[:300] for each in getattr(cause, 'schema_errors', [])]}"
