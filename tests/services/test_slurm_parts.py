"""The pure parts of nnilite_slurm: answers of many versions, scripts, verdicts, words."""

from __future__ import annotations

import asyncio
import json
import math
import os
from dataclasses import replace

import pytest

from nnilite.errors import JobRefused, NoCapacity, NotFound, ServiceError
from nnilite.records import NodeCounts
from nnilite.service import JobState
from nnilite.services.cluster.attempt_folders import AttemptFolders
from nnilite.services.cluster.job_script import pythons_of, run_limit_s
from nnilite.services.cluster.login import ThisMachine
from nnilite.services.cluster.queue_watch import QueueWatch
from nnilite.services.cluster.queued_job import QueuedJob
from nnilite.services.first_seen import FirstSeen
from nnilite_slurm import SlurmConfig, SlurmContainerConfig
from nnilite_slurm._api import SlurmApi, make_full_queue, refusal
from nnilite_slurm._listing import from_json, make_slurm_job, parse_sacct_text, parse_squeue_text, read_time_limits
from nnilite_slurm._reasons import explain_slurm_end, explain_slurm_wait
from nnilite_slurm._script import make_joiner_script, make_script
from nnilite_slurm._service import surroundings

# As Slurm 22.05 (data_parser v0.0.38) and 24.05 (v0.0.41) tell of the same job.
OLD = {"job_id": 8, "name": "nni-a-b-0", "job_state": "RUNNING", "state_reason": "None", "batch_host": "n1"}
OLD |= {"array_job_id": 0, "array_task_id": None, "start_time": 1795344053, "exit_code": 0, "nodes": "n1"}
NEW = {"job_id": 8, "name": "nni-a-b-0", "job_state": ["RUNNING"], "state_reason": "None", "batch_host": "n1"}
NEW |= {
    "array_job_id": {"set": True, "infinite": False, "number": 0},
    "array_task_id": {"set": False, "infinite": False, "number": 0},
    "start_time": {"set": True, "infinite": False, "number": 1795344053},
    "exit_code": {"status": ["SUCCESS"], "return_code": {"set": True, "number": 0}, "signal": {"id": {"set": False}}},
    "nodes": {"list": "n1", "count": 1},
}
RUNNING = replace(make_slurm_job("8", "nni-a-b-0", "RUNNING", "None", "n1", 1795344053.0, 0), nodes=("n1",))


@pytest.mark.parametrize("job", [OLD, NEW], ids=["22.05", "24.05"])
def test_the_json_of_each_version_tells_the_same(job):
    assert from_json(json.dumps({"jobs": [job], "errors": []})) == [RUNNING]


def test_the_tasks_of_a_job_array_are_jobs_of_their_own():
    started = {**OLD, "job_id": 11, "array_job_id": 10, "array_task_id": 1}
    waiting = {**OLD, "job_id": 10, "array_job_id": 10, "array_task_string": "2-3,5%2", "job_state": "PENDING"}
    found = {job.id: job.state for job in from_json(json.dumps({"jobs": [started, waiting]}))}
    assert found == {"10_1": "RUNNING", "10_2": "PENDING", "10_3": "PENDING", "10_5": "PENDING"}


@pytest.mark.parametrize("owner", [1001, {"set": True, "number": 1001}])
def test_jobs_of_other_users_with_the_same_name_are_left_out(owner):
    many = {**OLD, "job_id": 9, "user_id": owner, "array_job_id": 9, "array_task_string": "0-100000"}
    other = {**OLD, "job_id": 7, "name": "theirs", "user_id": 1000, "job_state": 5, "nodes": ["x"]}
    mine = {**OLD, "user_id": 1000}
    listed = json.dumps({"jobs": [many, other, mine], "errors": []})
    assert from_json(listed, "nni-a-", 1000) == [RUNNING]
    assert from_json(json.dumps({"jobs": [many], "errors": [{"error": "odd"}]}), "nni-a-", 1000) == []


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (["COMPLETED", "COMPLETING"], "COMPLETING"),
        (["PENDING", "REQUEUED"], "REQUEUED"),
        (["RUNNING", "CONFIGURING"], "CONFIGURING"),
        ("CANCELLED by 1000", "CANCELLED"),
        (["NEW_STATE"], "NEW_STATE"),
    ],
)
def test_a_state_with_flags_is_one_state(state, expected):
    assert from_json(json.dumps({"jobs": [{**OLD, "job_state": state}]}))[0].state == expected


