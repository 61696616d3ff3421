"""`Search.run(..., processes=True)`: the objective in worker processes, which may die."""

from __future__ import annotations

import errno
import multiprocessing
import os
import signal
import subprocess
import sys
import types
from collections.abc import Iterator
from multiprocessing import resource_tracker
from multiprocessing.context import SpawnContext
from pathlib import Path
from typing import Any

import pytest

import search_objectives as objectives
from keeper_bench import running
from nnilite._search.worker_processes import End, WorkerProcesses
from nnilite.assessor import Assessor, AssessResult
from nnilite.errors import Conflict, NniliteError, NoMoreTrialError
from nnilite.records import Trial, TrialState
from nnilite.search import Search, SearchResult
from nnilite.testing import eventually
from nnilite.tuner import Tuner

SPACE = {"x": {"_type": "uniform", "_value": [0, 1]}}


class Given(Tuner):
    """Proposes what a test says, once each."""

    def __init__(self, *given: Any) -> None:
        self.left = list(given)

    def update_search_space(self, search_space: Any) -> None:
        """Any is fine."""

    def generate_parameters(self, parameter_id: int, **kwargs: Any) -> Any:
        if not self.left:
            raise NoMoreTrialError
        return {"x": self.left.pop(0)}

    def receive_trial_result(self, parameter_id: int | None, parameters: Any, value: Any, **kwargs: Any) -> None:
        """Nothing is learnt."""


@pytest.fixture(autouse=True)
def none_is_left() -> Iterator[None]:
    yield
    assert [one.pid for one in multiprocessing.active_children() if one.name == "nnilite-search"] == []


@pytest.fixture(scope="module", autouse=True)
def no_tracker_is_left() -> Iterator[None]:
    """Python's own helper of such processes would stay until the end of the tests."""
    yield
    resource_tracker._resource_tracker._stop()  # type: ignore[attr-defined]


def told(result: SearchResult) -> dict[Any, tuple[TrialState, str]]:
    return {trial.parameters["x"]: (trial.state, trial.reason) for trial in result.trials}


def test_they_set_attributes_of_their_trials() -> None:
    result = Search(SPACE, "Random", seed=1).run(objectives.describe, trials=3, concurrency=2, processes=True)
    assert all(one.attributes == {"half": one.value / 2} for one in result)


def test_functions_report_to_their_trials_as_programs_do() -> None:
    run = Search(SPACE, "Random", seed=1).run(objectives.reports_as_a_trial, trials=3, concurrency=2, processes=True)
    assert run.intermediate == {one.id: (one.value + 1,) for one in run}


def test_trials_run_in_processes_of_their_own() -> None:
    result = Search(SPACE, Given(1, 2, 3, 4, 5, 6)).run(objectives.process, concurrency=2, processes=True)
    assert {trial.state for trial in result.trials} == {TrialState.SUCCEEDED}
    pids = {trial.value["pid"] for trial in result.trials}
    assert os.getpid() not in pids
    assert 1 <= len(pids) <= 2
    assert result.best is not None
    assert result.best.value["default"] == 6


@pytest.mark.process
def test_a_trial_that_ends_its_process_fails_alone_and_says_how() -> None:
    given = ("fine", "raise", "kill", "exit", "no result", "fine too")
    found = told(Search(SPACE, Given(*given)).run(objectives.fate, concurrency=2, processes=True))
    assert found["fine"] == found["fine too"] == (TrialState.SUCCEEDED, "")
    assert found["raise"] == (TrialState.FAILED, "ValueError: no 'quotes'")
    killed = "its worker process was killed by SIGKILL; perhaps the machine ran out of memory"
    assert found["kill"] == (TrialState.FAILED, killed)
    assert found["exit"] == (TrialState.FAILED, "its worker process ended with exit code 3")
    assert found["no result"][0] is TrialState.FAILED


@pytest.mark.process
def test_a_worker_that_died_after_its_last_trial_takes_no_other_with_it() -> None:
    with WorkerProcesses(objectives.fate, takes_report=False) as workers:
        workers.begin("a", {"x": "fine"})
        eventually(lambda: any(isinstance(event, End) for event in workers.wait()))
        [idle] = workers._workers
        idle.process.kill()
        idle.process.join()
        workers.begin("b", {"x": "fine"})
        ends = eventually(lambda: [event for event in workers.wait() if isinstance(event, End)])
    assert [(end.trial, end.outcome.error) for end in ends] == [("b", None)]


class UpTo(Assessor):
    """Stops trials above a number; chokes on a negative one."""

    def assess_trial(self, trial_job_id: str, trial_history: list[Any]) -> AssessResult:
        if trial_history[-1] < 0:
            raise KeyError("choked")
        return AssessResult.Good if trial_history[-1] < 5 else AssessResult.Bad


def test_the_assessor_stops_trials_in_processes() -> None:
    search = Search(SPACE, Given(1, 9, -1, 2), assessor=UpTo())
    result = search.run(objectives.reports, concurrency=2, processes=True)
    found = told(result)
    assert found[1] == found[2] == (TrialState.SUCCEEDED, "")
    assert found[9] == (TrialState.EARLY_STOPPED, "stopped by the assessor")
    assert found[-1][0] is TrialState.FAILED
    assert "choked" in found[-1][1]
    assert result.intermediate["0"] == (1, 1.1, 1.2)


