"""The tests that every training service passes, built in or not. They really run commands.

    class TestMyService(ServiceContract):
        @pytest.fixture
        def make_service(self):
            return lambda context: MyService("mine", MyConfig(...), context)

A service may say by class attributes what it does not do. What a platform must do beyond this (one that kills its
jobs, loses a node) is for its own tests.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from nnilite.errors import Conflict, NotFound, ServiceError
from nnilite.service import JobState, ServiceContext, TrainingService
from nnilite.testing.bench import ServiceBench, eventually
from nnilite.testing.probes import command_lines, files_below, holds, quoted
from nnilite.testing.trial_contract import TrialContract


class ServiceContract(TrialContract):
    """Requirements on a training service, beyond the signatures of `TrainingService`.

    - `submit` returns soon, with a handle that is JSON, holds no secret and is all that is needed later
    - the same job name is started once, whatever happens in between
    - a trial gets its own folder, the code, its parameters, and no token
    - what it reports arrives once, also what it reports at its very end
    - `cancel` ends all of its processes, softly first, and is harmless at any time
    - nothing is lost when the manager goes and comes back
    """

    has_logs = True  # `logs` and `fetch` work
    pushes = False  # the service notices the end of each job, and wakes the manager

    @pytest.fixture
    def make_service(self) -> Callable[[ServiceContext], TrainingService]:
        """Return a function that makes a service that has not been opened. To be overridden."""
        raise NotImplementedError("define the fixture make_service")

    @pytest.fixture
    def bench(
        self, tmp_path: Path, make_service: Callable[[ServiceContext], TrainingService]
    ) -> Iterator[ServiceBench]:
        """Yield an open service and its surroundings."""
        with ServiceBench(tmp_path, make_service) as bench:
            yield bench

    # lifecycle

    def test_a_service_can_be_closed_twice_and_opened_again(self, bench: ServiceBench) -> None:
        bench.call(bench.service.close())
        bench.close()
        bench.open()
        assert bench.finish(bench.run("true")).exits[0]["code"] == 0

    def test_closing_is_quick_and_leaves_jobs_running(self, bench: ServiceBench) -> None:
        name = bench.run(bench.until("go"))
        bench.wait(name, JobState.RUNNING)
        began = time.monotonic()
        bench.restart()
        assert time.monotonic() - began < 30  # the job that it must not wait for takes longer
        assert bench.status(name).state is JobState.RUNNING
        bench.give("go")
        assert bench.wait(name).state is JobState.SUCCEEDED

    def test_polling_nothing_gives_nothing(self, bench: ServiceBench) -> None:
        assert list(bench.call(bench.service.poll([]))) == []

    def test_statuses_come_in_the_order_of_the_handles(self, bench: ServiceBench) -> None:
        names = [bench.run(f"exit {code}") for code in (3, 0, 5)]
        for name in names:
            bench.wait(name)
        handles = [bench.handles[name] for name in reversed(names)]
        assert [status.exit_code for status in bench.call(bench.service.poll(handles))] == [5, 0, 3]

    # submitting

    def test_a_job_runs_once_and_its_end_is_told(self, bench: ServiceBench) -> None:
        name = bench.run(bench.tell("once"))
        assert bench.wait(name).state is JobState.SUCCEEDED
        assert bench.lines() == ["once"]

    def test_submitting_returns_before_the_job_has_ended(self, bench: ServiceBench) -> None:
        assert not bench.status(bench.run("sleep 60")).state.ended

    def test_submitting_the_same_name_twice_starts_it_once(self, bench: ServiceBench) -> None:
        job = bench.job(f"{bench.tell('once')}; sleep 0.5")
        bench.submit(job)
        bench.submit(job)
        bench.finish(job.name)
        bench.submit(job)
        assert bench.wait(job.name).state is JobState.SUCCEEDED
        assert bench.lines() == ["once"]

    def test_submitting_again_after_a_restart_finds_the_running_job(self, bench: ServiceBench) -> None:
        job = bench.job(f"{bench.tell('once')}; sleep 1")
        bench.submit(job)
        bench.eventually(bench.lines)
        bench.handles.clear()
        bench.restart()
        bench.submit(job)
        assert bench.wait(job.name).state is JobState.SUCCEEDED
        assert bench.lines() == ["once"]

    def test_jobs_run_at_the_same_time(self, bench: ServiceBench) -> None:
        names = [bench.run(f"{bench.tell('here')}; {bench.until('go')}") for _ in range(3)]
        bench.eventually(lambda: bench.lines() == ["here"] * 3)
        bench.give("go")
        assert [bench.wait(name).state for name in names] == [JobState.SUCCEEDED] * 3

    def test_handles_are_json_and_differ(self, bench: ServiceBench) -> None:
        names = [bench.run("true", trial=trial) for trial in ("Ab1cd", "aB1cd")]
        texts = {json.dumps(bench.handles[name], sort_keys=True) for name in names}
        assert len(texts) == 2
        assert [bench.wait(name).state for name in names] == [JobState.SUCCEEDED] * 2

    # status

    def test_the_exit_code_is_told(self, bench: ServiceBench) -> None:
        codes = {
            "exit 0": 0,
            "exit 137": 137,
            "kill -9 $$": -9,
            "no-such-command-here": 127,
            "if then": 2,
        }
        names = {command: bench.run(command) for command in codes}
        statuses = {command: bench.wait(name) for command, name in names.items()}
        assert {command: status.exit_code for command, status in statuses.items()} == codes
        good = [command for command, status in statuses.items() if status.state is JobState.SUCCEEDED]
        assert good == ["exit 0"]
        assert {status.state for status in statuses.values()} == {JobState.SUCCEEDED, JobState.FAILED}
        assert {command: bench.finish(name).exits[0]["code"] for command, name in names.items()} == codes

    def test_a_running_job_is_running_and_started_when_it_was(self, bench: ServiceBench) -> None:
        before = time.time()
        status = bench.wait(bench.run("sleep 60"), JobState.RUNNING)
        assert status.started is not None
        assert before - 2 < status.started < time.time() + 2

    def test_start_and_end_of_an_ended_job_are_told(self, bench: ServiceBench) -> None:
        status = bench.wait(bench.run("sleep 0.3"))
        assert status.started is not None
        assert status.ended is not None
        assert 0.2 < status.ended - status.started < 60

    def test_an_unknown_job_is_lost(self, bench: ServiceBench, tmp_path: Path) -> None:
        name = bench.run("true")
        bench.finish(name)
        other = json.loads(json.dumps(bench.handles[name]).replace(name.split("-")[2], "Nowhere"))
        bench.eventually(lambda: bench.call(bench.service.poll([other]))[0].state is JobState.LOST)

    def test_the_end_of_a_job_wakes_the_manager(self, bench: ServiceBench) -> None:
        if not self.pushes:
            pytest.skip("this service has to be polled")
        bench.run("true")
        bench.eventually(lambda: bench.wakes)

    def test_output_that_nobody_reads_does_not_hold_a_trial_up(self, bench: ServiceBench) -> None:
        status = bench.wait(bench.run("head -c 3000000 /dev/zero; head -c 3000000 /dev/zero >&2"))
        assert status.state is JobState.SUCCEEDED

    # canceling

    def test_a_canceled_job_ends_as_canceled(self, bench: ServiceBench) -> None:
        name = bench.run("sleep 60")
        bench.wait(name, JobState.RUNNING)
        bench.call(bench.service.cancel(bench.handles[name]))
        assert bench.wait(name).state is JobState.CANCELED

    def test_canceling_right_after_submitting_works(self, bench: ServiceBench) -> None:
        for _ in range(3):
            name = bench.run("sleep 60")
            bench.call(bench.service.cancel(bench.handles[name]))
            assert bench.wait(name).state is JobState.CANCELED

    def test_canceling_ends_children_and_grandchildren(self, bench: ServiceBench) -> None:
        tell = bench.tell("$!")
        nested = f"(sleep 61 & {tell}; (sleep 62 & {tell}; wait) & wait)"
        name = bench.run(f"true && {nested}; true")
        bench.eventually(lambda: len(bench.lines()) == 2)
        pids = bench.lines()
        bench.call(bench.service.cancel(bench.handles[name]))
        bench.wait(name)
        assert not [pid for pid in pids if bench.runs(int(pid))]

    def test_a_job_that_ignores_sigterm_is_killed_after_the_grace(self, bench: ServiceBench) -> None:
        name = bench.run(f"trap '' TERM INT; {bench.tell('up')}; sleep 60", grace_s=0.5)
        bench.eventually(bench.lines)
        bench.call(bench.service.cancel(bench.handles[name]))
        assert bench.wait(name).state is JobState.CANCELED

    def test_a_job_may_clean_up_during_the_grace(self, bench: ServiceBench) -> None:
        clean = f"clean() {{ sleep 1; {bench.tell('clean')}; exit 3; }}; trap clean TERM"
        name = bench.run(f"{clean}; {bench.tell('up')}; sleep 60 & wait", grace_s=30)
        bench.eventually(bench.lines)
        bench.call(bench.service.cancel(bench.handles[name]))
        assert bench.wait(name).state is JobState.CANCELED
        assert bench.lines() == ["up", "clean"]

    def test_canceling_twice_or_after_the_end_is_harmless(self, bench: ServiceBench) -> None:
        ended, running = bench.run("exit 3"), bench.run("sleep 60")
        bench.finish(ended)
        for name in (ended, running, running):
            bench.call(bench.service.cancel(bench.handles[name]))
        bench.wait(running)  # its keeper may not have begun, and then reports nothing
        bench.call(bench.service.cancel(bench.handles[running]))
        assert bench.status(ended).exit_code == 3
        assert bench.status(running).state is JobState.CANCELED

    def test_the_manager_can_cancel_by_its_answer(self, bench: ServiceBench) -> None:
        if not bench.calls_back:
            pytest.skip("trials report by their logs")
        name = bench.run("sleep 60")
        bench.wait(name, JobState.RUNNING)
        bench.received(name).cancel = True
        assert bench.wait(name).state is JobState.CANCELED

    def test_canceling_one_job_leaves_the_others_alone(self, bench: ServiceBench) -> None:
        first, second = bench.run("sleep 60"), bench.run("sleep 1")
        bench.call(bench.service.cancel(bench.handles[first]))
        assert bench.wait(second).state is JobState.SUCCEEDED

    # another number of workers

    def test_a_job_of_a_fixed_size_refuses_to_be_scaled_and_goes_on(self, bench: ServiceBench) -> None:
        name = bench.run("sleep 60")
        bench.wait(name, JobState.RUNNING)
        assert isinstance(bench.refusal(bench.service.scale(bench.handles[name], 2)), Conflict)
        assert bench.status(name).state is JobState.RUNNING

    # logs

    def test_output_can_be_read_while_the_trial_runs_and_after(self, bench: ServiceBench) -> None:
        if not self.has_logs:
            pytest.skip("this service has no logs")
        go = bench.mark("go")
        name = bench.run(f"echo first; echo bad >&2; while ! test -e {quoted(go)}; do sleep 0.02; done; echo last")
        eventually(lambda: self._log(bench, name, "stdout") == b"first\n")
        go.touch()
        bench.wait(name)
        assert self._log(bench, name, "stdout") == b"first\nlast\n"
        assert self._log(bench, name, "stderr") == b"bad\n"
        assert bench.call(bench.service.logs(bench.handles[name], "stdout", 6, 3)) == b"las"

    def test_a_stream_that_does_not_exist_gives_no_file_away(self, bench: ServiceBench) -> None:
        if not self.has_logs:
            pytest.skip("this service has no logs")
        name = bench.run("true")
        bench.wait(name)
        for stream in ("../spec.json", "/etc/passwd", ""):
            assert isinstance(bench.refusal(bench.service.logs(bench.handles[name], stream, 0, 9)), NotFound)

    def test_the_trials_files_can_be_fetched(self, bench: ServiceBench) -> None:
        if not self.has_logs:
            pytest.skip("this service has no files")
        name = bench.run("""echo weights > "$NNI_OUTPUT_DIR"/'model $x.bin'""")
        bench.finish(name)
        target = bench.scratch / "fetched"
        bench.call(bench.service.fetch(bench.handles[name], target))
        assert (target / "model $x.bin").read_text() == "weights\n"
        assert not [path for path in target.rglob("*") if path.is_file() and holds(path, bench.received(name).token)]

    def test_the_trials_files_are_listed_and_copied_one_by_one_if_at_all(self, bench: ServiceBench) -> None:
        if not self.has_logs:
            pytest.skip("this service has no files")
        outside = bench.mark("outside")
        outside.write_text("of another")
        name = bench.run(
            f"""cd "$NNI_OUTPUT_DIR"; mkdir d; echo weights > d/'model $x.bin'; ln -s {quoted(outside)} l"""
        )
        bench.finish(name)
        handle, target = bench.handles[name], bench.scratch / "one"
        listed = bench.call(bench.service.files(handle))
        if listed is None:
            pytest.skip("this service does not list files")
        known = {one.path: one for one in listed}
        assert (known["d/model $x.bin"].size, known["d/model $x.bin"].kind) == (8, "file")
        assert (known["l"].kind, known["l"].target) == ("link", str(outside))
        assert "spec.json" not in known
        bench.call(bench.service.fetch_file(handle, "d/model $x.bin", target, 8))
        assert (target / "d/model $x.bin").read_text() == "weights\n"
        assert isinstance(bench.refusal(bench.service.fetch_file(handle, "d/model $x.bin", target, 7)), ServiceError)
        for path in ("l", "spec.json", "none", "../none", "/etc/passwd"):
            assert isinstance(
                bench.refusal(bench.service.fetch_file(handle, path, target, 99)), NotFound | ServiceError
            )
        assert [path.name for path in target.rglob("*") if not path.is_dir()] == ["model $x.bin"]

    @staticmethod
    def _log(bench: ServiceBench, name: str, stream: str) -> bytes:
        return bench.call(bench.service.logs(bench.handles[name], stream, 0, 1_000_000))

    # a manager that goes and comes back

    def test_a_restarted_manager_finds_its_jobs(self, bench: ServiceBench) -> None:
        name = bench.run(f"{bench.until('go')}; exit 7")
        bench.wait(name, JobState.RUNNING)
        bench.restart()
        assert bench.status(name).state is JobState.RUNNING
        bench.give("go")
        assert bench.wait(name).exit_code == 7

    def test_a_job_that_ended_while_no_manager_was_there_has_its_exit_code(self, bench: ServiceBench) -> None:
        if not (bench.calls_back or self.ends_alone):
            pytest.skip("trials report by logs that go with them")
        name = bench.run(f"sleep 0.5; {bench.tell('done')}; exit 7")
        bench.close()
        bench.eventually(bench.lines)
        bench.open()
        assert bench.wait(name).exit_code == 7

    def test_a_job_of_an_earlier_manager_can_be_canceled(self, bench: ServiceBench) -> None:
        name = bench.run("sleep 60")
        bench.wait(name, JobState.RUNNING)
        bench.restart()
        bench.call(bench.service.cancel(bench.handles[name]))
        assert bench.wait(name).state is JobState.CANCELED

    # secrets

    def test_the_token_is_on_no_command_line_and_in_no_handle(self, bench: ServiceBench) -> None:
        name = bench.run("sleep 60")
        bench.wait(name, JobState.RUNNING)
        token = bench.received(name).token
        assert token not in json.dumps(bench.handles[name])
        assert token not in repr(bench.status(name))
        if self.same_machine:
            assert not [line for line in command_lines() if token in line]

    def test_a_dry_run_is_json_and_shows_no_token(self, bench: ServiceBench) -> None:
        job = bench.job(bench.tell("ran"))
        text = json.dumps(bench.service.describe(job))
        assert job.name in text
        assert bench.received(job.name).token not in text
        assert bench.lines() == []

    def test_files_with_the_token_are_for_their_owner_only(self, bench: ServiceBench) -> None:
        name = bench.run("sleep 60")
        bench.wait(name, JobState.RUNNING)
        token = bench.received(name).token
        open_files = [path for path in files_below(bench.folder) if holds(path, token)]
        assert not [path for path in open_files if path.stat().st_mode & 0o077]

    def test_removing_an_ended_job_leaves_no_token_behind(self, bench: ServiceBench) -> None:
        name = bench.run("true")
        bench.finish(name)
        for _ in range(2):  # a manager that dies over it asks again
            bench.call(bench.service.remove(bench.handles[name]))
        token = bench.received(name).token
        eventually(lambda: not any(holds(path, token) for path in files_below(bench.folder)))