def test_the_end_of_a_job_by_a_signal_has_a_negative_code():
    assert from_json(json.dumps({"jobs": [{**OLD, "exit_code": 15}]}))[0].exit_code == -15
    assert from_json(json.dumps({"jobs": [{**OLD, "exit_code": 7 << 8}]}))[0].exit_code == 7
    text = "5|nni-a-b-0|CANCELLED by 0|1795344053|n[1-3]|0:15\n"
    assert parse_sacct_text(text) == [make_slurm_job("5", "nni-a-b-0", "CANCELLED", "", "n1", 1795344053.0, -15)]


def test_the_text_of_squeue_is_read_with_its_reasons():
    told = "10_2|nni-a|PENDING|N/A|n/a||(ReqNodeNotAvail, UnavailableNodes:n1|n2)\n"
    waiting, running = parse_squeue_text(f"{told}8|nni-a-b-0|RUNNING|1795344053|n1|n[1-2]|None\n")
    assert waiting == make_slurm_job("10_2", "nni-a", "PENDING", "(ReqNodeNotAvail, UnavailableNodes:n1|n2)")
    assert (running.host, running.started, running.nodes) == ("n1", 1795344053.0, ("n1", "n2"))
    other, ours = parse_squeue_text(f"7|two\nlines|RUNNING|N/A|n/a||None\n{told}")
    assert (other.name, ours) == ("two lines", waiting)


@pytest.mark.parametrize(
    "text", ["", "no", "[]", '{"jobs": 5}', '{"jobs": [{}]}', '{"jobs": [[]]}', '{"jobs": [{"job_id": 1}]}']
)
def test_an_answer_that_is_no_list_of_jobs_is_an_error_and_not_an_empty_list(text):
    with pytest.raises(ServiceError):
        from_json(text)
    with pytest.raises(ServiceError):
        parse_squeue_text("what|is this")


def test_an_error_beside_an_empty_list_is_no_empty_list():
    answer = {"jobs": [], "errors": [{"error": "Unspecified error", "error_number": -1}]}
    with pytest.raises(ServiceError, match="Unspecified error"):
        from_json(json.dumps(answer))
    assert from_json(json.dumps({"jobs": [], "errors": [{"error": "Nothing found with query"}]})) == []


# ---------------------------------------------------------------- verdicts


def watch(**notes: object) -> QueueWatch:
    found = QueueWatch("Slurm", "nni-a-b-0", "a/trials/b/0", "8", signs=frozenset({"spec.json"}))
    for name, value in notes.items():
        found.notes[name.replace("_", "/")] = value.encode() if isinstance(value, str) else json.dumps(value).encode()
    return found


def with_records(started: bool = True, **exited: object) -> QueueWatch:
    found = watch()
    if started:
        found.notes[".nni/started"] = b'{"time": 5.0}'
    if exited:
        found.notes[".nni/exit"] = json.dumps({"time": 9.0, **exited}).encode()
    return found


def job(state: str, reason: str = "None", code: int | None = None) -> QueuedJob:
    return make_slurm_job("8", "nni-a-b-0", state, reason, "n1", 4.0, code)


