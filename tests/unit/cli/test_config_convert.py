"""`nnictl config convert`: converters come from plugins, and faults are found at their line."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from nnilite._cli.nnictl import run
from nnilite._plugins import lookup

CONVERTER = """
from nnilite.conversion import Conversion
from nnilite.errors import ConfigError, Place

def convert(document):
    if document["steps"][0]["gpus"] < 0:
        raise ConfigError("must not be negative", Place(field="steps.0.gpus"))
    return Conversion({"trialCommand": document["run"], "maxTrialNumber": 3}, ("labels: nnilite has none",))
"""


@pytest.fixture(autouse=True)
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    about = tmp_path / "plugins" / "oven-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: oven\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[nnilite.config_converters]\noven = oven_of_a_test:convert\n")
    (about.parent / "oven_of_a_test.py").write_text(CONVERTER)
    monkeypatch.syspath_prepend(about.parent)
    lookup.installed.cache_clear()
    yield
    sys.modules.pop("oven_of_a_test", None)
    lookup.installed.cache_clear()


def _file(tmp_path: Path, text: str) -> str:
    path = tmp_path / "job of 'ours' $HOME.yaml"
    path.write_text(text)
    return str(path)


def test_a_converted_file_is_printed_and_what_is_left_out_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = _file(tmp_path, "run: python3 a.py\nsteps:\n- gpus: 1\n")
    assert run(["config", "convert", "--from", "oven", file]) == 0
    printed = capsys.readouterr()
    assert yaml.safe_load(printed.out) == {"trialCommand": "python3 a.py", "maxTrialNumber": 3}
    assert printed.out.index("trialCommand") < printed.out.index("maxTrialNumber")
    assert printed.err == "WARNING: labels: nnilite has none.\n"


def test_what_a_converter_refuses_is_found_at_its_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = _file(tmp_path, "run: python3 a.py\nsteps:\n- name: one\n  gpus: -1\n")
    assert run(["config", "convert", "--from", "oven", file]) == 1
    assert capsys.readouterr().err == f"ERROR: {file}:4: steps[0].gpus: must not be negative\n"


def test_a_file_that_is_a_list_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = _file(tmp_path, "- 1\n")
    assert run(["config", "convert", "--from", "oven", file]) == 1
    assert capsys.readouterr().err == f"ERROR: {file}: is not a mapping of fields\n"


def test_an_unknown_program_is_told_with_those_that_are_known(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["config", "convert", "--from", "owen", _file(tmp_path, "run: 1\n")]) == 1
    assert "there is no converter 'owen'; did you mean 'oven'?" in capsys.readouterr().err
