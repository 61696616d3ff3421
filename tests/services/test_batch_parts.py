"""The pure parts of nnilite_batch: commands from templates, answers of schedulers, the rules of the section."""

from __future__ import annotations

import asyncio
import errno
import os
import subprocess
from pathlib import Path

import pytest

from nnilite.errors import ConfigError, JobRefused, NoCapacity, ServiceError
from nnilite.services.cluster.login import ShellAnswer, ThisMachine
from nnilite.services.cluster.queued_job import QueuePhase
from nnilite_batch import BatchCommands, BatchConfig, BatchPatterns
from nnilite_batch._answer_reader import AnswerReader
from nnilite_batch._api import CANCEL, SUBMIT, BatchApi
from nnilite_batch._presets import PRESETS
from nnilite_batch._templates import find_programs, render
from services import batch_answers as answers

ALL = {"queue": "long", "account": "me", "cpus": 4, "memory": 4000, "time_limit": 3600}
FRONTS = {
    "gridengine": "qsub -terse -N nni-x -j y -o /dev/null -r n -S /bin/bash",
    "pbs": "qsub -N nni-x -j oe -o /dev/null -r n -S /bin/bash",
    "torque": "qsub -N nni-x -j oe -o /dev/null -r n -S /bin/bash",
    "lsf": "LSB_NTRIES=1 bsub -J nni-x -o /dev/null -rn",
}
OPTIONS = {
    "gridengine": "-q long -P me -pe smp 4 -l h_vmem=1000M -l gpu=2 -l h_rt=3600 script",
    "pbs": "-q long -A me -l select=1:ncpus=4:mem=4000mb:ngpus=2 -l walltime=3600 script",
    "torque": "-q long -A me -l nodes=1:ppn=4:gpus=2 -l mem=4000mb -l walltime=3600 script",
    "lsf": r"-q long -P me -n 4 -R span\[hosts=1\] -M 4000MB -R rusage\[mem=4000MB\] -gpu num=2 -W 60 <script",
}


@pytest.mark.parametrize("scheduler", FRONTS)
def test_a_preset_asks_for_all_that_is_set_and_for_nothing_else(scheduler):
    whole = BatchConfig(scheduler=scheduler, **ALL).command("submit", "nni-x", 2)
    assert whole == f"{FRONTS[scheduler]} {OPTIONS[scheduler]}"
    bare = BatchConfig(scheduler=scheduler).command("submit", "nni-x", 0).split()
    assert not {"-q", "-P", "-A", "-pe", "-n", "-W", "-gpu"} & set(bare)


@pytest.mark.process
def test_htcondor_gets_a_description_of_the_job_on_standard_input(tmp_path):
    config = BatchConfig(scheduler="htcondor", cpus=4, memory=4000, submit_options=['+Group = "it\'s"'])
    program = tmp_path / "condor_submit"
    program.write_text('#!/bin/sh\necho "$*"; cat\n')
    program.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    command = config.command("submit", "nni-x", 1)
    lines = subprocess.run(["/bin/sh", "-c", command], env=environment, capture_output=True, text=True, check=True)
    first, *rest = lines.stdout.splitlines()
    assert first == "-terse -batch-name nni-x"
    assert rest[0] == "universe=vanilla"
    wanted = ['environment="NNILITE_BATCH_JOB=$(ClusterId).$(ProcId)"', "request_cpus=4", "request_memory=4000"]
    assert rest[-6:] == [*wanted, "request_gpus=1", '+Group = "it\'s"', "queue"]


HOSTILE = "a'b\"; touch pwned; $(touch pwned) `touch pwned` #"