INTERRUPTED = {"code": -15, "message": "canceled by SIGTERM", "cause": "interrupted"}
VERDICTS = [
    (with_records(), "RUNNING", JobState.RUNNING, ""),
    (with_records(started=False), "RUNNING", JobState.WAITING, "Slurm started the job on n1: the set-up lines run"),
    (with_records(started=False), "CONFIGURING", JobState.WAITING, "the node is being prepared"),
    (with_records(code=0), "COMPLETED", JobState.SUCCEEDED, ""),
    (with_records(code=0), "RUNNING", JobState.SUCCEEDED, ""),
    (with_records(code=3), "FAILED", JobState.FAILED, ""),
    (with_records(), "NODE_FAIL", JobState.LOST, "Slurm: NODE_FAIL, the job's node failed"),
    (with_records(**INTERRUPTED), "PREEMPTED", JobState.LOST, "another job preempted it"),
    (with_records(**INTERRUPTED), "COMPLETING", JobState.RUNNING, "the job has ended; Slurm: COMPLETING"),
    (with_records(**INTERRUPTED), "TIMEOUT", JobState.FAILED, "set timeLimit higher"),
    (with_records(**INTERRUPTED), "CANCELLED", JobState.CANCELED, "Slurm: CANCELLED"),
    (with_records(), "TIMEOUT", JobState.FAILED, "set timeLimit higher"),
    (with_records(code=137), "OUT_OF_MEMORY", JobState.FAILED, "set `memory` higher"),
    (with_records(), "OUT_OF_MEMORY", JobState.FAILED, "set `memory` higher"),
    (with_records(), "SUSPENDED", JobState.RUNNING, ""),
    (with_records(), "SOMETHING_NEW", JobState.UNKNOWN, "SOMETHING_NEW"),
    (watch(failed="no Python"), "FAILED", JobState.FAILED, "no Python"),
    (watch(again="started again"), "COMPLETED", JobState.LOST, "started again"),
]


@pytest.mark.parametrize(
    ("seen", "state", "expected", "words"), VERDICTS, ids=[f"{n}-{v[1]}" for n, v in enumerate(VERDICTS)]
)
def test_what_slurm_and_the_keeper_say_makes_one_state(seen, state, expected, words):
    status = seen.status(job(state))
    assert status.state is expected
    assert words in status.reason


@pytest.mark.parametrize("listed", [job("RUNNING"), job("FAILED"), None])
def test_a_cancellation_takes_back_no_end_that_was_told(listed):
    seen, asked = with_records(code=3), with_records(code=3)
    assert seen.status(listed).exit_code == 3
    seen.canceled = asked.canceled = True
    assert [seen.status(job(state)).exit_code for state in ("RUNNING", "COMPLETING", "FAILED")] == [3, 3, 3]
    assert asked.status(job("RUNNING")).state is JobState.RUNNING


def test_a_job_that_runs_and_then_waits_was_put_back_and_is_lost():
    seen = with_records()
    assert seen.status(job("PENDING", "BeginTime")).state is JobState.WAITING
    seen.found({})
    assert seen.status(job("PENDING", "BeginTime")).reason == "Slurm put the job back into the queue (BeginTime)"


def test_a_silent_end_is_waited_for_since_files_are_seen_late():
    now = [0.0]
    seen = with_records()
    seen.since = FirstSeen(lambda: now[0])
    assert seen.status(job("COMPLETED")).state is JobState.RUNNING
    now[0] = 61.0
    assert seen.status(job("COMPLETED")).state is JobState.LOST
    assert seen.status(job("FAILED", code=9)).exit_code == 9


def test_a_record_that_the_trial_has_spoilt_harms_nobody():
    for time in (b'"then"', b"1" + b"0" * 400, b"NaN"):
        seen = watch()
        seen.notes |= {".nni/exit": b"[1, 2]", ".nni/started": b'{"time": %s}' % time}
        assert seen.status(job("RUNNING")).state is JobState.WAITING


# ---------------------------------------------------------------- scripts and words


def test_the_script_has_all_options_and_no_path_of_the_manager():
    config = SlurmConfig(
        partition="gpu,cpu", account="me", qos="high", gres="gpu:a100:2", constraint="a|b", memory=2048
    )
    script = make_script("nni-x", config, "nnilite:x", "keeper-1.pyz", 4)
    lines = {line for line in script.splitlines() if line.startswith("#SBATCH")}
    wanted = {
        "--partition=gpu,cpu",
        "--account=me",
        "--qos=high",
        "--gres=gpu:a100:2",
        "--constraint=a|b",
        "--mem=2048M",
    }
    assert {f"#SBATCH {option}" for option in wanted | {"--no-requeue", "--comment=nnilite:x"}} <= lines
    assert "/home" not in script


