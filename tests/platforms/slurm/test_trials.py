"""What trials get on a real Slurm, and how they wait and end. Its only node is this machine."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from nnilite.records import Exited, Output, Reported
from nnilite.service import JobState
from nnilite.services.cluster.shared_folder import SharedFolder
from nnilite.testing import eventually
from platforms.stored_code import CodeStorage

pytestmark = [pytest.mark.real, pytest.mark.timeout(120)]

SPEAKING = "import nnilite, os; print('hello'); nnilite.report_final_result(os.environ.get({name!r}))"


def by_folder(open_bench, **fields):
    """A bench whose trials report by their folders: `callback: log`."""
    return open_bench(nni_manager_ip=None, **fields)


def find_job(bench, command, **more):
    return bench.job(command, report="stdout", **more)


def events(bench, name):
    return bench.call(bench.service.reports(bench.handles[name]))


def values(bench, name) -> list:
    return [event.value for event in events(bench, name) if isinstance(event, Reported)]


def attempt_of(bench, name) -> Path:
    """The folder of an attempt."""
    return Path(bench.service.config.directory) / bench.handles[name]["folder"]


def ended(bench, command, **more):
    """The status of a job at its end."""
    name = bench.submit(find_job(bench, command, **more))
    return name, bench.wait(name)


def test_reports_and_output_are_read_from_the_folder_while_the_trial_runs(open_bench):
    bench = by_folder(open_bench)
    program = "import nnilite; [nnilite.report_intermediate_result(n) for n in range(3)]; print('said', flush=True)"
    until = bench.until("go")
    name = bench.submit(find_job(bench, f"{bench.interpreter(program)} && {until} && echo more"))
    bench.eventually(lambda: bench.status(name) and values(bench, name) == [0, 1, 2])
    bench.give("go")
    bench.wait(name)
    found = events(bench, name)
    assert [event.code for event in found if isinstance(event, Exited)] == [0]
    assert [event.value for event in found if isinstance(event, Reported)] == [0, 1, 2]
    assert bench.call(bench.service.logs(bench.handles[name], "stdout", 0, 99)) == b"said\nmore\n"


def test_output_comes_once_as_events(open_bench):
    bench = by_folder(open_bench)
    name, _ = ended(bench, "echo hello; echo bad >&2")
    pieces = [(event.stream, event.offset, event.data) for event in events(bench, name) if isinstance(event, Output)]
    assert sorted(pieces) == [("stderr", 0, b"bad\n"), ("stdout", 0, b"hello\n")]
    assert not [event for event in events(bench, name) if isinstance(event, Output)]


def test_set_up_lines_count_for_the_trial(open_bench):
    bench = by_folder(open_bench, set_up=["export COLOUR='deep \"blue\"'", "if true; then\n  cd .\nfi"])
    name, _ = ended(bench, bench.interpreter(SPEAKING.format(name="COLOUR")))
    assert values(bench, name) == ['deep "blue"']


def test_a_set_up_line_that_fails_is_named_and_the_trial_does_not_run(open_bench):
    bench = by_folder(open_bench, set_up=["true", "cd /no/such/place"])
    _, status = ended(bench, bench.tell("ran"))
    assert (status.state, status.exit_code) == (JobState.FAILED, 70)
    assert status.reason == "this set-up line failed: cd /no/such/place"
    assert bench.lines() == []


def test_modules_are_loaded_before_the_set_up(open_bench, monkeypatch, tmp_path):
    (tmp_path / "functions").write_text('module() { export LOADED="$LOADED $*"; }')
    monkeypatch.setenv("BASH_ENV", str(tmp_path / "functions"))
    bench = by_folder(open_bench, modules=["gcc/12", "cuda"], set_up=['export LOADED="$LOADED, set up"'])
    name, _ = ended(bench, bench.interpreter(SPEAKING.format(name="LOADED")))
    assert values(bench, name) == [" load gcc/12 load cuda, set up"]


def test_a_node_without_python_is_said(open_bench):
    bench = by_folder(open_bench, python_path="/no/such/python")
    _, status = ended(bench, "true")
    assert status.state is JobState.FAILED
    assert status.reason == "the node has no Python 3.8 or later: install one, or set pythonPath"


def test_gres_gives_a_trial_its_gpus_and_a_trial_of_none_sees_none(open_bench):
    bench = by_folder(open_bench, gres="gpu:fake:1")
    name, _ = ended(bench, bench.interpreter(SPEAKING.format(name="CUDA_VISIBLE_DEVICES")))
    assert values(bench, name) == [0]
    name, _ = ended(bench, bench.interpreter(SPEAKING.format(name="CUDA_VISIBLE_DEVICES")), gpus=0)
    assert values(bench, name) == [""]


def test_a_trial_is_told_to_end_before_the_time_limit_of_slurm(open_bench, monkeypatch, slurm):
    monkeypatch.setattr("nnilite.services.cluster.job_script.SETTLE_S", 117)
    bench = by_folder(open_bench, time_limit=120)
    clean = f"clean() {{ {bench.tell('told')}; exit 5; }}; trap clean TERM"
    job = find_job(bench, f"{clean}; sleep 60 & wait", grace_s=1)
    status = bench.wait(bench.submit(job))
    assert (status.state, status.exit_code) == (JobState.FAILED, 5)
    assert "time limit" in status.reason
    assert bench.lines() == ["told"]
    assert "TimeLimit=00:02:00" in slurm.command("scontrol", "show", "job", bench.handles[job.name]["id"])


def test_the_job_asks_slurm_for_all_that_is_set(open_bench, slurm):
    fields = {"partition": "short", "cpus": 3, "memory": 200, "nodes": 1, "sbatch_lines": ["#SBATCH --nice=7"]}
    bench = by_folder(open_bench, time_limit=240, **fields)
    name, _ = ended(bench, "true")
    told = slurm.command("scontrol", "show", "job", bench.handles[name]["id"])
    wanted = ["Partition=short", "CPUs/Task=3", "MinMemoryNode=200M", "NumNodes=1", "Nice=7", "Requeue=0"]
    assert [word for word in [*wanted, "TimeLimit=00:04:00"] if word not in told] == []


CONTAINER = """#!/bin/bash
# Stands in for apptainer, which Debian 12 lacks: checks its words, and runs the command as it would in the container.
[ "$1" = exec ] && [ "$2" = --bind ] && [ "$4" = --pwd ] && [ "$6" = --nv ] && [ "$7" = 'my image.sif' ] || exit 99
cd "$5" && shift 7 && IN_CONTAINER=yes exec "$@"
"""


def test_a_trial_runs_in_a_container(open_bench, tmp_path, monkeypatch):
    program = tmp_path / "bin" / "apptainer"
    program.parent.mkdir()
    program.write_text(CONTAINER)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    from nnilite_slurm import SlurmContainerConfig

    bench = by_folder(open_bench, container=SlurmContainerConfig("my image.sif", options=["--nv"]))
    name, _ = ended(bench, bench.interpreter(SPEAKING.format(name="IN_CONTAINER")))
    assert values(bench, name) == ["yes"]


# ---------------------------------------------------------------- ends that are not the trial's


def running(bench, **more) -> str:
    name = bench.submit(find_job(bench, "sleep 60", **more))
    bench.wait(name, JobState.RUNNING)
    return name


def test_a_trial_that_somebody_else_cancels_says_so(open_bench, slurm):
    bench = by_folder(open_bench)
    name = running(bench)
    slurm.command("scancel", bench.handles[name]["id"])
    status = bench.wait(name)
    assert (status.state, status.reason) == (JobState.CANCELED, "Slurm: CANCELLED")


def test_a_trial_that_slurm_starts_again_is_lost_and_does_not_run_twice(open_bench, slurm):
    bench = by_folder(open_bench)
    name = bench.submit(find_job(bench, f"{bench.tell('ran')}; sleep 60"))
    bench.wait(name, JobState.RUNNING)
    number = bench.handles[name]["id"]
    slurm.command("scontrol", "update", f"JobId={number}", "Requeue=1")
    slurm.command("scontrol", "requeue", number)
    status = bench.wait(name)
    assert status.state is JobState.LOST
    assert "put the job back into the queue" in status.reason
    bench.call(bench.service.remove(bench.handles[name]))
    assert bench.lines() == ["ran"]


def test_of_two_jobs_for_the_same_attempt_the_one_that_began_it_counts(open_bench, slurm):
    bench = by_folder(open_bench)
    name = bench.submit(find_job(bench, f"{bench.tell('ran')}; {bench.until('go')}"))
    bench.wait(name, JobState.RUNNING)
    folder = attempt_of(bench, name)
    twin = slurm.command("sbatch", "--parsable", "script", folder=folder)
    eventually(lambda: "COMPLETED" in slurm.command("squeue", "-h", "--states=all", "-j", twin, "-o", "%T"))
    bench.handles[name]["id"] = twin
    bench.restart()
    assert bench.status(name).state is JobState.RUNNING
    assert not (folder / "again").exists()
    bench.give("go")
    assert bench.wait(name).state is JobState.SUCCEEDED
    assert bench.lines() == ["ran"]


def test_a_held_trial_says_what_it_waits_for(open_bench):
    bench = by_folder(open_bench, sbatch_lines=["--hold"])
    name = bench.submit(find_job(bench, "true"))
    words = "waits in Slurm (JobHeldUser): the job is held; release it with `scontrol release`"
    assert bench.status(name).reason == words
    bench.call(bench.service.cancel(bench.handles[name]))
    assert bench.wait(name).state is JobState.CANCELED


def test_a_job_that_cannot_be_ended_softly_is_killed(open_bench, monkeypatch):
    monkeypatch.setattr("nnilite.services.cluster.watched_jobs.KILL_AFTER_S", 0.5)
    monkeypatch.setattr("nnilite.services.cluster.watched_jobs.ASK_AGAIN_S", 0.5)
    bench = by_folder(open_bench, set_up=["trap '' TERM", "sleep 60"])
    name = bench.submit(find_job(bench, "true", grace_s=0.5))
    bench.eventually(lambda: "the set-up lines run" in bench.status(name).reason)
    bench.call(bench.service.cancel(bench.handles[name]))
    assert bench.wait(name).state is JobState.CANCELED


# ---------------------------------------------------------------- submitting once, cleaning up


def test_a_submission_whose_answer_was_lost_is_found_again_by_its_name(open_bench):
    bench = by_folder(open_bench)
    job = find_job(bench, f"{bench.tell('once')}; {bench.until('go')}")
    name = bench.submit(job)
    number = bench.handles[name]["id"]
    (attempt_of(bench, name) / "job").unlink()
    bench.restart()
    bench.submit(job)
    assert bench.handles[name]["id"] == number
    bench.give("go")
    assert bench.wait(name).state is JobState.SUCCEEDED
    assert bench.lines() == ["once"]


def test_outputs_stay_and_secrets_and_code_go(open_bench):
    bench = by_folder(open_bench, keep="outputs")
    name, _ = ended(bench, 'echo weights >"$NNI_OUTPUT_DIR/model.bin"')
    folder = attempt_of(bench, name)
    assert stat.S_IMODE((folder / "spec.json").stat().st_mode) == 0o600
    bench.call(bench.service.remove(bench.handles[name]))
    assert not (folder / "spec.json").exists()
    bench.close()
    assert sorted(path.name for path in folder.iterdir()) == ["model.bin", "trial.stderr", "trial.stdout"]
    bench.open()


def test_nothing_stays_if_nothing_is_to_be_kept(open_bench):
    bench = by_folder(open_bench)
    name, _ = ended(bench, 'echo weights >"$NNI_OUTPUT_DIR/model.bin"')
    bench.call(bench.service.remove(bench.handles[name]))
    bench.close()
    bench.open()
    assert [path.name for path in Path(bench.service.config.directory).iterdir()] == ["cache"]


def test_a_manager_within_a_job_of_slurm_does_not_hand_its_own_job_on(open_bench, monkeypatch):
    monkeypatch.setenv("SLURM_JOB_ID", "424242")
    monkeypatch.setenv("SLURM_MEM_PER_CPU", "7")
    monkeypatch.setenv("SLURM_MEM_PER_NODE", "8")
    bench = by_folder(open_bench, memory=50)
    name, _ = ended(bench, bench.interpreter(SPEAKING.format(name="SLURM_MEM_PER_NODE")))
    assert values(bench, name) == [50]


def test_a_dry_run_shows_the_script_that_would_be_sent(open_bench):
    bench = by_folder(open_bench, partition="short", modules=["cuda"])
    job = find_job(bench, "true")
    shown = bench.service.describe(job)
    assert "#SBATCH --partition=short\n" in shown["script"]
    assert f"#SBATCH --job-name={job.name}\n" in shown["script"]
    assert "module load cuda" in shown["script"]
    name = bench.submit(job)
    assert (attempt_of(bench, name) / "script").read_text() == shown["script"]


@pytest.fixture
def uploads(monkeypatch):
    """The names of the files that the machine of Slurm is sent."""
    names: list[str] = []
    send = SharedFolder.upload

    async def upload(files, name, source):
        names.append(name)
        await send(files, name, source)

    monkeypatch.setattr(SharedFolder, "upload", upload)
    return names


@pytest.mark.parametrize(("harm", "says"), [("", ""), ("cut", "is damaged"), ("missing Python", "no Python 3.8")])
def test_the_code_comes_from_the_shared_storage_if_it_can(harm, says, maker, uploads, tmp_path, caplog, monkeypatch):
    storage = CodeStorage(tmp_path / "nfs", str(tmp_path / "nfs"))
    if harm == "cut":
        storage.harm = storage.cut
    elif harm:
        monkeypatch.setattr("nnilite.services.cluster.queue_service.pythons_of", lambda path: ["/nowhere/python3"])
    make = maker(nni_manager_ip=None)
    bench = storage.bench(tmp_path / "bench", make)
    (bench.code / "word").write_text("found")
    with bench:
        name, status = ended(bench, "cat word", storage=storage.entry)
        assert status.exit_code == 0
        assert bench.call(bench.service.logs(bench.handles[name], "stdout", 0, 99)) == b"found"
        sent = [name.split("-")[0] for name in uploads]
        assert len(sent) == (2 if harm else 1)
        assert sent[0] == "keeper"
        said = [record.getMessage() for record in caplog.records if "sending the code to" in record.getMessage()]
        assert len(said) == bool(harm)
        assert says in "".join(said)


def test_the_end_of_a_trial_that_reports_by_its_folder_is_noticed_between_two_looks(open_bench):
    bench = by_folder(open_bench)
    name = bench.submit(find_job(bench, bench.until("go")))
    bench.wait(name, JobState.RUNNING)
    before = bench.wakes
    bench.give("go")
    eventually(lambda: bench.wakes == before + 1)
    assert bench.status(name).state is JobState.SUCCEEDED