@pytest.mark.process
def test_nothing_that_a_user_writes_is_a_command(tmp_path):
    config = BatchConfig(
        scheduler="gridengine",
        account=HOSTILE.replace(" ", ";"),
        submit_options=[HOSTILE, "*"],
        values={"parallelEnvironment": HOSTILE},
        cpus=2,
    )
    command = config.command("submit", "nni-x", None)
    said = subprocess.run(["/bin/sh", "-c", f"qsub() {{ printf '%s\\n' \"$@\"; }}; {command}"], cwd=tmp_path, **TEXT)
    words = said.stdout.splitlines()
    assert words.count(HOSTILE) == 2
    assert "*" in words
    assert list(tmp_path.iterdir()) == []


TEXT = {"capture_output": True, "text": True, "check": True}


def test_what_stands_in_double_brackets_is_left_out_without_its_value():
    template = r"x[[ -R rusage\[mem={memory}MB\]]][[ -q {queue}]]"
    assert render(template, {"memory": 5, "queue": None}) == r"x -R rusage\[mem=5MB\]"
    assert render("qdel {id} {ids}", {"id": "a b", "ids": ["1", "2 3"]}) == "qdel 'a b' 1 '2 3'"


def test_programs_are_found_in_templates_wherever_they_are_called():
    found = find_programs(
        ["A=b if x; then y; fi", 'qstat -u "$(id -un)" && { qselect -qs u || :; }', "for i in 1; do z; done"]
    )
    assert {"qstat", "id", "qselect", "z"} <= set(found)


# ---------------------------------------------------------------- answers


def reader(scheduler: str) -> AnswerReader:
    return AnswerReader(PRESETS[scheduler])


def phases(scheduler: str, text: str) -> dict[str, QueuePhase]:
    return {number: job.phase for number, job in reader(scheduler).jobs(text).items()}


def test_the_jobs_of_grid_engine_are_read_with_a_node_that_is_away():
    found = reader("gridengine").jobs(answers.GRID_ENGINE)
    assert {number: job.phase for number, job in found.items()} == {
        "13": QueuePhase.RUNNING,
        "15": QueuePhase.LOST,
        "14": QueuePhase.WAITING,
        "21": QueuePhase.LOST,
        "20": QueuePhase.WAITING,
    }
    assert (found["13"].name, found["13"].host) == ("nni-abc-def-2", "n1")
    assert found["15"].words == "Grid Engine: its node n2 does not answer"
    assert found["14"].words == "waits in Grid Engine (qw)"


def test_grid_engine_tells_why_jobs_wait_and_how_they_ended():
    reasons = reader("gridengine").reasons(answers.GRID_ENGINE_REASONS)
    assert reasons["14"] == '(-l gpu=9) cannot run at host "n1" because it offers only hc:gpu=2.000000'
    assert reasons["20"] == "Job is in hold state"
    assert reasons["21"] == "error: can't chdir to /no/such: No such file or directory"
    past = reader("gridengine").read_past_jobs(answers.GRID_ENGINE_HISTORY)
    assert [job.phase for job in past.values()] == [QueuePhase.FAILED, QueuePhase.CANCELED, QueuePhase.TIMED_OUT]
    assert past["12"].exit_code == 5
    assert past["12"].host == "n1"
    words = "Grid Engine: 37, exit code 137: qmaster enforced h_rt, h_cpu, or h_vmem limit"
    assert past["26"].words == words


def test_the_jobs_of_pbs_are_read_with_values_over_several_lines():
    found = reader("pbs").jobs(answers.PBS)
    assert {number.split(".")[0]: job.phase for number, job in found.items()} == {
        "101": QueuePhase.RUNNING,
        "102": QueuePhase.WAITING,
        "103": QueuePhase.FAILED,
        "104": QueuePhase.TIMED_OUT,
        "105": QueuePhase.WAITING,
        "106": QueuePhase.CANCELED,
    }
    assert (found["101.pbs01"].host, found["103.pbs01"].exit_code) == ("n1", 3)
    words = "waits in PBS (Q): Not Running: Insufficient amount of resource: ngpus (R: 9 A: 2 T: 2)"
    assert found["102.pbs01"].words == words