def test_a_trial_of_a_fixed_number_of_nodes_is_one_step_on_all_of_them():
    script = make_script("nni-x", SlurmConfig(cpus=4), "", "k", None, nodes=NodeCounts(3, 3))
    assert "#SBATCH --nodes=3\n#SBATCH --ntasks-per-node=1\n" in script
    assert (
        "srun --nodes=3 --ntasks=3 --ntasks-per-node=1 --kill-on-bad-exit=0 --wait=0 --cpus-per-task=4 /bin" in script
    )
    assert "no-kill" not in script


def test_an_elastic_trial_keeps_its_allocation_and_is_joined_by_jobs_of_one_node():
    config = SlurmConfig(cpus=4, container=SlurmContainerConfig("i", "pyxis"))
    script = make_script("nni-x", config, "", "k", None, nodes=NodeCounts(1, 3))
    assert "#SBATCH --nodes=1-3\n#SBATCH --no-kill\n" in script
    assert "srun --nodes=$SLURM_JOB_NUM_NODES --ntasks=$SLURM_JOB_NUM_NODES --ntasks-per-node=1 " in script
    assert " --cpus-per-task=4 --no-kill --container-image=i" in script
    joiner = make_joiner_script("nni-x+", config, "", "k", 2)
    assert "#SBATCH --nodes=1\n" in joiner
    assert "NNILITE_JOINED_NODE=$((100000 + SLURM_JOB_ID))\n" in joiner
    assert "exec srun --ntasks=1 --container-image=i" in joiner


def test_gpus_are_asked_for_where_gres_is_not_set():
    assert "#SBATCH --gres=gpu:3\n" in make_script("nni-x", SlurmConfig(), "", "k", 3)
    assert "--gres" not in make_script("nni-x", SlurmConfig(), "", "k", 0)


@pytest.mark.parametrize(
    ("runtime", "words"),
    [
        ("singularity", 'exec singularity exec --bind "$root:$root" --pwd "$PWD" --nv \'my image\' /bin/sh'),
        ("pyxis", "exec srun --ntasks=1 --container-image='my image' --container-mounts=\"$root:$root\" --nv /bin/sh"),
        ("oci", "exec srun --ntasks=1 --container='my image' --nv /bin/sh"),
    ],
)
def test_the_containers_of_a_cluster_are_started_by_their_own_means(runtime, words):
    config = SlurmConfig(container=SlurmContainerConfig("my image", runtime, ["--nv"]))
    assert words in make_script("nni-x", config, "", "k", None)


def test_a_trial_ends_its_grace_and_a_minute_before_the_limit():
    assert run_limit_s(600, 10) == 530
    assert run_limit_s(None, 10) is None


def test_python_is_looked_for_under_the_path_that_is_given():
    assert pythons_of("/opt/venv/")[2:] == ["/opt/venv/bin/python3", "/opt/venv/bin/python", "/opt/venv"]


@pytest.mark.parametrize(
    ("words", "kind", "place"),
    [
        ("sbatch: error: invalid partition specified: x", JobRefused, "partition"),
        ("Batch job submission failed: Job violates accounting/QOS policy (job submit limit)", NoCapacity, None),
        ("sbatch: error: QOSMaxSubmitJobPerUserLimit", NoCapacity, None),
        ("Batch job submission failed: Unable to contact slurm controller (connect failure)", ServiceError, None),
        (
            "Batch job submission failed: Requested time limit is invalid (missing or exceeds some limit)",
            JobRefused,
            "timeLimit",
        ),
        (
            "Batch job submission failed: Slurm temporarily unable to accept job, sleeping and retrying",
            ServiceError,
            None,
        ),
    ],
)
def test_what_sbatch_says_is_for_good_or_for_now(words, kind, place):
    error = refusal(words)
    assert type(error) is kind
    assert getattr(error, "place", None) is None or error.place.field == place


def test_reasons_are_told_in_words():
    assert "jobs with a higher priority" in explain_slurm_wait("Priority")
    assert "the quality of service is over a limit" in explain_slurm_wait("QOSMaxGRESPerUser")
    assert explain_slurm_wait("SomethingNew") == "waits in Slurm (SomethingNew)"
    assert explain_slurm_end("FAILED", "NonZeroExitCode") == "Slurm: FAILED, NonZeroExitCode"


