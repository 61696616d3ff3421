"""What jobs on OpenPAI are made of: roles, storage, logs, and jobs of the user's own."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest
import yaml

from nnilite.errors import ConfigError
from nnilite.service import JobState
from nnilite.testing import ServiceBench, eventually
from nnilite.testing.probes import python, quoted
from nnilite_openpai._config import PaiRoleConfig, RegistryLogin, RoleCompletion
from platforms.pai.bench import config_for

pytestmark = pytest.mark.process

REPORT = "import nnilite; nnilite.report_final_result({})"
DISCOVERY = """
import nnilite, os
names = ("PAI_CURRENT_TASK_ROLE_NAME", "PAI_TASK_ROLE_LIST", "PAI_TASK_ROLE_ps_HOST_LIST",
         "PAI_TASK_ROLE_TASK_COUNT_worker", "PAI_PORT_LIST_ps_0_grpc", "PAI_HOST_IP_worker_1")
nnilite.report_final_result([os.environ.get(name) for name in names])
"""


def roles(worker, ps="sleep 60"):
    return [
        PaiRoleConfig(name="ps", command=ps, ports={"grpc": 1}),
        PaiRoleConfig(name="worker", command=worker, instances=2),
    ]


def test_a_trial_of_several_roles_finds_the_others_by_the_platforms_variables(open_pai):
    bench = open_pai(task_roles=roles(python(DISCOVERY)), reporting_role="worker")
    [values] = bench.finish(bench.run("unused")).values
    role, names, hosts, count, port, ip = values
    assert (role, names, count, ip) == ("worker", "ps,worker", "2", "127.0.0.1")
    assert hosts.startswith("127.0.0.1:")
    assert port.isdigit()


def test_only_the_first_task_of_the_reporting_role_reports(pai, open_pai):
    index = 'import nnilite, os; nnilite.report_final_result(int(os.environ["PAI_TASK_INDEX"]))'
    bench = open_pai(task_roles=roles(python(index), python(REPORT.format('"ps"'))), reporting_role="worker")
    name = bench.run("unused")
    assert bench.finish(name).values == [0]
    assert pai.job(name).code is not None


def test_the_first_role_speaks_for_the_trial_where_none_is_named(open_pai):
    bench = open_pai(task_roles=roles("sleep 60", ps=python(REPORT.format(7))))
    assert bench.finish(bench.run("unused")).values == [7]


def test_a_role_without_a_command_runs_the_trial_command(open_pai):
    bench = open_pai(task_roles=[PaiRoleConfig(name="solo")])
    assert bench.finish(bench.python(REPORT.format(5))).values == [5]


def test_another_role_that_fails_ends_the_trial_with_its_own_reason(open_pai):
    bench = open_pai(task_roles=roles("sleep 60", ps="exit 9"), reporting_role="worker")
    status = bench.wait(bench.run("unused"))
    assert status.state is JobState.FAILED
    assert "(ps 0)" in status.reason


def test_a_policy_of_completion_is_handed_on(pai, open_pai):
    completion = RoleCompletion(min_failed_instances=-1, min_succeeded_instances=1)
    bench = open_pai(task_roles=[PaiRoleConfig(name="worker", instances=2, completion=completion)])
    name = bench.run('test "$PAI_TASK_INDEX" = 0')
    bench.wait(name)
    assert pai.job(name).content["taskRoles"]["worker"]["completion"] == {
        "minFailedInstances": -1,
        "minSucceededInstances": 1,
    }


def test_older_servers_join_lines_in_another_way(pai, open_pai):
    pai.joined_by = " && "
    bench = open_pai()
    assert bench.finish(bench.python(REPORT.format(1))).values == [1]
    assert bench.wait(bench.run("exit 7")).exit_code == 7


def test_all_fields_of_the_section_arrive(pai, open_pai):
    pai.hived = True
    login = RegistryLogin(username="r", password="registry 'secret'", registry_uri="registry.example.com")
    bench = open_pai(
        registry_login=login, gpu_type="V100", job_priority="oppo", shm_size=512, virtual_cluster="vision",
        trial_cpu_number=2, trial_memory_size=2048,
    )  # fmt: skip
    name = bench.submit(bench.job("true", gpus=1))
    job = pai.job(name).content
    assert job["taskRoles"]["taskrole"]["resourcePerInstance"] == {"gpu": 1, "cpu": 2, "memoryMB": 2048}
    assert job["taskRoles"]["taskrole"]["extraContainerOptions"] == {"shmMB": 512}
    assert job["defaults"] == {"virtualCluster": "vision"}
    assert job["extras"]["hivedScheduler"] == {
        "taskRoles": {"taskrole": {"skuType": "V100"}},
        "jobPriorityClass": "oppo",
    }
    auth = job["prerequisites"][0]["auth"]
    assert (auth["username"], auth["password"]) == ("r", "<% $secrets.nnilite_registry_password %>")
    assert job["secrets"]["nnilite_registry_password"] == "registry 'secret'"


def test_a_dry_run_shows_what_is_sent_but_for_secrets(pai, open_pai):
    bench = open_pai()
    job = bench.job("true")
    shown = bench.service.describe(job)
    bench.submit(job)
    sent = pai.job(job.name).content
    assert {**shown["job"], "secrets": 0} == {**sent, "secrets": 0}
    assert shown["job"]["secrets"] == dict.fromkeys(sent["secrets"], "********")
    assert shown["request"] == f"POST {pai.url}/rest-server/api/v2/jobs"


# ------------------------------------------------------------ without a way to the manager


def test_reports_travel_through_the_log(pai, open_pai):
    bench = open_pai(nni_manager_ip="192.0.2.1")
    bench.put_code(**{"mod.py": "VALUE = 4"})
    name = bench.run(
        python("import mod, nnilite; print('hello'); nnilite.report_final_result(mod.VALUE)"), report="stdout"
    )
    assert bench.wait(name).state is JobState.SUCCEEDED
    assert bench.finish(name).values == [4]
    assert b"hello\n" in bench.call(bench.service.logs(bench.handles[name], "stdout", 0, 10_000))
    assert "nnilite_code" in pai.job(name).content["secrets"]


def test_what_a_manager_has_missed_that_was_away_is_in_the_log(open_pai):
    bench = open_pai()
    go = bench.mark("go")
    wait = f"while ! test -e {quoted(go)}; do sleep 0.02; done; "
    name = bench.run(wait + python(REPORT.format(8)), linger_s=0.5)
    eventually(lambda: bench.received(name).started)
    bench.receiver.stop()
    go.touch()
    assert bench.wait(name).state is JobState.SUCCEEDED
    events = bench.call(bench.service.reports(bench.handles[name]))
    bench.receiver.start()
    assert {event.index: event.value for event in events if hasattr(event, "value")} == {0: 8}  # again by the recap


def test_code_that_is_too_long_for_a_job_is_refused_with_the_cure(open_pai):
    import random

    bench = open_pai()
    bench.put_code(**{"data.txt": "".join(random.Random(1).choices("abcdefghijklmnop", k=200_000))})
    refusal = bench.refusal(bench.service.submit(bench.job("true", report="stdout")))
    assert isinstance(refusal, ConfigError)
    assert "with localStorageMountPoint" in str(refusal)


def test_code_that_makes_each_job_too_long_is_refused_at_the_start(open_pai, monkeypatch):
    context = ServiceBench.context
    monkeypatch.setattr(ServiceBench, "context", lambda bench: replace(context(bench), defaults={"callback": "log"}))
    bench = open_pai()
    with pytest.raises(ConfigError, match=r"and PAI accepts 102400: .* with localStorageMountPoint"):
        bench.put_code(**{"data.txt": os.urandom(50_000).hex()})


# ------------------------------------------------------------ a storage


@pytest.fixture
def storage(tmp_path):
    """Where tasks and manager have the storage, which is one place here."""
    folder = tmp_path / "the storage's $HOME"
    folder.mkdir()
    fields = {"storage_config_name": "data", "local_storage_mount_point": folder}
    return {**fields, "container_storage_mount_point": str(folder)}


def test_code_and_outputs_are_in_the_storage(pai, open_pai, storage):
    bench = open_pai(**storage)
    bench.put_code(**{"mod.py": "VALUE = 4"})
    name = bench.run(
        python("import mod, nnilite; nnilite.report_final_result(mod.VALUE)") + '; echo x > "$NNI_OUTPUT_DIR"/x'
    )
    assert bench.finish(name).values == [4]
    assert list(pai.job(name).content["secrets"]) == ["nnilite_start"]
    mounted = pai.job(name).content["extras"]["storages"]
    assert mounted == [{"name": "data", "mountPath": storage["container_storage_mount_point"]}]
    trial = bench.handles[name]["job"].split("-")[2]
    assert list(storage["local_storage_mount_point"].glob(f"nni/*/{trial}/0/**/x"))


def test_the_trials_files_are_fetched_from_the_storage(open_pai, storage, tmp_path):
    bench = open_pai(**storage)
    name = bench.run("""echo weights > "$NNI_OUTPUT_DIR"/'model $x.bin'""")
    bench.finish(name)
    bench.call(bench.service.fetch(bench.handles[name], tmp_path / "fetched"))
    assert (tmp_path / "fetched" / "model $x.bin").read_text() == "weights\n"
    token = bench.received(name).token.encode()
    assert not [path for path in (tmp_path / "fetched").rglob("*") if path.is_file() and token in path.read_bytes()]


def test_without_a_storage_there_are_no_files_to_fetch(open_pai, tmp_path):
    bench = open_pai()
    name = bench.run("true")
    bench.finish(name)
    error = bench.refusal(bench.service.fetch(bench.handles[name], tmp_path / "fetched"))
    assert "set storageConfigName and localStorageMountPoint to keep them" in str(error)


def test_keepers_find_a_manager_that_came_back_elsewhere(open_pai, storage):
    bench = open_pai(**storage)
    go = bench.mark("go")
    name = bench.run(f"while ! test -e {quoted(go)}; do sleep 0.02; done; " + python(REPORT.format(3)))
    bench.wait(name, JobState.RUNNING)
    bench.close()
    bench.receiver.stop()
    bench.receiver.start(0)
    bench.open()
    go.touch()
    assert bench.finish(name).values == [3]


def test_a_storage_that_cannot_be_written_lets_trials_wait(open_pai, storage, tmp_path):
    place = tmp_path / "file"
    place.write_text("")
    bench = open_pai(**{**storage, "local_storage_mount_point": place})
    assert f"cannot write to the storage at {place}" in str(bench.refusal(bench.service.submit(bench.job("true"))))


# ------------------------------------------------------------ a job of the user's own


TEMPLATE = """
protocolVersion: 2
name: mine
type: job
contributor: me
prerequisites:
- {type: dockerimage, uri: 'python:3.11', name: img}
parameters: {number: 6}
taskRoles:
  worker:
    instances: 1
    completion: {minFailedInstances: 1}
    dockerImage: img
    resourcePerInstance: {gpu: 0, cpu: 1, memoryMB: 1024}
    commands:
    - export MY_NUMBER=<% $parameters.number %>
    - python3 -c 'import nnilite, os; nnilite.report_final_result(int(os.environ["MY_NUMBER"]))'