def test_the_jobs_of_torque_lsf_and_htcondor_are_read():
    assert list(phases("torque", answers.TORQUE).values()) == [QueuePhase.COMPLETED, QueuePhase.TIMED_OUT]
    assert phases("lsf", answers.LSF) == {
        "301": QueuePhase.RUNNING,
        "302": QueuePhase.WAITING,
        "303": QueuePhase.COMPLETED,
        "304": QueuePhase.FAILED,
        "305": QueuePhase.TIMED_OUT,
        "306": QueuePhase.KILLED,
        "307": QueuePhase.CANCELED,
        "308": QueuePhase.LOST,
        "309": QueuePhase.RUNNING,
    }
    assert phases("htcondor", answers.HTCONDOR) == {
        "401.0": QueuePhase.RUNNING,
        "402.0": QueuePhase.WAITING,
        "403.0": QueuePhase.KILLED,
        "404.0": QueuePhase.TIMED_OUT,
        "405.0": QueuePhase.WAITING,
        "406.0": QueuePhase.LOST,
        "407.0": QueuePhase.FAILED,
        "408.0": QueuePhase.CANCELED,
    }


def test_hosts_and_reasons_of_lsf_and_htcondor_are_read():
    lsf, condor = reader("lsf").jobs(answers.LSF), reader("htcondor").jobs(answers.HTCONDOR)
    assert (lsf["301"].host, lsf["302"].host, condor["401.0"].host, condor["402.0"].host) == ("n1", "", "n1", "")
    assert lsf["302"].reason == "Job's requirements for resource reservation not satisfied: 3 hosts;"
    assert condor["405.0"].words == "waits in HTCondor (held): via condor_hold (by user me)"
    assert condor["402.0"].words == "waits in HTCondor (idle)"
    assert condor["407.0"].exit_code == 3


@pytest.mark.parametrize("odd", ["--3", "\N{SUPERSCRIPT TWO}", "9" * 5000])
def test_an_exit_code_that_is_no_number_is_none(odd):
    printed = answers.HTCONDOR.replace("undefined\t3\t4", f"undefined\t{odd}\t4")
    assert reader("htcondor").jobs(printed)["407.0"].exit_code is None


@pytest.mark.parametrize("scheduler", PRESETS)
def test_what_submitting_prints_has_the_id(scheduler):
    printed, number = answers.SUBMITTED[scheduler]
    assert reader(scheduler).job_id(printed) == number
    assert reader(scheduler).job_id("") == ""


def test_a_state_that_is_not_known_is_no_guess():
    text = answers.GRID_ENGINE.replace("<state>r</state>", "<state>X</state>")
    assert reader("gridengine").jobs(text)["13"].phase is QueuePhase.UNKNOWN


def test_a_node_that_does_not_see_the_folder_is_said_with_the_cure():
    history = answers.GRID_ENGINE_HISTORY.replace("exit_status  5", "exit_status  71")
    assert (
        "set it to a folder that login node and compute nodes share"
        in reader("gridengine").read_past_jobs(history)["12"].words
    )


# ---------------------------------------------------------------- the scheduler's refusals


class ScriptedHost(ThisMachine):
    """Answers each command with the same."""

    def __init__(self, answer: ShellAnswer) -> None:
        super().__init__(None)
        self.answer = answer

    async def run(self, script, *words, **more):
        return self.answer


def api(scheduler: str, status: int, output: str = "", complaint: str = "") -> BatchApi:
    host = ScriptedHost(ShellAnswer(status, output.encode(), complaint))
    return BatchApi(host, BatchConfig(scheduler=scheduler), "/x")


def submitted(scheduler: str, complaint: str) -> type[Exception]:
    with pytest.raises((ConfigError, ServiceError)) as caught:
        asyncio.run(api(scheduler, 77, "", complaint).submit("f", "nni-x", "true", None))
    assert complaint.split()[0] in str(caught.value)
    return caught.type


