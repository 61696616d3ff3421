"""The NNI-compatible routes, in the shapes that NNI 3.0 answered."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from manager.fake_backend import filled
from manager.rest_server import Client, serving
from nnilite.records import Metric, MetricKind, TrialState


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    with serving(filled(tmp_path)) as client:
        yield client


def test_the_state_is_told(client: Client) -> None:
    assert client.get("/nni/check-status").json == {"status": "RUNNING", "errors": []}
    assert client.get("/nni/version").body == b"0.1.0"


def test_the_profile_has_milliseconds_and_the_present_limits(client: Client) -> None:
    client.backend.updates["concurrency"] = 7
    profile = client.get("/nni/experiment").json
    assert (profile["startTime"], profile["execDuration"], profile["nextSequenceId"]) == (1_001_000, 5, 2)
    assert profile["params"]["trialConcurrency"] == 7
    assert "x" in profile["params"]["searchSpace"]


@pytest.mark.parametrize(
    ("update", "params", "changed"),
    [
        ("TRIAL_CONCURRENCY", {"trialConcurrency": 3, "maxTrialNumber": 99}, {"concurrency": 3}),
        ("MAX_TRIAL_NUM", {"maxTrialNumber": 30}, {"max_trials": 30}),
        ("MAX_EXEC_DURATION", {"maxExperimentDuration": "2h"}, {"max_duration_s": 7200}),
        ("SEARCH_SPACE", {"searchSpace": {}}, {"search_space": {}}),
    ],
)
def test_an_update_changes_the_one_field_it_names(client: Client, update: str, params: object, changed: object) -> None:
    reply = client.ask("PUT", f"/api/v1/nni/experiment?update_type={update}", {"params": params})
    assert (reply.status, reply.body) == (200, b"")
    assert client.backend.updates == changed


@pytest.mark.parametrize("query", ["", "?update_type=ALL", "?update_type=TRIAL_CONCURRENCY"])
def test_an_update_of_nothing_known_is_refused(client: Client, query: str) -> None:
    assert client.ask("PUT", f"/api/v1/nni/experiment{query}", {"params": {}}).status == 400


def test_stopping(client: Client) -> None:
    assert client.ask("DELETE", "/api/v1/nni/experiment").status == 200
    assert client.backend.stopped


def test_trials_are_told_in_nnis_shape(client: Client) -> None:
    running, ended = client.get("/nni/trial-jobs").json
    assert (running["status"], "endTime" in running, "finalMetricData" in running) == ("RUNNING", False, False)
    assert json.loads(ended["hyperParameters"][0])["parameters"] == {"x": 0.5}
    final = ended["finalMetricData"][0]
    assert (final["parameterId"], final["type"], final["timestamp"]) == ("1", "FINAL", 1_010_000)
    assert json.loads(json.loads(final["data"]))["loss"] == 2
    assert client.get("/nni/trial-jobs/End02").json == ended


def test_trials_of_one_state(client: Client) -> None:
    assert [item["trialJobId"] for item in client.get("/nni/trial-jobs?status=RUNNING").json] == ["Run01"]


def test_more_trials_than_a_page_are_all_told(client: Client) -> None:
    for number in range(2, 1500):
        trial = replace(client.backend.kept["Run01"], id=f"t{number}", sequence=number)
        client.backend.kept[trial.id] = trial
    assert [item["sequenceId"] for item in client.get("/nni/trial-jobs").json] == list(range(1500))


def test_a_failed_trial_says_where_its_stderr_is(client: Client) -> None:
    client.backend.put(replace(client.backend.kept["Run01"], state=TrialState.FAILED, reason="exit code 1"))
    trial = client.get("/nni/trial-jobs/Run01").json
    assert trial["stderrPath"].endswith("/trials/Run01/0/trial.stderr")
    assert trial["message"] == "exit code 1"


def test_a_trial_is_added_and_cancelled(client: Client) -> None:
    assert client.post("/nni/trial-jobs", {"x": 1}).json == {"sequenceId": 2}
    assert client.ask("DELETE", "/api/v1/nni/trial-jobs/T0002").status == 200
    assert client.backend.kept["T0002"].state is TrialState.USER_CANCELED
    assert client.post("/nni/trial-jobs", [1]).status == 400


def test_metrics_are_json_texts_in_json_texts(client: Client) -> None:
    first, final = client.get("/nni/metric-data").json
    assert first == {
        "timestamp": 1_003_000,
        "trialJobId": "End02",
        "parameterId": "1",
        "type": "PERIODICAL",
        "sequence": 0,
        "data": '"0.5"',
    }
    assert json.loads(final["data"]) == '{"default": NaN, "loss": 2}'
    assert client.get("/nni/metric-data/End02?type=FINAL").json == [final]
    assert client.get("/nni/metric-data/Nope1").status == 404


def test_the_latest_metrics_are_the_final_ones_and_the_last_of_each_trial(client: Client) -> None:
    for index in range(2500):
        client.backend.reported.append(Metric("Run01", 0, index, MetricKind.PERIODICAL, index, index, 1.0))
    found = [
        (item["trialJobId"], item["type"], item["sequence"]) for item in client.get("/nni/metric-data-latest").json
    ]
    assert found == [("End02", "FINAL", 0), ("End02", "PERIODICAL", 0), ("Run01", "PERIODICAL", 2499)]


def test_metrics_of_a_range_of_trials_include_both_ends(client: Client) -> None:
    assert len(client.get("/nni/metric-data-range/0/1").json) == 2
    assert len(client.get("/nni/metric-data-range/1/1").json) == 2
    assert client.get("/nni/metric-data-range/0/0").json == []
    assert client.get("/nni/metric-data-range/5/2").json == []


def test_metrics_of_earlier_attempts_are_left_out(client: Client) -> None:
    client.backend.put(replace(client.backend.kept["End02"], attempt=1))
    assert client.get("/nni/metric-data").json == []
    assert client.get("/nni/metric-data-range/0/9").json == []


def test_results_are_exported_and_imported(client: Client) -> None:
    (result,) = client.get("/nni/export-data").json
    assert (result["parameter"], json.loads(result["value"])["loss"]) == ({"x": 0.5}, 2)
    assert client.post("/nni/experiment/import-data", [{"parameter": {"x": 1}, "value": 0.5}]).body == b""
    assert client.get("/nni/experiment/imported-data").json == ['[{"parameter":{"x":1},"value":0.5}]']


def test_trials_are_counted_by_state(client: Client) -> None:
    counts = client.get("/nni/job-statistics").json
    assert {"trialJobStatus": "RUNNING", "trialJobNumber": 1} in counts
    assert len(counts) == 2


def test_experiments_of_the_machine_are_told(client: Client) -> None:
    (entry,) = client.get("/nni/experiments-info").json
    assert (entry["id"], entry["endTime"], entry["tag"]) == ("exp12345", "N/A", [])
    assert client.get("/nni/experiment-metadata").json["id"] == "exp12345"


def test_the_output_of_a_trial_is_a_file_to_nni(client: Client) -> None:
    client.backend.outputs["End02", "stdout"] = b"hello"
    base = "/nni/trial-file/End02"
    assert [client.get(f"{base}/{name}").body for name in ("stdout", "trial.stdout", "trial.log")] == [b"hello"] * 3
    assert client.get(f"{base}/stderr").body == b"stderr is empty."
    assert client.get(f"{base}/page.html").headers["Content-Disposition"].startswith("attachment")
