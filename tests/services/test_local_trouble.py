"""The local service when something dies, and what it keeps to itself."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import shutil
import signal
import socket
import time
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from nnilite import foreign_files
from nnilite._keeper import plain_file
from nnilite.errors import CodeDirError, ConfigError, ServiceError
from nnilite.service import JobState
from nnilite.testing import ServiceBench, eventually, keeper_zipapp
from nnilite.testing.probes import quoted, runs
from nnilite_local import LocalConfig, LocalService
from nnilite_local._service import _find_folder

pytestmark = pytest.mark.process


def patient(context) -> LocalService:
    """Make a service that waits for a look at a folder for as long as a busy machine takes."""
    service = LocalService("local", LocalConfig(), context)
    service._watch._looks.limit_s = 60.0
    return service


@pytest.fixture
def bench(tmp_path):
    with ServiceBench(tmp_path, patient) as bench:
        yield bench


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: not runs(pid))


def kill_fork_server(bench: ServiceBench) -> None:
    """Return when the service has noticed it: a job that it hands over before is refused, for now."""
    pid = bench.service._server.pid
    kill(pid)
    eventually(lambda: bench.service._server.pid != pid)


def running(bench: ServiceBench, command: str = "sleep 60") -> str:
    name = bench.run(f"echo $$ >> {quoted(bench.mark())}; {command}")
    bench.wait(name, JobState.RUNNING)
    eventually(bench.lines)
    return name


REPORT = "import nnilite, time; nnilite.report_intermediate_result(1); time.sleep(60)"


def test_a_killed_keeper_is_a_lost_job_whose_processes_are_gone(bench):
    name = running(bench, "sleep 60 & sleep 60")
    kill(bench.handles[name]["pid"])
    status = bench.wait(name, JobState.LOST)
    assert status.reason == "its keeper was killed"
    assert not runs(int(bench.lines()[0]))


def test_a_forked_keeper_imports_nothing_from_the_disk(bench, tmp_path, monkeypatch):
    """It would be gone, and its trial lost, where no file can be opened for a moment."""
    keeper = tmp_path / "keeper.pyz"
    shutil.copy(keeper_zipapp(), keeper)
    monkeypatch.setattr("nnilite.testing.bench.keeper_zipapp", lambda **_: keeper)
    bench.close()
    bench.open()
    report = "import nnilite; nnilite.report_final_result(1)"
    assert bench.finish(bench.python(report)).values == [1]  # the SDK comes out of the same file, once
    first = running(bench)
    keeper.write_bytes(b"")
    assert bench.finish(bench.python(report)).values == [1]
    bench.call(bench.service.cancel(bench.handles[first]))


def test_what_a_killed_keeper_had_not_delivered_is_delivered(bench):
    bench.receiver.break_requests = 10**6
    name = bench.python(REPORT)
    spool = _find_folder(bench.service._directory, bench.job("x", trial=name.split("-")[2])).path / ".nni/metrics"
    eventually(lambda: spool.exists() and spool.stat().st_size)
    bench.receiver.break_requests = 0
    kill(bench.handles[name]["pid"])
    bench.wait(name, JobState.LOST)
    assert bench.received(name).values == [1]


def test_the_reports_of_a_lost_job_can_be_read_by_the_service(bench):
    name = bench.python(REPORT)
    eventually(lambda: bench.received(name).values)
    kill(bench.handles[name]["pid"])
    bench.wait(name, JobState.LOST)
    events = bench.call(bench.service.reports(bench.handles[name]))
    assert [event.value for event in events if hasattr(event, "value")] == [1]


def test_a_job_stays_lost_however_often_one_asks_and_whoever_asks(bench):
    name = running(bench)
    kill(bench.handles[name]["pid"])
    bench.wait(name, JobState.LOST)
    assert bench.status(name).state is JobState.LOST
    bench.restart()
    assert bench.wait(name).state is JobState.LOST


def test_jobs_outlive_the_fork_server_and_new_ones_can_be_started(bench):
    go = bench.mark("go")
    old = bench.run(f"while ! test -e {quoted(go)}; do sleep 0.02; done; exit 7")
    bench.wait(old, JobState.RUNNING)
    kill_fork_server(bench)
    new = bench.run("exit 3")
    assert bench.wait(new).exit_code == 3
    assert bench.status(old).state is JobState.RUNNING
    go.touch()
    assert bench.wait(old).exit_code == 7


def test_the_death_of_the_fork_server_wakes_the_manager(bench):
    kill(bench.service._server.pid)
    eventually(lambda: bench.wakes)


def test_a_job_of_a_dead_fork_server_can_be_canceled(bench):
    name = running(bench)
    kill(bench.service._server.pid)
    bench.call(bench.service.cancel(bench.handles[name]))
    assert bench.wait(name).state is JobState.CANCELED


def test_a_job_whose_handle_was_lost_with_the_manager_is_found_and_not_started_again(bench):
    job = bench.job(f"echo $$ >> {quoted(bench.mark())}; sleep 60")
    bench.submit(job)
    eventually(bench.lines)
    keeper = bench.handles[job.name]["pid"]
    (_find_folder(bench.service._directory, job).path / "job.json").unlink()
    bench.restart()
    bench.submit(job)
    assert bench.handles[job.name]["pid"] == keeper
    bench.call(bench.service.cancel(bench.handles[job.name]))
    assert bench.wait(job.name).state is JobState.CANCELED
    assert len(bench.lines()) == 1


def test_a_job_that_ended_before_its_handle_was_kept_is_not_started_again(bench):
    job = bench.job(f"echo once >> {quoted(bench.mark())}; exit 4")
    bench.submit(job)
    bench.finish(job.name)
    eventually(lambda: not runs(bench.handles[job.name]["pid"]))
    (_find_folder(bench.service._directory, job).path / "job.json").unlink()
    bench.submit(job)
    assert bench.wait(job.name).exit_code == 4
    assert bench.lines() == ["once"]


def test_canceling_a_job_that_was_found_without_its_keeper_signals_nobody(bench, monkeypatch):
    job = bench.job(f"echo $$ >> {quoted(bench.mark())}; sleep 60")
    bench.submit(job)
    eventually(bench.lines)
    kill(bench.handles[job.name]["pid"])
    (_find_folder(bench.service._directory, job).path / "job.json").unlink()
    bench.restart()
    bench.submit(job)
    bench.wait(job.name, JobState.LOST)
    handle, signaled = bench.handles.pop(job.name), []
    with monkeypatch.context() as patch:
        patch.setattr(os, "kill", lambda *to: signaled.append(to))  # 0 would be this very process group
        bench.call(bench.service.cancel(handle))
    assert signaled == []


def test_a_specification_whose_keeper_never_came_is_used_again(bench):
    job = bench.job("exit 4")
    folder = _find_folder(bench.service._directory, job)
    folder.create({"stale": True})
    bench.submit(job)
    assert bench.wait(job.name).exit_code == 4


def test_a_folder_that_is_gone_is_a_lost_job(bench):
    name = bench.run("true")
    bench.finish(name)
    eventually(lambda: not runs(bench.handles[name]["pid"]))
    folder = bench.handles[name]["directory"]
    os.rename(folder, folder + ".away")  # noqa: PTH104
    assert bench.status(name).state is JobState.LOST
    os.rename(folder + ".away", folder)  # noqa: PTH104


def test_a_manager_on_another_port_gets_what_its_predecessor_missed(bench):
    go = bench.mark("go")
    name = bench.python(
        f"import nnilite, os, time\nwhile not os.path.exists({str(go)!r}): time.sleep(0.02)\n"
        "nnilite.report_final_result(5)"
    )
    eventually(lambda: bench.received(name).started)
    bench.close()
    bench.receiver.stop()
    with contextlib.ExitStack() as taken:
        with contextlib.suppress(OSError):  # by another program, since
            taken.enter_context(socket.create_server(("127.0.0.1", urlsplit(bench.receiver.url).port)))
        bench.receiver.start(port=0)
    bench.open()
    go.touch()
    assert bench.finish(name).values == [5]


def test_no_keeper_waits_for_a_manager_that_knows_the_end_already(bench):
    bench.receiver.stop()
    name = bench.run("true")
    bench.wait(name, JobState.SUCCEEDED)
    bench.call(bench.service.remove(bench.handles[name]))
    eventually(lambda: not runs(bench.handles[name]["pid"]))
    bench.receiver.start()


def test_a_trial_whose_name_is_a_path_is_refused(bench):
    job = replace(bench.job("true"), trial="../../etc")
    assert isinstance(bench.refusal(bench.service.submit(job)), ConfigError)


def test_a_specification_that_no_keeper_takes_is_refused_for_good_and_frees_what_was_booked(bench):
    refused = replace(bench.job("true"), spec={**bench.job("true").spec, "report": "stdout"})
    error = bench.refusal(bench.service.submit(refused))
    assert isinstance(error, ConfigError)
    assert "no standard output of its own" in str(error)
    assert bench.wait(bench.run("true")).state is JobState.SUCCEEDED


def test_a_folder_that_cannot_be_written_refuses_only_that_job(bench):
    job = bench.job("true")
    place = _find_folder(bench.service._directory, job).path
    place.parent.mkdir(parents=True)
    place.write_text("in the way")
    error = bench.refusal(bench.service.submit(job))
    assert isinstance(error, ServiceError)
    assert "cannot be written" in str(error)
    assert bench.wait(bench.run("true")).state is JobState.SUCCEEDED


def test_an_address_that_cannot_be_written_for_want_of_open_files_is_told_with_the_cure(bench, monkeypatch):
    def refuse(path: str, text: str) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)

    bench.service._address = "before"
    with monkeypatch.context() as patch:
        patch.setattr("nnilite_local._service.write_private", refuse)
        error = bench.refusal(bench.service.submit(bench.job("true")))
    assert isinstance(error, ServiceError)
    cure = "raise the limit of open files (`ulimit -n`), then stop and resume the experiment"
    assert str(error).endswith(f"/callback cannot be written: Too many open files; {cure}")
    assert bench.wait(bench.run("true")).state is JobState.SUCCEEDED


def test_a_second_keeper_that_could_not_do_its_work_is_followed_by_another_one(bench, monkeypatch):
    monkeypatch.setattr("nnilite_local._second_keepers._PAUSE_S", 0.05)
    name = running(bench)
    spec = Path(bench.handles[name]["directory"]) / "spec.json"
    text = spec.read_text()
    spec.write_text("")
    kill(bench.handles[name]["pid"])
    eventually(lambda: bench.status(name).reason and bench.service._second_keepers._started.total() > 1)
    assert (bench.status(name).state, runs(int(bench.lines()[0]))) == (JobState.RUNNING, True)
    spec.write_text(text)
    bench.wait(name, JobState.LOST)
    assert not runs(int(bench.lines()[0]))


def refuse_to_read(monkeypatch, name: str) -> None:
    """The disk is in trouble, or this process has no file descriptors left."""

    read = plain_file.read

    def refusing(path, most):
        if path.endswith(f"/{name}"):
            raise OSError(errno.EMFILE, "Too many open files", path)
        return read(path, most)

    monkeypatch.setattr(plain_file, "read", refusing)


def test_a_job_whose_end_cannot_be_read_now_is_not_lost(bench, monkeypatch):
    name = bench.run("true")
    bench.finish(name)
    with monkeypatch.context() as trouble:
        refuse_to_read(trouble, "exit")
        status = bench.status(name)
        assert (status.state, "cannot be read now: Too many open files" in status.reason) == (JobState.UNKNOWN, True)
    assert bench.status(name).state is JobState.SUCCEEDED


def test_a_handle_that_cannot_be_read_now_refuses_the_job_and_starts_no_second_keeper(bench, monkeypatch):
    job = bench.job(f"echo x >> {quoted(bench.mark())}; sleep 60")
    bench.submit(job)
    eventually(bench.lines)
    with monkeypatch.context() as trouble:
        refuse_to_read(trouble, "job.json")
        assert "Too many open files" in str(bench.refusal(bench.service.submit(job)))
    assert bench.call(bench.service.submit(job))["pid"] == bench.handles[job.name]["pid"]
    assert bench.lines() == ["x"]


def test_the_specification_of_a_keeper_at_work_is_removed_when_it_has_left(bench):
    # Else the keeper, told to end, would be through before it is killed.
    name = bench.run(f"trap '' TERM; {bench.tell('up')}; sleep 60")
    bench.wait(name, JobState.RUNNING)
    bench.eventually(bench.lines)
    assert "is still at work" in str(bench.refusal(bench.service.remove(bench.handles[name])))
    kill(bench.handles[name]["pid"])
    bench.wait(name, JobState.LOST)
    bench.call(bench.service.remove(bench.handles[name]))
    assert not list(bench.folder.rglob("spec.json"))


def test_reports_that_cannot_be_read_now_are_not_taken_for_none(bench, monkeypatch):
    def fail(path):
        raise OSError(errno.EIO, "Input/output error")

    name = bench.run("true")
    bench.finish(name)
    monkeypatch.setattr("nnilite._keeper.spool.open_regular", fail)
    assert "cannot be read now" in str(bench.refusal(bench.service.reports(bench.handles[name])))


def test_a_keeper_that_cannot_be_started_is_said(tmp_path):
    def make(context):
        return LocalService("local", LocalConfig(), replace(context, keeper=tmp_path / "missing.pyz"))

    with ServiceBench(tmp_path, make) as bench:
        error = bench.refusal(bench.service.submit(bench.job("true")))
    assert isinstance(error, ServiceError)
    assert "fork-server.log" in str(error)


def test_a_code_directory_that_cannot_be_packed_is_said_at_the_start(tmp_path):
    def package():
        raise CodeDirError("too many files")

    def make(context):
        return LocalService("local", LocalConfig(isolate_code=True), replace(context, package=package))

    with pytest.raises(CodeDirError, match="too many files"), ServiceBench(tmp_path, make):
        pass


def test_a_poll_of_a_thousand_jobs_is_quick(bench):
    name = bench.run("sleep 60")
    bench.wait(name, JobState.RUNNING)
    handles = [bench.handles[name]] * 1000
    before_s = time.process_time()
    assert len(bench.call(bench.service.poll(handles))) == 1000
    assert time.process_time() - before_s < 2


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"trial_gpu_number": 1}, "useActiveGpu"),
        ({"trial_gpu_number": 2, "use_active_gpu": True, "gpu_indices": [0]}, "gpuIndices"),
    ],
)
def test_settings_that_do_not_fit_together_are_named(settings, field):
    with pytest.raises(ConfigError, match=f"^{field}: "):
        LocalConfig(**settings)


@pytest.mark.parametrize("settings", [{"reuse_mode": True}, {"gpu_indices": [0]}, {"max_trial_number_per_gpu": 2}])
def test_settings_of_nni_are_accepted(settings):
    assert LocalConfig(**settings)


def test_closing_a_service_that_was_never_opened_is_harmless(tmp_path):
    from nnilite.testing import fake_context

    asyncio.run(LocalService("local", LocalConfig(), fake_context(tmp_path)).close())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("early", [True, False])
def test_a_removed_job_leaves_five_files_and_folders_once_its_keeper_has_left(bench, early):
    job = bench.job('echo final 0.5 >> "$NNILITE_METRICS"; sleep 0.1')
    bench.submit(job)
    bench.finish(job.name)
    folder, pid = Path(bench.handles[job.name]["directory"]), bench.handles[job.name]["pid"]
    if not early:
        eventually(lambda: not runs(pid))
    bench.call(bench.service.remove(bench.handles[job.name]))
    eventually(lambda: not (folder / ".nni").exists())
    assert sorted(path.name for path in folder.iterdir()) == ["parameter.cfg", "trial.stderr", "trial.stdout"]
    assert bench.received(job.name).values == [0.5]


def test_what_a_removed_job_has_not_delivered_stays_on_the_disk(bench):
    bench.receiver.break_requests = 10**6
    name = bench.run('echo final 0.5 >> "$NNILITE_METRICS"')
    bench.wait(name, JobState.SUCCEEDED)
    pid = bench.handles[name]["pid"]
    bench.call(bench.service.remove(bench.handles[name]))
    bench.call(bench.service.remove(bench.handles[name]))  # asked twice, the keeper leaves
    eventually(lambda: not runs(pid))
    folder = Path(bench.handles[name]["directory"])
    assert (folder / ".nni/metrics").read_text() == "final 0.5\n"


def test_a_removed_job_leaves_no_note_no_token_and_no_empty_log(bench):
    name = bench.run("true")
    bench.finish(name)
    bench.call(bench.service.remove(bench.handles[name]))
    folder = Path(bench.handles[name]["directory"])
    eventually(lambda: not (folder / ".nni/keeper.log").exists())
    assert not [file for file in ("spec.json", "job.json") if (folder / file).exists()]


def test_a_killed_keeper_wakes_the_manager(bench):
    name = running(bench)
    before = bench.wakes
    kill(bench.handles[name]["pid"])
    eventually(lambda: bench.wakes > before)


def test_nobody_is_woken_for_an_end_that_the_manager_has_been_told(bench):
    """Such a wake makes the manager look at all trials each time that one of them ends."""
    name = bench.run("true")
    bench.finish(name)
    eventually(lambda: not bench.service._server.runs(name))
    assert name not in bench.service._just_left
    assert not bench.wakes


def test_nobody_is_woken_for_the_keeper_of_a_removed_job(bench):
    name = bench.run("sleep 60")
    bench.wait(name, JobState.RUNNING)
    before = bench.wakes
    assert isinstance(bench.refusal(bench.service.remove(bench.handles[name])), ServiceError)
    eventually(lambda: not bench.service._removed)
    assert bench.wakes == before
    assert bench.wait(name).state.ended


def test_gpus_that_this_machine_may_not_give_are_refused_before_anything_starts():
    with pytest.raises(ConfigError, match="names fewer GPUs than the 2 that trialGpuNumber asks for") as error:
        LocalConfig(use_active_gpu=True, trial_gpu_number=2, gpu_indices=[1])
    assert error.value.place.field == "gpuIndices"


def test_a_file_that_goes_while_a_trials_folder_is_copied_is_left_out(bench, monkeypatch):
    name = bench.run('echo weights > "$NNI_OUTPUT_DIR/model.bin"; echo passing > "$NNI_OUTPUT_DIR/draft"')
    bench.finish(name)
    copy = foreign_files._copy_one

    def late(here, there, entry, *more):
        if entry.path == "draft":
            (Path(bench.handles[name]["directory"]) / "draft").unlink()
        copy(here, there, entry, *more)

    monkeypatch.setattr(foreign_files, "_copy_one", late)
    target = bench.scratch / "fetched"
    bench.call(bench.service.fetch(bench.handles[name], target))
    assert [path.name for path in target.rglob("*") if path.name in ("model.bin", "draft")] == ["model.bin"]


# keepers that run one job after the other


def in_one_keeper(bench: ServiceBench, second: str) -> tuple[str, str]:
    """Two jobs, of which the first has ended, and its keeper runs the other one."""
    first = bench.run("exit 3")
    bench.finish(first)
    eventually(lambda: not bench.service._server.runs(first))
    name = running(bench, second)
    assert bench.handles[first]["pid"] == bench.handles[name]["pid"]
    return first, name


def test_to_cancel_an_ended_job_does_not_end_the_one_that_its_keeper_runs_now(bench):
    first, second = in_one_keeper(bench, f"{bench.until('go')}; exit 4")
    Path(bench.handles[first]["directory"], ".nni/exit").unlink()  # as if nobody knew how it ended
    bench.call(bench.service.cancel(bench.handles[first]))
    bench.give("go")
    assert bench.wait(second).exit_code == 4


@pytest.mark.parametrize("ask", ["cancel", "remove"])
def test_a_trial_that_has_taken_its_keepers_files_away_does_no_harm_to_the_next_one(bench, ask):
    first, second = in_one_keeper(bench, f"{bench.until('go')}; exit 4")
    shutil.rmtree(Path(bench.handles[first]["directory"], ".nni"))
    bench.call(getattr(bench.service, ask)(bench.handles[first]))
    bench.give("go")
    assert bench.wait(second).exit_code == 4


@pytest.mark.parametrize("restart", [False, True], ids=["fork server", "manager"])
def test_the_same_when_the_fork_server_has_died(bench, restart):
    first, second = in_one_keeper(bench, f"{bench.until('go')}; exit 4")
    kill(bench.service._server.pid)
    if restart:
        bench.restart()
    bench.call(bench.service.cancel(bench.handles[first]))
    bench.call(bench.service.remove(bench.handles[first]))
    assert (bench.status(first).state, bench.status(second).state) == (JobState.LOST, JobState.RUNNING)
    bench.give("go")
    assert bench.wait(second).exit_code == 4


def test_the_end_of_a_job_is_seen_though_its_keeper_runs_another_one(bench):
    first, second = in_one_keeper(bench, "sleep 60")
    assert bench.status(first).exit_code == 3
    kill(bench.service._server.pid)
    bench.restart()
    assert bench.status(first).exit_code == 3
    bench.call(bench.service.cancel(bench.handles[second]))
    assert bench.wait(second).state is JobState.CANCELED


def test_a_keeper_that_is_killed_in_its_second_job_costs_only_that_one(bench):
    first, second = in_one_keeper(bench, "sleep 60")
    kill(bench.handles[second]["pid"])
    assert bench.wait(second).state is JobState.LOST
    assert bench.status(first).exit_code == 3
    assert bench.wait(bench.run("exit 5")).exit_code == 5


def test_a_job_can_be_canceled_while_the_fork_server_is_stopped(bench, monkeypatch):
    monkeypatch.setattr("nnilite_local._fork_server_client._ANSWER_S", 0.2)
    name = running(bench)
    server = bench.service._server.pid
    os.kill(server, signal.SIGSTOP)
    bench.call(bench.service.cancel(bench.handles[name]))
    bench.call(bench.service.cancel(bench.handles[name]))
    assert bench.status(name).state is JobState.RUNNING
    os.kill(server, signal.SIGCONT)
    assert bench.wait(name).state is JobState.CANCELED


def test_a_stopped_fork_server_is_the_reason_why_no_trial_starts_and_then_none_starts_twice(bench, monkeypatch):
    monkeypatch.setattr("nnilite_local._fork_server_client._SOON_S", 0.2)
    server = bench.service._server.pid
    job = bench.job(f"echo $$ >> {quoted(bench.mark())}")
    os.kill(server, signal.SIGSTOP)
    for _ in range(2):
        with pytest.raises(ServiceError, match=rf"is stopped \(SIGSTOP\), .* `kill -CONT {server}` helps"):
            bench.submit(job)
    os.kill(server, signal.SIGCONT)
    bench.submit(job)
    assert bench.wait(job.name).exit_code == 0
    assert len(bench.lines()) == 1


def test_a_look_at_the_lock_does_not_keep_a_keeper_from_its_job(bench):
    """As after a restart of the manager, which cannot know whether the keeper has begun."""
    looks = [bench.job(f"exit {number}") for number in range(5)]
    for number, job in enumerate(looks):
        folder = _find_folder(bench.service._directory, job)
        bench.submit(job)
        while folder.read_end("") is None:
            folder.has_keeper()
        assert bench.wait(job.name).exit_code == number
