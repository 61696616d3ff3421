"""Tuners and assessors that the user registered by a name."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from nnilite._cli.nnictl import run
from nnilite._plugins import lookup
from nnilite.errors import PluginError

CODE = """
from nnilite import Tuner
class Lucky(Tuner):
    def generate_parameters(self, parameter_id, **kwargs): return {"x": 1}
class NoTuner: pass
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a class and a meta file, and a configuration folder of the test's own."""
    monkeypatch.setenv("NNI_CONFIG_DIR", str(tmp_path / "config 'x'"))
    monkeypatch.syspath_prepend(str(tmp_path / "nothing"))
    (tmp_path / "lucky_code.py").write_text(CODE)
    return tmp_path


def meta(folder: Path, **changes: object) -> str:
    about = {"algoType": "tuner", "builtinName": "Lucky", "className": "lucky_code.Lucky", "codeDirectory": "."}
    (folder / "meta.yml").write_text(json.dumps({**about, **changes}))
    return str(folder / "meta.yml")


def test_a_registered_tuner_is_found_by_its_name(folder: Path) -> None:
    assert run(["algo", "register", "--meta", meta(folder)]) == 0
    assert lookup.tuner_class("lucky").__name__ == "Lucky"
    assert "Lucky" in lookup.names(lookup.TUNERS)


@pytest.mark.process
def test_a_class_on_the_base_of_nni_is_registered_where_no_nni_is_installed(folder: Path) -> None:
    (folder / "nni_code.py").write_text("from nni.tuner import Tuner\nclass Old(Tuner): pass\n")
    arguments = ["-m", "nnilite._cli", "algo", "register", "--meta", meta(folder, className="nni_code.Old")]
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("The tuner Lucky is registered.\n", "")


def test_only_installed_tuners_are_tried_out_before_the_start(folder: Path) -> None:
    run(["algo", "register", "--meta", meta(folder)])
    found = [lookup.is_own(lookup.TUNERS, name) for name in ("Lucky", "lucky_code.Lucky", "TPE", "TPETuner", "x")]
    assert found == [True, True, False, False, False]


@pytest.mark.parametrize(("name", "place"), [("random", "nnilite_basic.RandomTuner"), ("Lucky", ""), ("TPETuner", "")])
def test_only_installed_tuners_have_a_place_by_their_own_names(folder: Path, name: str, place: str) -> None:
    run(["algo", "register", "--meta", meta(folder)])
    assert lookup.place(lookup.TUNERS, name) == place
    assert lookup.class_at(lookup.TUNERS, name, place) is lookup.tuner_class(name)


def test_a_class_is_found_at_its_place_without_a_look_at_what_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup, "installed", lambda: pytest.fail("it looks"))
    assert lookup.class_at(lookup.TUNERS, "Random", "nnilite_basic.RandomTuner").__name__ == "RandomTuner"


@pytest.mark.parametrize("place", ["nnilite_basic.Gone", "gone.Gone", "nnilite.tuner.Call"])
def test_a_place_at_which_no_tuner_is_does_not_hide_the_installed_one(place: str) -> None:
    assert lookup.class_at(lookup.TUNERS, "Random", place) is lookup.tuner_class("Random")
    with pytest.raises(PluginError, match="no tuner 'Gone'"):
        lookup.class_at(lookup.TUNERS, "Gone", place)


def test_the_arguments_of_a_tuner_are_shown_with_their_defaults(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["algo", "show", "NSGA2", "--json"]) == 0
    arguments = json.loads(capsys.readouterr().out)["classArgs"]
    assert arguments[0] == {"name": "objectives", "required": True, "default": None}
    assert {"name": "population_size", "required": False, "default": 50} in arguments


def test_an_unregistered_tuner_is_gone(folder: Path) -> None:
    run(["algo", "register", "--meta", meta(folder)])
    assert run(["algo", "unregister", "lucky"]) == 0
    with pytest.raises(PluginError, match="no tuner 'Lucky'"):
        lookup.tuner_class("Lucky")


@pytest.mark.parametrize(
    ("changes", "code", "sentence"),
    [
        ({"className": "lucky_code.Missing"}, 1, "Missing"),
        ({"className": "no_such_module.Lucky"}, 1, "no_such_module"),
        ({"className": "no_such_module.Lucky", "codeDirectory": None}, 1, "set codeDirectory in "),
        ({"className": "lucky_code.NoTuner"}, 1, "not a class derived from"),
        ({"className": "Lucky"}, 1, "module.Class"),
        ({"algoType": "optimizer"}, 1, "must be tuner or assessor"),
        ({"builtinName": "TPE"}, 4, "choose another builtinName"),
        ({"builtinName": None}, 1, "builtinName"),
        ({"classArgs": {"seed": 1}}, 1, "classArgs: is nothing that can be registered; give it in the experiment's"),
    ],
)
def test_what_cannot_be_registered_is_said(
    folder: Path, changes: dict[str, object], code: int, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["algo", "register", "--meta", meta(folder, **changes)]) == code
    assert sentence in capsys.readouterr().err
    assert "Lucky" not in lookup.names(lookup.TUNERS)


def test_a_broken_list_of_registrations_is_said_with_its_place(folder: Path) -> None:
    run(["algo", "register", "--meta", meta(folder)])
    (path,) = folder.glob("config*/algorithms.json")
    path.write_text("{")
    assert run(["algo", "list"]) == 1


@pytest.mark.parametrize(
    ("platform", "reason"),
    [("hybrid", "write a list of")],
)
def test_a_platform_of_nni_that_is_not_installed_is_not_taken_for_a_misspelt_one(platform: str, reason: str) -> None:
    with pytest.raises(PluginError, match=reason):
        lookup.training_service_class(platform)


def test_a_program_without_metadata_of_plugins_is_told_to_install_nnilite(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup, "installed", lambda: {lookup.SERVICES: {}})
    with pytest.raises(PluginError, match=r"training service 'local'.*no metadata.*Install nnilite with pip"):
        lookup.training_service_class("local")
