"""The report on the default tuner against Optuna's."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import search_shares, search_tables
from benchmarks.model_tables import ModelTable

np = pytest.importorskip("numpy")
NOTES = "\n## What this run shows\n\n- It is level.\n\n"


def test_the_page_gets_the_figures_and_keeps_its_notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [("HPOBench", "easy"), ("HPOBench", "hard")]
    monkeypatch.setattr(search_tables, "prepare", lambda held_out: names)
    monkeypatch.setattr(search_tables, "list_models", lambda: [("svm", "odd")])
    monkeypatch.setattr(search_shares, "PAGE", tmp_path / "default.md")
    search_shares.PAGE.write_text(f"# Old\n{NOTES}## Figures\n\n| old |\n", "utf-8")
    regrets = {search_shares.BASELINE: 0.399, "nnilite Auto": 0.199}
    runs = [[(label, *name, 0), [regret] * 3] for label, regret in regrets.items() for name in names]
    runs += [[(label, "svm", "odd", 0), [0.399] * 3] for label in regrets]
    (tmp_path / "runs.jsonl").write_text("\n".join(map(json.dumps, runs)), "utf-8")
    part = ["--solvers", ",".join(regrets), "--seeds", "1", "--out", str(tmp_path)]
    assert search_shares.main([*part, "--write"]) == 0
    text = search_shares.PAGE.read_text("utf-8")
    assert text.startswith("# The default tuner against Optuna's\n")
    whole, published, models = text.split("Less is better.")[1:]
    assert "| nnilite Auto | optuna default | 1 | 0.63 [0.50, 1.00] |" in whole
    assert "| nnilite Auto | optuna default | 1 | 0.50 [0.50, 0.50] |" in published
    assert "| nnilite Auto | optuna default | 1 | 1.00 [1.00, 1.00] |" in models
    assert "| HPOBench | 2 | 0.50 | 0.50 | 0.50 |" in text
    assert "| svm | 1 | 1.00 | 1.00 | 1.00 |" in text
    assert "| svm odd | 0.3990 | 0.3990 |" in text
    about, figures = text.split(NOTES)
    assert about.count("\n\n") > 2
    assert figures.startswith("## Figures\n\n")
    assert "old" not in figures


def test_noise_is_told_from_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two combinations that are best, one is by luck; the solver takes the middle one first, then the lucky one."""
    losses = np.array([[0.5, 0.5], [0.0, 1.5], [0.25, 0.25], [1.0, 1.0], [0.75, 0.75]])
    grid = {"x": list(range(5))}
    made = ModelTable(grid, losses, {repr({"x": x}): x for x in range(5)})
    monkeypatch.setattr(search_tables, "table", lambda collection, name: made)
    monkeypatch.setattr(search_shares, "RESULTS", (1, 2))
    monkeypatch.setattr(search_shares, "alone", lambda *_: (({"x": x}, made.train(x, seed)) for x in (0, 1, 2)))
    search_shares.train_all.cache_clear()
    seed = next(seed for seed in range(99) if made.train(1, seed) == 0.0)
    worth = made.worth.tolist()
    assert search_shares.regrets((search_shares.ALL, "svm", "made", seed)) == [worth[1], worth[1]]
    assert search_shares.regrets(("nnilite Auto", "svm", "made", seed)) == [worth[0], worth[1], 1.0, 0.0]


def test_the_regret_seen_has_a_part_of_the_page() -> None:
    names = [("svm", "odd")]
    runs = {
        (label, "svm", "odd", 0): [0.399] * 3 + seen
        for label, seen in ((search_shares.BASELINE, [0.399] * 3), (search_shares.AUTO, [0.199] * 3))
    }
    runs[(search_shares.ALL, "svm", "odd", 0)] = [0.199] * 3
    true, seen = search_shares.report(runs, {"1 table": names}).split(search_shares.ABOUT_SEEN)
    assert "| nnilite Auto | optuna default | 1 | 1.00 [1.00, 1.00] |" in true
    assert "| every combination | optuna default | 1 | 0.50 [0.50, 0.50] |" in true
    assert "| nnilite Auto | optuna default | 1 | 0.50 [0.50, 0.50] |" in seen
    assert "every combination" not in seen
    assert "| svm | 1 | 0.50 | 0.50 | 0.50 |" in seen


def test_the_page_is_not_written_for_the_development_tables(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        search_shares.main(["--development", "--write"])
    assert "leave out --write, or --development" in capsys.readouterr().err