def test_callbacks_run_in_this_process_and_may_stop_the_search() -> None:
    seen = []

    def stop(search: Search, trial: Trial) -> None:
        seen.append((os.getpid(), trial.value))
        search.stop()

    Search(SPACE, Given(1, 2, 3)).run(objectives.number, processes=True, callbacks=[stop])
    assert seen == [(os.getpid(), 1)]


def test_after_the_time_a_trial_ends_at_its_next_report() -> None:
    def time_flies(search: Search, trial: Trial) -> None:
        search._loops[0]._deadline = 0.0

    result = Search(SPACE, Given(0, 1, 2)).run(
        objectives.patient, concurrency=2, timeout_s=3600, processes=True, callbacks=[time_flies]
    )
    assert told(result) == {0: (TrialState.SUCCEEDED, ""), 1: (TrialState.SYS_CANCELED, "the time is up")}


def test_when_a_callback_raises_what_runs_ends_at_its_next_report() -> None:
    def broken(search: Search, trial: Trial) -> None:
        raise ValueError("no")

    search = Search(SPACE, Given(0, 1))
    with pytest.raises(NniliteError, match="the callback broken raised ValueError"):
        search.run(objectives.patient, concurrency=2, processes=True, callbacks=[broken])
    assert told(search.result()) == {0: (TrialState.SUCCEEDED, ""), 1: (TrialState.SYS_CANCELED, "the search ends")}


@pytest.mark.process
def test_ctrl_c_ends_workers_whatever_they_do(tmp_path: Path) -> None:
    def interrupted(search: Search, trial: Trial) -> None:
        eventually(lambda: (tmp_path / "pid").is_file() and (tmp_path / "pid").read_text(), 60)
        raise KeyboardInterrupt

    search = Search(SPACE, Given(0, str(tmp_path / "pid")))
    with pytest.raises(KeyboardInterrupt):
        search.run(objectives.held, concurrency=2, processes=True, callbacks=[interrupted])
    canceled = told(search.result())[str(tmp_path / "pid")]
    assert canceled == (TrialState.USER_CANCELED, "interrupted (KeyboardInterrupt)")
    assert not running(int((tmp_path / "pid").read_text()))


def test_an_objective_that_cannot_be_sent_is_refused_with_a_cure() -> None:
    local = 1
    for objective in (lambda parameters: 1, lambda parameters: local):
        with pytest.raises(Conflict, match=r"cannot be sent to other processes: .* at the top level of a module"):
            Search(SPACE, Given(1)).run(objective, processes=True)


def become_daemonic(patch: pytest.MonkeyPatch) -> None:
    patch.setitem(multiprocessing.current_process()._config, "daemon", True)  # type: ignore[attr-defined]


