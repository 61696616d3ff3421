"""The report on many trials at once."""

from __future__ import annotations

import pytest

from benchmarks.search_crowds import main, report


def test_a_tuner_is_compared_with_itself_one_at_a_time() -> None:
    names = [("HPOBench", "easy"), ("HPOBench", "hard")]
    runs = {}
    for crowd, factor in ((0, 1.0), (1, 1.0), (4, 2.0), (16, 3.0)):
        for number, name in enumerate(names, 1):
            for seed in (0, 1):
                runs[("optuna default", crowd, *name, seed)] = [10.0 * factor * number * (seed + 1)] * 50
    text = report(runs, names, "made up", [25, 50])
    assert "2 tables (made up), 2 seeds." in text
    assert "| 16 at once, one in five dies | 3.00 [3.00, 3.00] | 3.00 [3.00, 3.00] |" in text
    assert "| HPOBench hard | 30.0000 | 30.0000 | 60.0000 | 90.0000 |" in text


def test_the_page_is_not_written_for_another_tuner(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--tuner", "optuna default", "--write"])
    assert "leave out --write, or --tuner" in capsys.readouterr().err
