"""Trials that start together, as tasks of one job array, on a real Slurm."""

from __future__ import annotations

import pytest

from nnilite.service import JobState
from platforms.slurm.test_trials import attempt_of, find_job

pytestmark = [pytest.mark.real, pytest.mark.timeout(120)]


@pytest.fixture
def bench(open_bench):
    return open_bench(nni_manager_ip=None, job_array_size=4)


def ids(bench, names) -> list[str]:
    """The ids of jobs as they stand in their folders."""
    return [(attempt_of(bench, name) / "job").read_text().strip() for name in names]


def test_trials_that_start_together_are_tasks_of_one_job(bench):
    names = [bench.submit(find_job(bench, f"exit {code}")) for code in (0, 3, 0, 5)]
    assert [bench.wait(name).exit_code for name in names] == [0, 3, 0, 5]
    found = ids(bench, names)
    assert len({one.split("_")[0] for one in found}) == 1
    assert [one.split("_")[1] for one in found] == ["0", "1", "2", "3"]


def test_more_trials_than_an_array_holds_make_several(bench):
    names = [bench.submit(find_job(bench, "true")) for _ in range(6)]
    assert [bench.wait(name).state for name in names] == [JobState.SUCCEEDED] * 6
    assert len({one.split("_")[0] for one in ids(bench, names)}) == 2


def test_one_task_is_canceled_and_the_others_go_on(bench):
    names = [bench.submit(find_job(bench, bench.until("go"))) for _ in range(3)]
    for name in names:
        bench.wait(name, JobState.RUNNING)
    bench.call(bench.service.cancel(bench.handles[names[1]]))
    assert bench.wait(names[1]).state is JobState.CANCELED
    bench.give("go")
    assert [bench.wait(names[n]).state for n in (0, 2)] == [JobState.SUCCEEDED] * 2


def test_a_trial_that_is_canceled_while_its_array_is_gathered_never_runs(bench):
    first, second = (bench.submit(find_job(bench, bench.tell(word))) for word in ("first", "second"))
    assert "gathered" in bench.status(first).reason
    bench.call(bench.service.cancel(bench.handles[first]))
    assert bench.wait(first).state is JobState.CANCELED
    assert bench.wait(second).state is JobState.SUCCEEDED
    assert bench.lines() == ["second"]


def test_what_a_manager_has_not_submitted_the_next_one_submits(bench):
    names = [bench.submit(find_job(bench, bench.tell(f"trial{n}"))) for n in range(3)]
    bench.restart()
    assert [bench.wait(name).state for name in names] == [JobState.SUCCEEDED] * 3
    assert sorted(bench.lines()) == ["trial0", "trial1", "trial2"]


def test_an_array_that_was_submitted_without_a_word_is_found_again(open_bench, slurm):
    bench = open_bench(nni_manager_ip=None, job_array_size=4, sbatch_lines=["--hold"])
    names = [bench.submit(find_job(bench, bench.tell(f"trial{n}"))) for n in range(2)]
    notes = [attempt_of(bench, name) / "job" for name in names]
    bench.eventually(lambda: all(note.exists() for note in notes))
    before = ids(bench, names)
    array = (notes[0].parent / "array").read_text().strip()
    for note in [*notes, notes[0].parents[3] / "arrays" / array / "job"]:
        note.unlink()
    bench.restart()
    bench.eventually(lambda: bench.status(names[0]) and all(note.exists() for note in notes))
    assert ids(bench, names) == before
    slurm.command("scontrol", "release", before[0].split("_")[0])
    assert [bench.wait(name).state for name in names] == [JobState.SUCCEEDED] * 2
    assert sorted(bench.lines()) == ["trial0", "trial1"]