def become_worker_of_joblib(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(multiprocessing, "get_start_method", lambda allow_none: "loky")


@pytest.mark.parametrize("become", [become_daemonic, become_worker_of_joblib])
def test_workers_of_a_pool_learn_that_they_may_not_start_others(monkeypatch: pytest.MonkeyPatch, become: Any) -> None:
    become(monkeypatch)
    with pytest.raises(Conflict, match=r"worker of multiprocessing\.Pool.*without processes=True"):
        Search(SPACE, "Random").run(objectives.process, trials=2, processes=True)


def test_a_worker_that_cannot_be_started_takes_no_result_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = SpawnContext.Pipe
    pipes = iter([pipe])

    def refuse_second(context: SpawnContext) -> Any:
        for make in pipes:
            return make(context)
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(SpawnContext, "Pipe", refuse_second)
    search = Search(SPACE, Given(1, 2))
    with pytest.raises(NniliteError, match=r"a worker process cannot be started: .*Too many open files"):
        search.run(objectives.process, concurrency=2, processes=True)
    assert [trial.state for trial in search.result().trials] == [TrialState.SUCCEEDED, TrialState.USER_CANCELED]


def test_an_objective_that_workers_cannot_import_is_refused_with_a_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    here = types.ModuleType("only_here")
    exec("def objective(parameters): return 1", here.__dict__)
    monkeypatch.setitem(sys.modules, "only_here", here)
    search = Search(SPACE, Given(1))
    with pytest.raises(Conflict, match=r"ModuleNotFoundError: .*only_here.* at the top level of a module"):
        search.run(here.objective, processes=True)
    assert told(search.result())[1][0] is TrialState.USER_CANCELED


def test_a_search_in_processes_is_kept_in_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NNILITE_HOME", str(tmp_path / "home"))
    folder = tmp_path / "kept"
    Search(SPACE, "Random", storage=folder).run(objectives.reports, trials=4, concurrency=2, processes=True)
    again = Search(SPACE, "Random", storage=folder).result()
    assert [trial.state for trial in again.trials] == [TrialState.SUCCEEDED] * 4
    assert {len(values) for values in again.intermediate.values()} == {3}


SCRIPT = """
import sys
from nnilite import Search
from search_objectives import held
SPACE = {"x": {"_type": "choice", "_value": [sys.argv[1]]}}
def main():
    search = Search(SPACE, "Random")
    try:
        search.run(held, processes=True)
    except KeyboardInterrupt:
        print([trial.state.value for trial in search.result().trials], flush=True)
GUARD
    main()
"""


THREADS = """
import sys, threading
from pathlib import Path
from nnilite import Search
def held(parameters):
    Path(sys.argv[1]).write_text("runs")
    threading.Event().wait()
search = Search({"x": {"_type": "choice", "_value": [1]}}, "Random")
try:
    search.run(held, trials=1, concurrency=2)
except KeyboardInterrupt:
    print([trial.state.value for trial in search.result().trials], flush=True)
"""


IGNORING = """
import signal
from nnilite import Search
from search_objectives import fate
if __name__ == "__main__":
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    space = {"x": {"_type": "choice", "_value": ["exit", "fine"]}}
    search = Search(space, "GridSearch")
    print([trial.state.value for trial in search.run(fate, processes=True, progress=False)])
"""


BLOCKING = """
import signal
from multiprocessing import resource_tracker
from multiprocessing.context import SpawnContext
from nnilite import Search
from search_objectives import blocked
if __name__ == "__main__":
    resource_tracker.ensure_running()  # which unblocks signals, in some Pythons
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    search = Search({"x": {"_type": "choice", "_value": [1]}}, "GridSearch")
    print(search.run(blocked, processes=True, progress=False).best.value)
"""


def script(folder: Path, text: str) -> subprocess.Popen[str]:
    """A program of a user, in a process group of its own as in a terminal."""
    (folder / "script.py").write_text(text)
    env = {**os.environ, "PYTHONPATH": str(Path(objectives.__file__).parent)}
    return subprocess.Popen(
        [sys.executable, str(folder / "script.py"), str(folder / "pid")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=env,
        start_new_session=True,
    )


@pytest.mark.process
@pytest.mark.real
def test_ctrl_c_in_a_terminal_ends_a_script_and_its_workers(tmp_path: Path) -> None:
    with script(tmp_path, SCRIPT.replace("GUARD", 'if __name__ == "__main__":')) as program:
        eventually(lambda: (tmp_path / "pid").is_file() and (tmp_path / "pid").read_text(), 60)
        os.killpg(program.pid, signal.SIGINT)
        out, err = program.communicate(timeout=60)
    assert (out.strip(), err) == ("['USER_CANCELED']", "")
    assert not running(int((tmp_path / "pid").read_text()))


@pytest.mark.process
@pytest.mark.real
def test_a_second_ctrl_c_ends_a_script_whose_threads_cannot_be_stopped(tmp_path: Path) -> None:
    with script(tmp_path, THREADS) as program:
        eventually(lambda: (tmp_path / "pid").is_file() and (tmp_path / "pid").read_text(), 60)
        os.killpg(program.pid, signal.SIGINT)
        assert program.stderr is not None
        assert "waiting for 1 trials that run in threads" in program.stderr.readline()
        os.killpg(program.pid, signal.SIGINT)
        out, err = program.communicate(timeout=60)
    assert (program.returncode, out, err) == (0, "['USER_CANCELED']\n", "")


@pytest.mark.process
@pytest.mark.real
def test_a_script_without_a_guard_is_told_of_it(tmp_path: Path) -> None:
    with script(tmp_path, SCRIPT.replace("GUARD", "if True:")) as program:
        _, err = program.communicate(timeout=60)
    assert program.returncode == 1
    assert 'call run under `if __name__ == "__main__":`' in err


@pytest.mark.process
@pytest.mark.real
def test_a_script_that_ignores_how_its_processes_end_gets_its_result(tmp_path: Path) -> None:
    with script(tmp_path, IGNORING) as program:
        out, err = program.communicate(timeout=60)
    assert (program.returncode, out) == (0, "['FAILED', 'SUCCEEDED']\n"), err


@pytest.mark.process
@pytest.mark.real
def test_workers_can_be_ended_though_the_program_blocks_signals(tmp_path: Path) -> None:
    with script(tmp_path, BLOCKING) as program:
        out, err = program.communicate(timeout=60)
    assert out == "0\n", err


@pytest.mark.process
@pytest.mark.parametrize("objective", [objectives.timed, objectives.alarmed])
def test_signal_handlers_may_end_reports_and_report_themselves(objective: Any) -> None:
    # An answer that nothing waits for any more was taken for that to the next report, or for the next parameters.
    given = [float(number) for number in range(20)]
    result = Search(SPACE, Given(*given)).run(objective, processes=True, timeout_s=60)
    assert [(trial.state, trial.value) for trial in result.trials] == [(TrialState.SUCCEEDED, x) for x in given]


@pytest.mark.process
def test_a_copy_of_the_process_cannot_report_and_learns_so() -> None:
    result = Search(SPACE, Given(0.0)).run(objectives.forked, processes=True, timeout_s=60)
    assert [trial.value for trial in result.trials] == [5]