def test_the_variables_of_the_managers_own_job_are_not_handed_on():
    found = surroundings({"SLURM_JOB_ID": "5", "SLURM_CONF": "/x", "PATH": "/bin", "SBATCH_ACCOUNT": "me"})
    assert found == {"SLURM_CONF": "/x", "PATH": "/bin", "SBATCH_ACCOUNT": "me"}


@pytest.fixture
def api(tmp_path):
    """Slurm's machine is this one, with the folder of one attempt."""
    folder = tmp_path / "e/trials/t/0"
    (folder / ".nni").mkdir(parents=True)
    (folder / ".nni/started").write_text("small")
    return SlurmApi(ThisMachine(None), str(tmp_path)), folder


@pytest.mark.process
def test_one_trial_with_a_huge_file_or_a_link_for_a_note_does_not_keep_the_others(api):
    slurm, folder = api
    with (folder / ".nni/exit").open("wb") as file:
        file.truncate(60 << 30)
    (folder / "link").symlink_to("/etc/passwd")
    names = [f"e/trials/t/0/{name}" for name in (".nni/exit", "link", "none", ".nni/started")]
    assert asyncio.run(slurm.files.read_files(names)) == {names[-1]: b"small"}
    assert asyncio.run(slurm.files.piece(names[1], 0, 10)) == b""


@pytest.mark.process
def test_what_a_command_prints_is_not_all_held(api, monkeypatch):
    monkeypatch.setattr("nnilite.ssh.answer_sink.MOST_ANSWER_BYTES", 1 << 20)
    slurm, _ = api
    with pytest.raises(ServiceError, match="printed more than 1 MB"):
        asyncio.run(slurm.host.run("exec cat /dev/zero"))


@pytest.mark.process
def test_a_folder_is_listed_with_any_names_and_files_come_one_by_one(api, tmp_path):
    slurm, folder = api
    odd = "a b'\"$\n.txt"
    (folder / odd).write_text("odd")
    (folder / "link").symlink_to("/etc/passwd")
    (folder / "code").mkdir()
    (folder / "code/program.py").touch()
    folders = AttemptFolders(slurm.files)
    found = asyncio.run(folders.files("e/trials/t/0"))
    assert sorted((one.path, one.size, one.kind) for one in found if one.kind == "file") == [(odd, 3, "file")]
    assert [one.target for one in found if one.kind == "link"] == ["/etc/passwd"]
    asyncio.run(folders.fetch_file("e/trials/t/0", odd, tmp_path / "here", 3))
    assert (tmp_path / "here" / odd).read_text() == "odd"
    for path in ("link", "code/program.py", "none"):
        with pytest.raises(NotFound):
            asyncio.run(folders.fetch_file("e/trials/t/0", path, tmp_path / "here", 99))


_HANGS = """#!/bin/sh
case "$*" in *trials/hung/*) echo asked >>"$0.asked"; exec sleep 60;; esac
exec /usr/bin/%s "$@"
"""


@pytest.fixture
def hung(tmp_path):
    """Slurm's machine, with two attempts, of which the folder of one hangs."""
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "squeue").write_text("#!/bin/sh\necho '{\"jobs\": []}'\n")
    for name in ("stat", "find", "tail"):
        (programs / name).write_text(_HANGS % name)
    for program in programs.iterdir():
        program.chmod(0o755)
    for trial in ("hung", "well"):
        (tmp_path / f"e/trials/{trial}/0/.nni").mkdir(parents=True)
        (tmp_path / f"e/trials/{trial}/0/.nni/started").write_text("small")
    return SlurmApi(ThisMachine(str(programs)), str(tmp_path))


STARTED = [f"e/trials/{trial}/0/.nni/started" for trial in ("well", "hung")]


