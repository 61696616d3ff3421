"""A lab with accounting: slurmdbd and MariaDB of Debian, accounts and their limits."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nnilite.errors import ConfigError
from nnilite.service import JobState
from nnilite.services.cluster.login import SshLogin
from nnilite.testing import ServiceBench, eventually
from nnilite_slurm import LoginConfig, SlurmConfig, SlurmService
from nnilite_slurm._api import SlurmApi
from nnilite_slurm._listing import from_json
from platforms.hosts.hosts import USER
from platforms.slurm.accounting import Accounting, missing

pytestmark = [
    pytest.mark.real,
    pytest.mark.timeout(180),
    pytest.mark.xdist_group("slurm-lab"),
]


@pytest.fixture(scope="module")
def accounting(whole_lab):
    """The lab with accounting for the tests of this module."""
    if missing():
        pytest.skip(missing())
    found = Accounting(whole_lab)
    try:
        found.open()
        yield found
    finally:
        found.close()


@pytest.fixture
def login(slurm_lab, accounting, tmp_path, monkeypatch):
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    (tmp_path / "config").touch()
    files = {"known_hosts_file": tmp_path / "known", "ssh_config_file": tmp_path / "config"}
    return LoginConfig(slurm_lab.head.address, user=USER, ssh_key_file=slurm_lab.network.key, **files)


@pytest.fixture
def open_bench(login, tmp_path):
    """Opens a bench on the lab, whose trials report by their folders."""
    opened = []

    def make(**fields):
        config = SlurmConfig(login=login, memory=100, **fields)
        bench = ServiceBench(tmp_path, lambda context: SlurmService("slurm", config, by_folder(context)))
        opened.append(bench)
        return bench.__enter__()

    yield make
    for bench in opened:
        bench.__exit__()


def by_folder(context):
    return replace(context, defaults={"callback": "log"})


def find_job(bench, command):
    return bench.job(command, report="stdout")


async def _history(login, ids, json):
    api = SlurmApi(SshLogin(login, None))
    api.version, api.json = (22, 5, 8) if json else (20, 2), json
    try:
        return await api.history(ids)
    finally:
        await api.host.close()


@pytest.mark.parametrize("json", [True, False], ids=["json", "text"])
def test_the_accounting_tells_of_jobs_that_slurmctld_has_forgotten(open_bench, login, slurm_lab, json):
    bench = open_bench(account="physics")
    names = [bench.submit(find_job(bench, command)) for command in ("exit 3", "true", "sleep 60")]
    codes = [bench.wait(name).exit_code for name in names[:2]]
    bench.wait(names[2], JobState.RUNNING)
    ids = [bench.handles[name]["id"] for name in names]
    eventually(lambda: slurm_lab.ask(f"sacct -n -X -P -j {ids[0]},{ids[1]} -o State") == "FAILED\nCOMPLETED")
    found = bench.call(_history(login, ids, json))
    assert [found[one].exit_code for one in ids[:2]] == codes == [3, 0]
    assert [found[one].state for one in ids[:2]] == ["FAILED", "COMPLETED"]
    assert found[ids[0]].host in {node.name for node in slurm_lab.nodes}
    assert found[ids[0]].started is not None


def test_the_end_of_a_job_that_left_no_word_is_asked_of_the_accounting(open_bench, slurm_lab, monkeypatch):
    bench = open_bench(account="physics", set_up=["sleep 60"])
    name = bench.submit(find_job(bench, "true"))
    bench.eventually(lambda: "the set-up lines run" in bench.status(name).reason)
    slurm_lab.ask(f"scancel {bench.handles[name]['id']}")
    ended = f"sacct -n -X -P -j {bench.handles[name]['id']} -o State"
    eventually(lambda: slurm_lab.ask(ended).startswith("CANCELLED"))
    monkeypatch.setattr("nnilite_slurm._api.from_json", without_forgotten(bench.handles[name]["id"]))
    assert bench.wait(name).reason == "Slurm: CANCELLED, but not by nnilite"


def without_forgotten(job):
    """Reads JSON as if slurmctld had forgotten the job, as it does after MinJobAge; that of sacct has no batch host."""
    return lambda text, *more: [one for one in from_json(text, *more) if one.id != job or b"batch_host" not in text]


def test_an_account_over_its_limit_lets_trials_wait_and_says_so(open_bench):
    bench = open_bench(account="chemistry")
    first, second = (bench.submit(find_job(bench, bench.until("go"))) for _ in range(2))
    bench.wait(first, JobState.RUNNING)
    reason = bench.eventually(lambda: (told := bench.status(second).reason).count("Assoc") and told)
    assert reason.startswith("waits in Slurm (AssocMaxJobsLimit): the account or user is over a limit; it starts when")


def test_a_full_account_refuses_further_trials_for_now(open_bench):
    bench = open_bench(account="biology")
    bench.submit(find_job(bench, "sleep 60"))
    error = bench.refusal(bench.service.submit(find_job(bench, "true")))
    assert type(error).__name__ == "NoCapacity"
    assert "a limit of the account is reached, so other jobs must end first" in str(error)


def test_an_account_of_somebody_else_is_refused_at_the_start(open_bench):
    with pytest.raises(ConfigError) as caught:
        open_bench(account="nobodys")
    assert caught.value.place.field == "account"


def test_a_quality_of_service_that_does_not_exist_is_refused_at_the_start(open_bench):
    with pytest.raises(ConfigError) as caught:
        open_bench(account="physics", qos="golden")
    assert caught.value.place.field == "qos"
