"""The simulation in which early stopping is measured."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import learning_tables, stopping
from benchmarks.search_shares import share
from benchmarks.stopping_report import report

WHOLE = "nnilite Random"
NOTES = "\n## What this run shows\n\n- It is level.\n\n"


@pytest.mark.parametrize("name", learning_tables.NAMES)
def test_a_table_has_a_curve_for_each_combination(name: str) -> None:
    table = learning_tables.load(name)
    combinations = 1
    for values in table.values.values():
        combinations *= len(values)
    assert table.losses.shape == (combinations, learning_tables.EPOCHS)
    assert table.regret(table.losses.min()) == 0.0
    assert (table.seconds > 0).all()


def test_workers_spend_the_time_of_so_many_whole_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stopping, "WHOLE_TRIALS", 20)
    for workers in (1, 4):
        outcome = stopping.run(stopping.Job(WHOLE, "boosting friedman", workers, 0))
        assert outcome.stopped == 0
        assert 10 <= outcome.trials <= 40


def test_the_regret_is_the_same_where_a_run_ends_with_the_best_loss() -> None:
    job = stopping.Job(WHOLE, "boosting cancer", 4, 0)
    whole, short = stopping.run(job), stopping.run(job, to_best=True)
    assert short.trials < whole.trials
    assert short[:3] == whole[:3]


@pytest.mark.parametrize(
    "names",
    [
        ("nnilite ASHA", "nnilite ASHA, without checkpoints"),
        ("nnilite Hyperband, with checkpoints", "nnilite Hyperband"),
        ("nnilite BOHB, with checkpoints", "nnilite BOHB"),
    ],
)
def test_a_trial_with_a_larger_budget_goes_on_from_its_checkpoint(
    names: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stopping, "WHOLE_TRIALS", 20)
    on, anew = (stopping.run(stopping.Job(name, "boosting friedman", 4, 0)) for name in names)
    assert on.trials > anew.trials


def test_shares_compare_the_seeds_that_both_methods_have_one_by_one() -> None:
    runs = {}
    for table, hard in (("easy", 10.0), ("hard", 1000.0)):
        for seed, luck in enumerate((1.0, 2.0, 30.0)):
            whole = stopping.Outcome(hard * luck, hard * luck, hard * luck, 10, 0)
            runs[stopping.Job("nnilite Random", table, 1, seed)] = whole
            runs[stopping.Job("nnilite Random, Auto", table, 1, seed)] = whole._replace(near=whole.near / 2.0)
        runs[stopping.Job("nnilite Random, Auto", table, 1, 3)] = whole  # only one of both has this seed
    assert "| nnilite Random, Auto | 4 | 10, 0 | 0.50 [0.50, 0.50] |" in report(runs, ["easy", "hard"], "made up")


def test_a_share_of_itself_is_one() -> None:
    values = learning_tables.load("sgd digits").losses[:5]
    assert share(values, values).startswith("1.00 [")


def test_the_page_gets_the_figures_and_keeps_its_notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stopping, "PAGES", tmp_path)
    page, out = tmp_path / "early-stopping.md", tmp_path / "out"
    out.mkdir()
    page.write_text(f"# Old\n{NOTES}## Figures\n\n| old |\n", "utf-8")
    runs = [[(WHOLE, name, 1, 0), (0.5, 0.6, 0.25, 100, 7)] for name in learning_tables.HELD_OUT]
    (out / "runs.jsonl").write_text("\n".join(map(json.dumps, runs)), "utf-8")
    part = ["--methods", WHOLE, "--workers", "1", "--seeds", "0", "--out", str(out)]
    assert stopping.main([*part, "--write"]) == 0
    text = page.read_text("utf-8")
    assert text.startswith("# Early stopping\n")
    assert f"| {WHOLE} | 1 | 100, 7 |" in text
    about, figures = text.split(NOTES)
    assert about.count("\n\n") > 2
    assert figures.startswith("## Figures\n\n")
    assert "old" not in figures


def test_the_page_is_not_written_for_the_development_tables(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        stopping.main(["--development", "--write"])
    assert "leave out --write, or --development" in capsys.readouterr().err
