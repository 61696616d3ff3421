"""What notebooks show."""

from __future__ import annotations

import pytest

from nnilite import Search
from nnilite._notebook import html


def test_a_result_shows_its_best_trial_and_escapes_what_trials_say() -> None:
    space = {"kind": {"_type": "choice", "_value": ["<b>a</b>", "b"]}}
    search = Search(space, tuner="GridSearch")
    result = search.run(lambda parameters: float(parameters["kind"] == "b"), trials=2)
    shown = result._repr_html_()
    assert "&lt;b&gt;a&lt;/b&gt;" in shown
    assert "<b>a</b>" not in shown
    assert "2 SUCCEEDED" in shown
    assert result.best is not None
    assert "Trial" in result.best._repr_html_()
    assert repr(result) == f"<SearchResult: 2 trials, best 1.0 (trial {result.best.id})>"
    assert "2 trials" in repr(search)


def test_failed_trials_are_shown_with_their_reasons() -> None:
    def objective(parameters: dict) -> float:
        if parameters["x"] == 2:
            raise ValueError("x is <2>")
        return float(parameters["x"])

    search = Search({"x": {"_type": "choice", "_value": [1, 2]}}, tuner="GridSearch")
    assert "<th>reason</th>" not in search.run(objective, trials=1)._repr_html_()
    shown = search.run(objective, trials=1)._repr_html_()
    assert "<th>reason</th>" in shown
    assert "x is &lt;2&gt;" in shown


def test_a_long_table_is_cut_and_says_so() -> None:
    shown = html.table(("number",), [(number,) for number in range(100)])
    assert shown.count("<tr>") == 21
    assert "and 80 more" in shown


def test_progress_is_told_in_lines_where_there_is_no_notebook(capsys) -> None:
    def objective(parameters: dict) -> float:
        if parameters["x"] > 0.9:
            raise ValueError("too large")
        return parameters["x"]

    search = Search({"x": {"_type": "uniform", "_value": [0, 1]}}, "Random", seed=1)
    search.run(objective, trials=40, progress=True)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 10
    assert lines[-1].startswith("40/40 trials ended, ")
    assert f"best {search.result().best.value} (trial {search.result().best.id})" in lines[-1]
    search.run(objective, trials=3)
    assert capsys.readouterr().err == ""


def test_progress_tells_the_beginning_of_a_large_result(capsys) -> None:
    Search({"x": {"_type": "uniform", "_value": [0, 1]}}, "Random").run(
        lambda parameters: {"default": parameters["x"], "importance": list(range(1000))}, trials=1, progress=True
    )
    shown = capsys.readouterr().err
    assert "best {'default': 0." in shown
    assert len(shown) < 200


def test_a_result_with_a_limit_has_a_bar() -> None:
    search = Search({"x": {"_type": "uniform", "_value": [0, 1]}}, "Random")
    result = search.run(lambda parameters: parameters["x"], trials=5)
    assert "width:50.0%" in html.result(result.trials, result.front, 10)
    assert "5 of 10 trials" in html.result(result.trials, result.front, 10)


def test_what_cannot_be_seen_or_saved_is_shown_as_text() -> None:
    shown = html.table(("a\ud800",), [("b\u202e",), ({"c\x00": "d\x1b[8m"},)])
    shown.encode()
    for text in (r"a\ud800", r"b\u202e", r"c\x00", r"d\x1b[8m"):
        assert text in shown


@pytest.mark.parametrize(("url", "is_link"), [("http://127.0.0.1:8080", True), ("javascript:alert(1)", False)])
def test_only_a_web_address_of_a_manager_is_a_link(url: str, is_link: bool) -> None:
    profile = {"id": "a", "name": "", "state": "DONE", "url": url, "counts": {}, "limits": {"maxTrialNumber": 1}}
    assert ("<a " in html.experiment({**profile, "best": None}, [])) is is_link
