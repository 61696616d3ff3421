"""What goes wrong on Azure, and what becomes of trials then."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace

import pytest

from nnilite.errors import ConfigError, NoCapacity, ServiceError
from nnilite.platform_http import AccessRefused, Outage, Throttled
from nnilite.service import JobState
from nnilite.testing import BatchContract
from nnilite_aml import _snapshot
from nnilite_aml._calls import AzureCalls
from nnilite_aml._config import AmlDistribution
from platforms.aml.bench import MARKS, QUICK, AmlBench, QuickAml
from platforms.aml.trouble import AmlTrouble
from platforms.aml.workspace import MISSING_IMAGE

pytestmark = MARKS
ARM = "management.azure.com"


@pytest.fixture
def opened(tmp_path, azure):
    """Opens a bench with these fields of the section."""
    benches: list[AmlBench] = []

    def make(**fields) -> AmlBench:
        benches.append(AmlBench(tmp_path, **fields))
        return benches[-1].__enter__()

    yield make
    for bench in benches:
        bench.__exit__()


@pytest.fixture
def bench(opened):
    return opened()


@pytest.fixture
def patient(opened, monkeypatch):
    """A bench whose calls are tried for a while."""
    monkeypatch.setattr(QuickAml, "patience", replace(QUICK, call_s=60.0))
    return opened()


class TestAmlTrouble(BatchContract):
    every_case = False

    @pytest.fixture
    def trouble(self, opened, azure):
        return AmlTrouble(opened(), azure)


# ------------------------------------------------------------ what can never work is told before anything starts


@pytest.mark.parametrize(
    ("fields", "place", "words"),
    [
        ({"client_secret": "wrong"}, "clientSecret", "AADSTS7000215"),
        ({"subscription_id": "0a1b2c3d-9"}, "subscriptionId", "no subscriptionId '0a1b2c3d-9'"),
        ({"resource_group": "other"}, "resourceGroup", "no resourceGroup 'other'"),
        ({"workspace_name": "other"}, "workspaceName", "no workspaceName 'other'"),
        ({"compute_target": "nowhere"}, "computeTarget", "has no compute target 'nowhere'"),
        ({"compute_target": "stopped-box"}, "computeTarget", "stopped-box is stopped: start it"),
        (
            {"compute_target": "spot-cluster", "instance_count": 3, "distribution": AmlDistribution(type="MPI")},
            "instanceCount",
            "needs 3 nodes, but spot-cluster has 2 at most",
        ),
        ({"low_priority": True}, "lowPriority", "has dedicated nodes"),
        ({"trial_gpu_number": 2}, "trialGpuNumber", "is 2, but a node of STANDARD_NC6 has 1: choose a larger VM size"),
        (
            {"compute_target": "serverless", "instance_type": "Standard_DS3_v2", "trial_gpu_number": 1},
            "trialGpuNumber",
            "a node of Standard_DS3_v2 has none",
        ),
        ({"compute_target": "box", "trial_gpu_number": 1}, "trialGpuNumber", "a node of STANDARD_DS3_V2 has none"),
        ({"environment": "tensorflow:1"}, "environment", "has no environment tensorflow:1"),
        ({"environment": "my-env.1:1"}, "environment", "has no environment my-env.1:1"),
    ],
)
def test_a_config_that_can_never_work_is_refused_at_its_field(tmp_path, azure, fields, place, words):
    with pytest.raises(ConfigError) as refused:
        AmlBench(tmp_path / "refused", **fields).__enter__()
    assert refused.value.place.field == place
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)
    assert not azure.workspace.jobs


def test_who_may_not_look_at_vm_sizes_can_run_trials_all_the_same(opened, azure, caplog):
    caplog.set_level("INFO")
    azure.misbehave("/vmSizes", 5, status=403, body=b"{}")
    bench = opened(trial_gpu_number=2)
    assert bench.finish(bench.run("true")).exits[0]["code"] == 0
    assert "could not check whether nodes of STANDARD_NC6 have 2 GPUs" in caplog.text


def test_nodes_that_cannot_reach_the_manager_are_told_of_before_anything_starts(tmp_path, azure):
    with pytest.raises(ConfigError, match="set `callback: log`, so that trials report") as refused:
        AmlBench(tmp_path, nni_manager_ip=None).__enter__()
    assert refused.value.place.field == "callback"
    assert not azure.workspace.jobs


def test_code_that_is_too_large_for_azure_is_refused_before_anything_is_sent(tmp_path, azure, monkeypatch):
    monkeypatch.setattr(_snapshot, "SNAPSHOT_LIMIT_BYTES", 1000)
    with pytest.raises(ConfigError, match=r"a snapshot on Azure can have 1000.*: exclude files with \.nniignore"):
        AmlBench(tmp_path / "refused").__enter__()
    assert azure.seen == []


def test_an_environment_that_does_not_build_fails_the_trial_in_azures_words(opened):
    bench = opened(docker_image=MISSING_IMAGE)
    status = bench.wait(bench.run("true"))
    assert status.state is JobState.FAILED
    assert "Image build failed. Failed to pull Docker image example.org/no-such-image:1" in status.reason


def test_parameters_that_are_too_large_are_refused_with_a_cure(bench):
    noise = "".join(chr(33 + number * number % 90) + str(hash(str(number))) for number in range(90_000))
    error = bench.refusal(bench.service.submit(bench.job("true", parameters={"x": noise})))
    assert isinstance(error, ConfigError)
    assert "let the trial make large values itself" in str(error)


# ------------------------------------------------------------ an outage


def test_a_submission_that_a_gateway_answers_is_made_once(patient, azure):
    azure.misbehave("/jobs/nni-", 1, after=True, status=502)
    name = patient.run(patient.tell("once"))
    assert patient.finish(name).exits[0]["code"] == 0
    assert patient.lines() == ["once"]


def test_an_answer_that_makes_no_sense_is_no_word_on_the_jobs(bench, azure):
    name = bench.run("sleep 60")
    bench.wait(name, JobState.RUNNING)
    azure.misbehave("/jobs?", 100, status=200, body=b"<html>sign in to this network</html>")
    bench.ask_anew()
    assert isinstance(bench.refusal(bench.service.poll([bench.handles[name]])), ServiceError)
    azure.misbehavior.clear()
    assert bench.status(name).state is JobState.RUNNING


def test_a_slow_azure_holds_nobody_up_for_ever():
    late = threading.Event()
    calls = AzureCalls(0.2, "")
    with pytest.raises(Outage, match=r"has not answered within 0\.2 s \(the jobs\)"):
        asyncio.run(calls.run("the jobs", lambda: late.wait(600), patience_s=1))
    late.set()


# ------------------------------------------------------------ refusals


def test_patience_is_kept_when_azure_asks_for_it(bench, azure):
    bench.finish(bench.run("true"))
    azure.misbehave("PUT management.azure.com", 1, status=429, headers={"Retry-After": "300"})
    error = bench.refusal(bench.service.submit(bench.job("true")))
    assert isinstance(error, Throttled)
    assert error.retry_after_s == 300
    before = len(azure.seen)
    assert isinstance(bench.refusal(bench.service.submit(bench.job("true"))), Throttled)
    assert len(azure.seen) == before
    bench.service.api._calls._requested_pause.begin(0.0)


def test_a_short_wait_that_azure_asks_for_is_no_error(patient, azure):
    azure.misbehave(f"GET {ARM}", 1, status=429, headers={"Retry-After": "1"})
    assert patient.finish(patient.run("true")).exits[0]["code"] == 0


def test_a_token_that_is_worthless_is_renewed(bench, azure):
    name = bench.run(f"{bench.until('go')}; exit 5")
    bench.wait(name, JobState.RUNNING)
    azure.login.revoke()
    bench.give("go")
    assert bench.finish(name).exits[0]["code"] == 5
    assert azure.login.logins >= 2


def test_a_refusal_of_a_job_is_told_with_its_words(bench, azure):
    bench.finish(bench.run("true"))
    azure.misbehave("PUT management.azure.com", 5, status=403, body=b'{"error": {"code": "x", "message": "no quota"}}')
    error = bench.refusal(bench.service.submit(bench.job("true")))
    assert isinstance(error, AccessRefused)
    assert "no quota; the user who is logged in needs the role AzureML Data Scientist" in str(error)


def test_nobody_who_is_logged_in_is_told_how_to_log_in(tmp_path, azure, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setenv("AZURE_TOKEN_CREDENTIALS", "AzureCliCredential")
    login = {"tenant_id": None, "client_id": None, "client_secret": None}
    with pytest.raises(ConfigError, match="run `az login` on this machine, or set tenantId"):
        AmlBench(tmp_path / "refused", **login).__enter__()


# ------------------------------------------------------------ jobs that Azure ends, moves or forgets


def test_a_job_that_azure_has_started_anew_while_nobody_looked_is_lost(bench, azure):
    name = bench.run(f"{bench.tell('ran')}; sleep 60")
    bench.wait(name, JobState.RUNNING)
    bench.eventually(bench.lines)
    bench.close()
    azure.workspace.preempt(azure.workspace.of(name), hold=False)
    bench.eventually(lambda: azure.workspace.of(name).status == "Failed")
    bench.open()
    status = bench.wait(name)
    assert status.state is JobState.LOST
    assert "started the job again" in status.reason
    assert bench.lines() == ["ran"]


def test_the_next_attempt_finds_the_checkpoints_of_the_one_before(bench, azure):
    first = bench.job('echo saved > "$NNILITE_CHECKPOINT_DIR/state"; sleep 60', trial="Tsave")
    name = bench.submit(first)
    bench.wait(name, JobState.RUNNING)
    bench.eventually(
        lambda: [one for one in azure.workspace.blobs.names("nnilite/") if one.endswith("Tsave/checkpoints/state")]
    )
    azure.workspace.preempt(azure.workspace.of(name))
    status = bench.wait(name)
    assert status.state is JobState.LOST
    assert "The low priority node was preempted" in status.reason
    again = bench.job('cat "$NNILITE_CHECKPOINT_DIR/state"', trial="Tsave")
    later = f"{name[:-1]}1"
    attempt = type(again)(later, again.experiment, "Tsave", 1, 0, {**again.spec, "job": later}, None)
    bench.receiver.expect(later, again.spec["token"])
    assert bench.finish(bench.submit(attempt)).output["stdout"] == b"saved\n"


def test_a_job_that_azure_hears_nothing_of_is_unknown_and_may_come_back(bench, azure):
    name = bench.run("sleep 60")
    bench.wait(name, JobState.RUNNING)
    azure.workspace.of(name).status = "NotResponding"
    assert bench.wait(name, JobState.UNKNOWN).reason == "Azure has no contact with the job's node"
    azure.workspace.of(name).status = "Running"
    assert bench.wait(name, JobState.RUNNING).reason == ""


def test_a_trial_that_waits_says_for_what(bench, azure):
    azure.workspace.paused = True
    name = bench.run("true")
    status = bench.wait(name, JobState.WAITING)
    assert status.reason == "queued for a node of cpu-cluster"
    assert status.url.startswith("https://ml.azure.com/runs/nni-")
    azure.workspace.paused = False
    azure.workspace.schedule()
    assert bench.finish(name).exits[0]["code"] == 0


# ------------------------------------------------------------ code, and what is left of a trial


def test_the_code_goes_up_once_for_all_trials_and_managers(bench, azure):
    for _ in range(2):
        names = [bench.run("true") for _ in range(2)]
        for name in names:
            bench.finish(name)
        bench.restart()
    assert azure.workspace.uploads == 1


def test_a_trial_waits_with_a_reason_while_the_code_goes_up(bench, azure, monkeypatch):
    monkeypatch.setattr(QuickAml, "patience", replace(QUICK, upload_s=0.2))
    azure.misbehave("PUT nnilitestorage", 1, status=503, delay_s=2)
    error = bench.refusal(bench.service.submit(bench.job("true")))
    assert isinstance(error, NoCapacity)
    assert "the code is being uploaded to Azure" in str(error)
    monkeypatch.undo()


def test_the_files_of_a_trial_can_be_fetched_and_have_no_token(bench, tmp_path):
    name = bench.run("""echo weights > "$NNI_OUTPUT_DIR"/'model x.bin'""")
    bench.finish(name)
    bench.call(bench.service.fetch(bench.handles[name], tmp_path / "fetched"))
    left = {path.name: path.read_bytes() for path in (tmp_path / "fetched").rglob("*") if path.is_file()}
    assert left["model x.bin"] == b"weights\n"
    assert "parameter.cfg" in left
    assert not [data for data in left.values() if bench.received(name).token.encode() in data]


def test_a_url_that_opens_a_blob_is_in_no_message():
    url = "https://x.blob.core.windows.net/c/log.txt?se=2026&sp=r&sig=SECRETSIGNATURE%3D"
    calls = AzureCalls(5, "")

    def fail() -> None:
        raise OSError(f"Max retries exceeded with url: {url} (Caused by nothing)")

    with pytest.raises(Outage) as raised:
        asyncio.run(calls.run("the log", fail, patience_s=0))
    assert "SECRETSIGNATURE" not in str(raised.value)
    assert "(Caused by nothing)" in str(raised.value)