@pytest.mark.process
def test_a_folder_that_hangs_is_left_out_of_the_look_at_all(hung, tmp_path):
    look = asyncio.run(hung.look("nni-e-", [], STARTED))
    assert (look.jobs, look.sizes, look.hanging) == ({}, {STARTED[0]: 5}, {"e/trials/hung/0"})
    asked = (tmp_path / "bin/stat.asked").read_text()
    look = asyncio.run(hung.look("nni-e-", [], STARTED))
    assert look.sizes == {STARTED[0]: 5}
    assert (tmp_path / "bin/stat.asked").read_text() == asked
    for work in (hung.files.piece(STARTED[1], 0, 10), AttemptFolders(hung.files).files("e/trials/hung/0")):
        with pytest.raises(ServiceError, match="does not answer"):
            asyncio.run(work)


@pytest.mark.process
def test_a_listing_that_hangs_is_given_up(hung):
    with pytest.raises(ServiceError, match="does not answer"):
        asyncio.run(AttemptFolders(hung.files).files("e/trials/hung/0"))


@pytest.mark.process
def test_a_note_that_hangs_holds_up_no_other_note(hung):
    assert asyncio.run(hung.files.read_files(STARTED)) == {STARTED[0]: b"small"}


@pytest.mark.process
def test_a_folder_that_answers_again_is_looked_at_again(hung, tmp_path, monkeypatch):
    asyncio.run(hung.files.read_files(STARTED))
    monkeypatch.setattr("nnilite.services.cluster.hanging_folders._AGAIN_S", 0.0)
    for name in ("stat", "find"):
        (tmp_path / "bin" / name).unlink()
    hung.files.hanging._aside = dict.fromkeys(hung.files.hanging._aside, 0.0)
    look = asyncio.run(hung.look("nni-e-", [], STARTED))
    assert (look.sizes, look.hanging) == (dict.fromkeys(STARTED, 5), frozenset())


@pytest.mark.process
def test_an_attempt_whose_folder_hangs_is_canceled_all_the_same(hung, tmp_path):
    said = tmp_path / "said"
    scancel = tmp_path / "bin/scancel"
    scancel.write_text(f'#!/bin/sh\necho "$*" >>{said}\n')
    scancel.chmod(0o755)
    (tmp_path / "e/trials/hung/0/canceled").symlink_to(tmp_path / "pipe")
    os.mkfifo(tmp_path / "pipe")  # to open it for writing waits for a reader
    asyncio.run(hung.cancel("e/trials/hung/0", "17"))
    assert said.read_text().splitlines() == ["--state=PENDING 17", "--state=RUNNING --batch --signal=TERM 17"]


@pytest.mark.parametrize("words", ["Slurm job queue full", "Slurm temporarily unable to accept job"])
def test_what_sbatch_would_wait_for_is_a_lack_of_room_with_slurms_words(words):
    error = make_full_queue(f"sbatch: error: {words}, sleeping and retrying")
    assert str(error).endswith(f"(MaxJobCount); it says: {words}")


def test_time_limits_of_partitions_are_read_in_all_of_sinfos_forms():
    listed = "debug*|infinite\nshort|5:00\nhours|12:00:00\nlong|2-12:00:00\nodd|n/a\n"
    inf = float("inf")
    expected = {"debug": inf, "": inf, "short": 300, "hours": 43200, "long": 216000, "odd": inf}
    assert read_time_limits(listed) == expected


@pytest.mark.parametrize(
    "number", ["9" * 400, "9" * 5000, "\u0663" * 5000, "\u00b2"], ids=["huge", "longer", "other digits", "power"]
)
def test_a_number_without_an_end_is_left_out_of_slurms_answers(number):
    [queued] = parse_squeue_text(f"8|nni|RUNNING|{number}|n1|n1|None")
    [ended] = parse_sacct_text(f"8|nni|FAILED|{number}|n1|{number}:{number}")
    assert (queued.started, ended.started, ended.exit_code) == (None, None, None)
    assert read_time_limits(f"long|{number}:00\nlonger|{number}-00:00:00") == dict.fromkeys(
        ("long", "longer"), math.inf
    )
    [listed] = from_json(json.dumps({"jobs": [{**OLD, "start_time": 10**400, "nodes": f"n[{number}]"}]}))
    assert (listed.started, listed.nodes) == (None, ())
