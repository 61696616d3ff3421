"""The report on the default tuner against Optuna's."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import search_shares, search_tables


def test_the_page_gets_the_figures_and_keeps_its_notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [("HPOBench", "easy"), ("HPOBench", "hard")]
    monkeypatch.setattr(search_tables, "prepare", lambda held_out: names)
    monkeypatch.setattr(search_tables, "list_models", lambda: [("svm", "odd")])
    monkeypatch.setattr(search_shares, "PAGE", tmp_path / "default.md")
    search_shares.PAGE.write_text("# Old\n\nWhat this run shows:\n\n- It is level.\n", "utf-8")
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
    assert text.endswith("|\n\nWhat this run shows:\n\n- It is level.\n")


def test_the_page_is_not_written_for_the_development_tables(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        search_shares.main(["--development", "--write"])
    assert "leave out --write, or --development" in capsys.readouterr().err
