"""The OpenAPI document against the running server: schemathesis asks what the document allows, and what it does not."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, seed, settings

from manager.fake_backend import filled
from manager.rest_server import Client, serving
from nnilite._rest.openapi import document
from nnilite._rest.routes import ROUTES

if TYPE_CHECKING:
    import schemathesis

TOKEN = "manager-token-1234"
JOB = "nni-exp12345-Run01-0"
EXAMPLES = 30 if "NNILITE_SIMULATION_RUNS" in os.environ else 2
THERE = {"id": "End02", "path": "trial.stdout", "digest": "a" * 64, "job": JOB}
# A list that is longer than its `maxItems` is too large: 413, which schemathesis does not expect of refusals by itself.
REFUSALS = ["400", "401", "403", "404", "405", "406", "409", "413", "415", "422", "428", "429"]
JOB_HEADERS = {path: {"X-Nnilite-Job": JOB} for path in ("/code/{digest}", "/keeper.pyz")}
CALLS = [(route.path, method) for route in ROUTES for method in route.operations if route.path != "/stream"]


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with serving(filled(tmp_path_factory.mktemp("schemathesis"), TOKEN)) as client:
        yield client


@pytest.fixture(scope="module")
def schema() -> Any:
    """The document as schemathesis reads it. Only the process that runs these tests imports that, as it takes long."""
    import schemathesis
    from schemathesis.config import SchemathesisConfig

    config = SchemathesisConfig.from_dict({"checks": {"negative_data_rejection": {"expected-statuses": REFUSALS}}})
    return schemathesis.openapi.from_dict(document(ROUTES, ""), config=config)


@pytest.mark.parametrize("mode", ["positive", "negative"])
@pytest.mark.parametrize(("path", "method"), CALLS)
def test_the_server_does_what_its_document_says(client: Client, schema: Any, path: str, method: str, mode: str) -> None:
    from schemathesis import GenerationMode

    operation = schema[path][method]

    @seed(20240601)
    @settings(max_examples=EXAMPLES, database=None, suppress_health_check=list(HealthCheck))
    @given(operation.as_strategy(generation_mode=GenerationMode(mode)))
    def ask(case: schemathesis.Case) -> None:
        if mode == "positive":
            aim(case)
        # A request that is framed wrongly is refused by Tornado, before there is a route whose document could hold.
        case.headers.pop("Content-Length", None)
        headers = {"Authorization": f"Bearer {token_for(case, client)}", **JOB_HEADERS.get(path, {})}
        base = f"http://127.0.0.1:{client.port}/api/v1"
        case.call_and_validate(base_url=base, headers=headers, timeout=60, excluded_checks=unfit_checks(path))

    ask()


def aim(case: schemathesis.Case) -> None:
    """At what is there: by chance, no name would be hit."""
    for name in case.path_parameters or {}:
        case.path_parameters[name] = THERE.get(name, case.path_parameters[name])


def unfit_checks(path: str) -> list[Any]:
    """A schema cannot say in which order events come, nor that a query decides what a body must have."""
    from schemathesis.specs.openapi.checks import positive_data_acceptance

    return [positive_data_acceptance] if path in ("/callback/{job}", "/nni/experiment") else []


def token_for(case: schemathesis.Case, client: Client) -> str:
    """The right token: what happens without one has tests of its own."""
    if case.path == "/callback/{job}":
        job = str((case.path_parameters or {}).get("job", ""))
        return client.backend.callback_token(job) if re.fullmatch(r"[A-Za-z0-9._-]+", job) else "x"
    return client.backend.callback_token(JOB) if case.path in ("/code/{digest}", "/keeper.pyz") else TOKEN
