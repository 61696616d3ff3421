"""The meter of the language counts what it should, and its ceilings only fall."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def prose_meter() -> ModuleType:
    spec = importlib.util.spec_from_file_location("prose_meter", ROOT / "scripts" / "prose_meter.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def odd_words(prose_meter: ModuleType, text: str) -> list[str]:
    meter = prose_meter.Meter()
    meter.measure_text("docs", prose_meter.without_code(text), (ROOT / "docs" / "page.md", 1))
    return [f"{line}: {word}" for _, _, line, word in meter.places]


def test_odd_words_are_found_with_their_lines(prose_meter: ModuleType) -> None:
    assert odd_words(prose_meter, "Nobody is told.\nIt goes\non.") == ["1: Nobody", "1: told", "2: goes on"]


def test_code_and_links_and_good_english_do_not_count(prose_meter: ModuleType) -> None:
    page = "```text\nnobody\n```\n`told` [page](anew.md) There is no cookie. The told-you page.\n"
    assert odd_words(prose_meter, page) == []


def test_names_docstrings_and_messages_are_measured(
    prose_meter: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prose_meter, "ROOT", tmp_path)
    source = '''
def told():
    """Of the manager."""
    raise ValueError("nobody has answered in time")

def send():
    """Send it."""
'''
    module = tmp_path / "module.py"
    module.write_text(source)
    meter = prose_meter.Meter()
    meter.measure_module(module)
    figures = prose_meter.figures(meter)
    assert [round(value) for value in figures.values()] == [0, 0, 200, 50, 50, 50]


def test_the_name_of_a_predicate_may_begin_with_a_verb_in_the_third_person(
    prose_meter: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prose_meter, "ROOT", tmp_path)
    module = tmp_path / "module.py"
    module.write_text("def holds_slot() -> bool: ...\ndef holds() -> list[str]: ...\ndef told() -> bool: ...\n")
    meter = prose_meter.Meter()
    meter.measure_module(module)
    (counts,) = meter.counts["names"].values()
    assert counts == {"all": 3, "no verb": 2}


def test_ceilings_are_lowered_and_never_raised(prose_meter: ModuleType) -> None:
    assert prose_meter.lowered({"a": 1.0, "b": 1.0}, {"a": 0.52, "b": 2.0, "c": 3.0}) == {"a": 0.6, "b": 1.0, "c": 3.0}
