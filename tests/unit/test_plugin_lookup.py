"""Which plugins are found among the installed distributions."""

from __future__ import annotations

import importlib.metadata
import re
import subprocess
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
    with pytest.raises(PluginError, match=rf"cannot import module 'mine_of_nni' .*[^.]\.{cure}$"):
        lookup.import_class("mine_of_nni.Tuner")
    (tmp_path / "raising.py").write_text("raise ImportError('A sentence.')\n")
    with pytest.raises(PluginError, match=r"A sentence\.$"):
        lookup.import_class("raising.Tuner")


WITHOUT = """
import sys

class Gone:
    def find_spec(self, name, path=None, target=None):
        if name == LIBRARY:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Gone())
from nnilite._cli.nnictl import run
sys.exit(run(["platform", "list"]))
"""


@pytest.mark.process
@pytest.mark.parametrize(
    ("platform", "library", "needed"),
    [
        ("aml", "azure.ai", "azure.ai.ml"),
        ("aml", "azure", "azure.ai.ml"),
        ("dlc", "alibabacloud_pai_dlc20201203", "alibabacloud_pai_dlc20201203"),
    ],
)
def test_a_library_that_is_imported_late_is_missed_early(platform: str, library: str, needed: str) -> None:
    code = WITHOUT.replace("LIBRARY", repr(library))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    said = (
        f"training service '{platform}' needs the module '{needed}'. Install it with: pip install 'nnilite[{platform}]'"
    )
    assert re.search(rf"^{platform} +no +{re.escape(said)}", done.stdout, re.MULTILINE), done.stdout


@pytest.mark.parametrize("name", [".", "..", "...", ".Tuner", "mine.", "a..B", "a\0.B"])
def test_a_name_of_dots_is_no_class(name: str) -> None:
    with pytest.raises(PluginError, match=r"is not of the form module\.Class"):
        lookup.tuner_class(name)