defaults: {virtualCluster: vision}
extras: {submitFrom: somewhere}
"""


@pytest.mark.parametrize("by_file", [False, True])
def test_trials_are_made_of_a_job_of_the_users_own(pai, open_pai, tmp_path, by_file):
    path = tmp_path / "job of 'mine'.yaml"
    path.write_text(TEMPLATE)
    given = {"openpai_config_file": path} if by_file else {"openpai_config": yaml.safe_load(TEMPLATE)}
    bench = open_pai(**given)
    name = bench.run("unused")
    assert bench.finish(name).values == [6]
    job = pai.job(name).content
    assert (job["name"], job["contributor"], job["defaults"]) == (name, "me", {"virtualCluster": "vision"})


def _template(**changes):
    return {**yaml.safe_load(TEMPLATE), **changes}


def _with_role(**changes):
    template = _template()
    template["taskRoles"]["worker"].update(changes)
    return template


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ([], "must be a job of PAI's protocol v2"),
        ({"taskRoles": [{}]}, "is a job of PAI before 1.0; convert it with `nnictl config convert --from openpai`"),
        ({"taskRoles": {}}, "must have protocolVersion: 2"),
        (_template(taskRoles={}), "must have taskRoles"),
        (_template(taskRoles={"a b": {}}), "must have letters and digits only, not 'a b'"),
        (_template(taskRoles={"a": {"commands": "x"}}), "the task role a must have commands, a list of lines"),
        (_template(prerequisites=[]), "must have a dockerImage that is in prerequisites"),
        (_template(prerequisites=5), "must have prerequisites as a list, not 5"),
        (_template(secrets=["a"]), "must have secrets as a mapping"),
        (_template(extras=["a"]), "must have extras as a mapping"),
        (_template(extras={"hivedScheduler": 1}), "must have extras.hivedScheduler as a mapping"),
        (_template(extras={"storages": ["a"]}), "must have mappings in extras.storages"),
        (_with_role(dockerImage=["img"]), "must have a dockerImage that is in prerequisites"),
        (_with_role(instances="two"), "must have a whole number as instances, not 'two'"),
        (_template(parameters={}), "the commands of worker cannot use <% \\$parameters.number %>"),
    ],
)
def test_a_job_that_no_trial_can_be_made_of_is_refused(pai, template, words):
    with pytest.raises(ConfigError, match=f"openpaiConfig: .*{words}"):
        config_for(pai, openpai_config=template)


def test_all_waiting_jobs_of_a_full_virtual_cluster_run_one_after_the_other(pai, open_pai):
    bench = open_pai(virtual_cluster="vision")
    names = [bench.submit(bench.job(bench.until("go"), gpus=2)) for _ in range(2)]
    eventually(lambda: "Insufficient nvidia.com/gpu" in bench.status(names[1]).reason)
    bench.give("go")
    assert [bench.wait(name).state for name in names] == [JobState.SUCCEEDED] * 2
