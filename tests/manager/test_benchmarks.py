"""The benchmark of a large experiment writes its database itself: what the tables have gained must not break it."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from nnilite._store.writer import Store


def test_the_large_experiment_can_be_filled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2]))
    scale = importlib.import_module("benchmarks.scale")
    path = tmp_path / "nnilite.sqlite"
    Store.create(path, "abcdef12", 0.0).close()
    scale.fill(path, 3)
    store = Store.open(path)
    assert len(store.resume_reader.calls(100)) == 4
    assert store.resume_reader.snapshot(maximize=True).best is not None
    store.close()


def test_a_budget_of_trials_says_what_it_must_not_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2]))
    main = importlib.import_module("benchmarks.__main__")
    trials = importlib.import_module("benchmarks.trials")
    table = importlib.import_module("benchmarks.table")
    run = trials.Run(0.01, 0.02, inodes=5.0, disk_kb=12.0, memory_mb=80.0)
    results = [*trials.of_shell(run, 20.0), table.Result("another", "1", "", "", "", None)]
    beside = table.Result(f"{main.WHAT} beside 4 busy programs", "0.5 s", "", "1.03", "1.1", True)
    first, second = main.with_share([*results, beside])[:2]
    assert first.price.startswith("memory 80 MB, 5.0 files and folders and 12.0 kB a trial; ")
    assert first.price.endswith("beside 4 busy programs 1.03")
    assert (first.ratio, first.budget, first.met) == ("0.50", "0.4 starts", False)
    assert second.price == ""
    assert "not measured" in main.with_share(results)[0].price
    assert {line.count("|") for line in table.show([first, second]).splitlines()} == {8}


@pytest.mark.process
def test_what_a_command_costs_has_processes_that_outlive_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2]))
    costs = importlib.import_module("benchmarks.costs")
    child = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; touch ended"
    command = ["/bin/sh", "-c", f"setsid /bin/sh -c '{child}' </dev/null >/dev/null 2>&1 &"]
    processor_s, _ = costs.with_descendants_s(command, tmp_path, {})
    assert (tmp_path / "ended").exists()
    assert processor_s > 0.01  # of some 0.1 s for the loop; the shell that started it takes a thousandth