@pytest.mark.parametrize("scheduler", PRESETS)
def test_what_a_scheduler_says_stays_so_or_lets_the_trial_wait_or_may_pass(scheduler):
    assert submitted(scheduler, answers.REFUSED[scheduler]) is JobRefused
    assert submitted(scheduler, answers.FULL[scheduler]) is NoCapacity
    assert submitted(scheduler, "Connection refused") is ServiceError


@pytest.mark.parametrize("scheduler", PRESETS)
def test_to_end_a_job_that_is_gone_is_no_error(scheduler):
    asyncio.run(api(scheduler, 1, "", answers.UNKNOWN[scheduler]).kill("999"))
    with pytest.raises(ServiceError, match="does not end a job: cannot connect"):
        asyncio.run(api(scheduler, 1, "", "cannot connect to server").kill("999"))


def test_grid_engine_has_taken_a_job_of_which_it_warns():
    words = "Unable to run job: warning: me's job is not allowed to run in any queue\n"
    words += 'Your job 7 ("nni-x") has been submitted'
    assert asyncio.run(api("gridengine", 77, "", words).submit("f", "nni-x", "true", None)) == "7"


@pytest.mark.process
def test_commands_that_are_not_there_are_named_with_the_cure(tmp_path):
    config = BatchConfig(scheduler="lsf", scheduler_path=str(tmp_path))
    host = ThisMachine(str(tmp_path))
    for name in ("bsub", "bkill"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    with pytest.raises(ConfigError, match="this machine has no bjobs, lsid; set schedulerPath to their folder"):
        asyncio.run(BatchApi(host, config).check())


@pytest.mark.process
def test_lines_of_login_set_up_come_first_and_print_nothing(tmp_path):
    host = ThisMachine(None, before=["echo noise; export CELL='it is'"])
    answer = asyncio.run(host.run('echo "$CELL"'))
    assert answer.output == b"it is\n"


async def test_where_no_process_can_be_started_the_scheduler_cannot_be_asked_now(monkeypatch):
    async def full(*_, **__):
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(asyncio, "create_subprocess_exec", full)
    with pytest.raises(ServiceError, match="no command can be started now: Too many open files"):
        await ThisMachine(None).run("true")


# ---------------------------------------------------------------- the section

OWN = {
    "commands": BatchCommands(submit="sub {name} {options} script", status="stat {ids}", cancel="del {id}"),
    "patterns": BatchPatterns(job_id=r"(\d+)", job=r"^(?P<id>\d+) (?P<state>\w+)$"),
    "states": {"waiting": "W", "running": "R", "ended": "D.*"},
}


def test_a_scheduler_of_ones_own_needs_no_preset():
    config = BatchConfig(**OWN)
    assert config.command("submit", "nni-x") == "sub nni-x  script"
    found = AnswerReader(config.described).jobs("5 R\n6 W\n")
    assert [job.phase for job in found.values()] == [QueuePhase.RUNNING, QueuePhase.WAITING]


WRONG = [
    ({}, "commands.submit", "has to be set where no `scheduler` is"),
    ({**OWN, "states": {}}, "states", "needs patterns"),
    ({**OWN, "states": {"asleep": "Z"}}, "states", "needs patterns for some of waiting"),
    ({**OWN, "patterns": BatchPatterns(job_id="(", job="x")}, "patterns.jobId", "is not a regular expression"),
    ({"scheduler": "pbs", "commands": BatchCommands(cancel="qdel '{id}'")}, "commands.cancel", "is in quotes"),
    (
        {"scheduler": "pbs", "commands": BatchCommands(cancel="qdel {job}")},
        "commands.cancel",
        "there is no field {job}",
    ),
    (
        {"scheduler": "pbs", "commands": BatchCommands(submit="qsub -q {queue}")},
        "commands.submit",
        "{queue} has no value",
    ),
    ({"scheduler": "pbs", "queue": "a b"}, "queue", "use one word"),
    ({"scheduler": "pbs", "time_limit": 30}, "timeLimit", "must be above 60 s"),
    ({"scheduler": "pbs", "job_variable": "A-B"}, "jobVariable", "is not valid; use one word"),
]


@pytest.mark.parametrize(("fields", "place", "words"), WRONG, ids=lambda one: str(one)[:30])
def test_bad_input_is_refused_with_its_place(fields, place, words):
    with pytest.raises(ConfigError) as caught:
        BatchConfig(**fields)
    assert caught.value.place.field == place
    assert words in str(caught.value)


@pytest.mark.process
def test_the_first_lines_of_a_script_find_any_folder(tmp_path):
    folder = tmp_path / 'it\'s a "$HOME" `x`\n&\\ more'
    folder.mkdir()
    words = ["/bin/sh", "-c", SUBMIT, "nnilite", str(folder), ".", "", "bash script"]
    done = subprocess.run(words, input='cd / && cd "$folder" && pwd\n', **TEXT)
    assert done.stdout == f"{folder}\n"
    again = subprocess.run([*words[:-1], "echo other"], input="", **TEXT)
    assert again.stdout == done.stdout
    assert Path(folder, "submitting").exists()


def canceled(folder: Path) -> list[str]:
    """What becomes of a job whose attempt is canceled."""
    words = ["/bin/sh", "-c", CANCEL, "nnilite", str(folder.parent), folder.name, "echo the job is taken back"]
    return subprocess.run(words, **TEXT).stdout.splitlines()


@pytest.mark.process
def test_a_job_that_waits_is_taken_back_and_one_that_has_begun_gets_an_order(tmp_path):
    folder = tmp_path / "attempt"
    assert canceled(folder) == []
    folder.mkdir()
    assert canceled(folder) == ["the job is taken back"]
    (folder / "claim").mkdir()
    (folder / "orders").touch()
    assert canceled(folder) == []
    assert (folder / "orders").read_text() == "end\n"
    assert (folder / "canceled").exists()


@pytest.mark.process
def test_a_job_whose_folder_hangs_is_ended_all_the_same(tmp_path):
    folder = tmp_path / "attempt"
    (folder / "claim").mkdir(parents=True)
    os.mkfifo(folder / "canceled")  # to open it for writing waits for a reader
    assert canceled(folder) == ["the job is taken back"]


@pytest.mark.timeout(120)
def test_no_answer_of_grid_engine_takes_long_to_read():
    """A search that tries all ways through these texts would not end before the Sun does."""
    reader = AnswerReader(PRESETS["gridengine"])
    record = "hostname n1\njobname x\njobnumber 5\nfailed 0\n"
    assert reader.read_past_jobs(record * 2000) == {}
    assert list(reader.read_past_jobs(f"{record * 2000}exit_status 0\n")) == ["5"]
    assert reader.jobs("<job_list " * 20_000) == {}


# ---------------------------------------------------------------- jobs of other users

_JOB = (
    "==============\njob_number:                 {}\nexec_file:      x\nowner:                      {}\nuid:       1\n"
)


@pytest.mark.process
def test_a_job_of_another_user_with_the_same_name_is_not_found(tmp_path):
    me = subprocess.run(["id", "-un"], check=True, capture_output=True, text=True).stdout.strip()
    listed = tmp_path / "listed"
    listed.write_text(_JOB.format(7, f"{me}x") + _JOB.format(8, me) + _JOB.format(9, f"x{me}"))
    qstat = tmp_path / "qstat"
    qstat.write_text(f"#!/bin/sh\ncat '{listed}'\n")
    qstat.chmod(0o755)
    command = BatchConfig(scheduler="gridengine").command("find", "nni-x")
    env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    found = subprocess.run(["/bin/sh", "-c", command], check=True, capture_output=True, text=True, env=env)
    assert found.stdout == "8\n"


@pytest.mark.parametrize("scheduler", ["pbs", "torque"])
def test_pbs_is_asked_for_the_own_jobs_of_a_name_alone(scheduler):
    assert '-u "$(id -un)" -N nni-x' in BatchConfig(scheduler=scheduler).command("find", "nni-x")
