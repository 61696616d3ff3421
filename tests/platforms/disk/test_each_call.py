"""Each call to the disk fails once: nothing is lost, doubled or called a success that was none, whichever it is."""

from __future__ import annotations

import datetime
import errno
import os
import random
from pathlib import Path
from typing import Any

import pytest

from e2e.running import Running
from keeper_bench import Bench
from nnilite._experiments import registry
from nnilite.errors import NniliteError
from nnilite.testing import eventually
from platforms.disk.disk import MAKE_FOLDER, OPEN, RENAME, SYNC, TRUNCATE, WRITE, Disk

pytestmark = [pytest.mark.real]

OPERATIONS = {"open": OPEN, "write": WRITE, "truncate": TRUNCATE, "rename": RENAME, "mkdir": MAKE_FOLDER}
# A report that fails is the trial's to know: the SDK raises, and the program goes on or not. So its file is left alone.
REPORTS = 'for value in 1 2 3; do echo "intermediate $value" >> "$NNILITE_METRICS"; done; echo printed'
TRIAL = """
import nnilite
nnilite.get_next_parameter()
for step in range(3):
    nnilite.report_intermediate_result(step)
nnilite.report_final_result(7)
"""
# How many of an experiment's thousands of calls fail, one in each run: chosen by chance, others on another day.
FAULTS = int(os.environ.get("NNILITE_CHAOS_FAULTS", "1"))
SEED = int(os.environ.get("NNILITE_CHAOS_SEED", str(datetime.date.today().toordinal())))


@pytest.fixture
def on(disk: Disk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Disk:
    monkeypatch.setenv("LD_PRELOAD", str(disk.library))
    return disk


# The keeper makes no difference between the two.
FULL = pytest.param(errno.ENOSPC, id="ENOSPC", marks=pytest.mark.long)


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("error", [pytest.param(errno.EIO, id="EIO"), FULL])
def test_each_call_of_a_keeper_fails_once(tmp_path: Path, on: Disk, operation: str, error: int) -> None:
    on.watch("trial", tmp_path, "*/.nni/metrics")
    on.watch("keeper", tmp_path, "*/0/*")
    wrong = []
    number, more = 0, True
    while more:
        number += 1
        on.count_anew()
        on.refuse("keeper", OPERATIONS[operation], error, only=number)
        folder = tmp_path / f"{number}"
        folder.mkdir()
        with Bench(folder) as bench:
            code = bench.run(REPORTS, send_output=True)
            more = on.counted("keeper", OPERATIONS[operation]).calls >= number
            on.heal()
            if fault := judge(bench, code):
                wrong.append(f"{operation} no. {number}: {fault}")
    assert wrong == []
    assert number > 1, "a keeper has such calls"


def judge(bench: Bench, code: int) -> str:
    """What a run with one fault has done wrong: it is a success with all of it, or is known to be none."""
    values, ends = bench.callback.values, bench.callback.exits
    if bench.callback.doubled or values != [1, 2, 3][: len(values)]:
        return f"the reports came as {values}"
    if len(ends) > 1:
        return f"it ended {len(ends)} times"
    if ends and ends[0].code == 0 and ends[0].cause is None and not ends[0].message:
        whole = values == [1, 2, 3] and bench.callback.output["stdout"] == b"printed\n"
        return "" if whole else f"it counts as a success, with {values} and {bench.callback.output}"
    return "" if code != 0 or ends else "it is over, and nothing says so"


@pytest.mark.parametrize("operation", [*OPERATIONS, "sync"])
def test_a_call_of_an_experiment_fails_once(
    tmp_path: Path, on: Disk, start: Any, operation: str, record_property: Any
) -> None:
    """Manager, tuner, fork server and keepers: it ends by itself, or once it is resumed, and has all results."""
    on.watch("trial", tmp_path, "*/.nni/metrics")
    on.watch("all", tmp_path / "home", "*")
    call = {**OPERATIONS, "sync": SYNC}[operation]
    running = start(TRIAL, maxTrialNumber=3)
    running.wait("DONE")
    running.stop()
    calls = on.counted("all", call).calls
    draw = random.Random(f"{SEED} {operation}")
    for number in sorted(draw.randrange(calls) + 1 for _ in range(FAULTS)):
        on.count_anew()
        on.refuse("all", call, draw.choice([errno.EIO, errno.ENOSPC]), only=number)
        place = f"{operation} no. {number} of {calls} (NNILITE_CHAOS_SEED={SEED})"
        try:
            running = start(TRIAL, maxTrialNumber=3)
        except NniliteError:  # in a sentence; there is no experiment then
            on.heal()
            continue
        running = ended(running, place)
        on.heal()
        for trial in running.trials():
            if was_refused(trial):
                continue
            assert trial["state"] == "SUCCEEDED", f"{place}: {trial}"
            metrics = [one["value"] for one in running.client.metrics(trial=trial["id"])]
            assert metrics[-4:] == [0, 1, 2, 7], f"{place}: {metrics}"
        assert len(running.trials()) == 3, place
        running.stop()
    record_property(
        "shown", f"one failing call in an experiment: {FAULTS} of {calls} calls of {operation}, seed {SEED}"
    )


def was_refused(trial: dict[str, Any]) -> bool:
    """Whether the call was one of the trial's own program, such as an import. It fails then, and says so."""
    lines = (trial["reason"] or "").splitlines()
    return trial["state"] == "FAILED" and "trial.py" in trial["reason"] and lines[-1].startswith("OSError: [Errno")


def ended(running: Running, place: str) -> Running:
    """The experiment once it is DONE; a manager that has ended over the fault is resumed."""

    def over() -> str:
        try:
            return running.state() if running.state() in ("DONE", "ERROR", "STOPPED") else ""
        except NniliteError:
            return "" if registry.is_alive(running.directory) else "GONE"

    state = eventually(over, 90)
    if state == "DONE":
        return running
    running.client.close()
    eventually(lambda: not registry.is_alive(running.directory), 30)
    resumed = running.resume()
    assert eventually(lambda: resumed.state() in ("DONE", "ERROR", "STOPPED") and resumed.state(), 90) == "DONE", place
    return resumed
