"""Which plugins are found among the installed distributions."""

from __future__ import annotations

import importlib.metadata
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from nnilite._plugins import lookup
from nnilite.errors import PluginError


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    lookup.installed.cache_clear()
    yield
    lookup.installed.cache_clear()


def install(folder: Path, name: str, version: str, entry_points: str) -> None:
    about = folder / f"{name}-{version}.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (about / "entry_points.txt").write_text(entry_points)


def test_the_only_distribution_with_plugins_is_found_without_a_look_into_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, "mine", "1.0", "[console_scripts]\nmine = mine:main\n\n[nnilite.tuners]\nMine = mine:Tuner\n")
    install(tmp_path, "other", "1.0", "[console_scripts]\nother = other:main\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda: pytest.fail("all were looked into"))
    assert lookup.installed()[lookup.TUNERS]["mine"].value == "mine:Tuner"
    assert lookup.installed()[lookup.SERVICES] == {}


def test_of_two_distributions_with_plugins_both_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, "mine", "1.0", "[nnilite.tuners]\nMine = mine:Tuner\n")
    install(tmp_path, "yours", "1.0", "[nnilite.training_services]\nyours = yours:Service\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    assert set(lookup.installed()[lookup.TUNERS]) == {"mine"}
    assert set(lookup.installed()[lookup.SERVICES]) == {"yours"}


def test_of_one_name_the_first_distribution_on_the_path_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path / "first", "mine", "2.0", "[nnilite.tuners]\nMine = mine:New\n")
    install(tmp_path / "second", "mine", "1.0", "[nnilite.tuners]\nMine = mine:Old\nGone = mine:Gone\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "first"), str(tmp_path / "second")])
    assert {name: point.value for name, point in lookup.installed()[lookup.TUNERS].items()} == {"mine": "mine:New"}


@pytest.mark.parametrize(
    ("missing", "cure"), [("json_tricks", r" NNI installed it; do so by `pip install json_tricks`\."), ("nothere", "")]
)
def test_a_tuner_that_needs_a_package_of_nnis_is_answered_with_its_installation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str, cure: str
) -> None:
    (tmp_path / "mine_of_nni.py").write_text(f"import {missing}\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(sys.modules, missing, None)  # so that it is missing even where it is installed
    with pytest.raises(PluginError, match=rf"cannot import module 'mine_of_nni' .*\.{cure}$"):
        lookup.import_class("mine_of_nni.Tuner")
