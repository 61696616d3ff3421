"""The page for Prometheus, read by Prometheus' own client; and the example that uses it."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from manager.fake_backend import filled
from manager.rest_server import Client, serving
from nnilite._answers.queries import Profile
from nnilite._rest.routes import ROUTES

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "prometheus"
Samples = dict[tuple[str, str], float]


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    with serving(filled(tmp_path)) as client:
        yield client


def samples(client: Client) -> Samples:
    """Each value by the name of its metric and the state that it is about."""
    text = client.get("/prometheus").body.decode()
    return {
        (sample.name, sample.labels.get("state", "")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.labels["experiment"] == "exp12345"
    }


def test_prometheus_own_client_reads_the_page(client: Client) -> None:
    found = samples(client)
    assert found["nnilite_trials", "RUNNING"] == 1
    assert found["nnilite_trials", "SUCCEEDED"] == 1
    assert found["nnilite_trials", "FAILED"] == 0
    assert found["nnilite_trial_concurrency", ""] == 2
    assert [state for (name, state), value in found.items() if name == "nnilite_experiment_state" and value == 1] == [
        client.get("/experiment").json["state"]
    ]


def test_a_hostile_name_does_not_break_the_page(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    profile = replace(asyncio.run(client.backend.profile()), name='a "b"\n{c} \\ \u2028 nnilite_trials 9')

    async def told() -> Profile:
        return profile

    monkeypatch.setattr(client.backend, "profile", told)
    assert samples(client)["nnilite_trials", "RUNNING"] == 1


def test_the_example_asks_for_what_there_is(client: Client) -> None:
    names = {name for name, _ in samples(client)} | {"nnilite_best_value"}
    asked = set(re.findall(r"nnilite_\w+", (EXAMPLE / "dashboard.json").read_text()))
    assert asked - names == set()
    assert len(json.loads((EXAMPLE / "dashboard.json").read_text())["panels"]) == 6
    (job,) = yaml.safe_load((EXAMPLE / "prometheus.yaml").read_text())["scrape_configs"]
    assert job["metrics_path"] in {f"/api/v1{route.path}" for route in ROUTES}
