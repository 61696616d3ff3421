"""NNI's annotations, expanded: the program with calls, and its search space."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from nnilite._cli.nnictl import run
from nnilite._nni.annotations import expand
from nnilite.config import load
from nnilite.errors import ConfigError
from nnilite.space import SearchSpace

PROGRAM = '''"""A program that NNI 2 ran."""
from __future__ import annotations

def relu(x):
    return max(x, 0)

def double(x):
    return 2 * x

def main(é=1):
    """@nni.get_next_parameter()"""
    """@nni.variable(nni.choice(16, 32, 'auto'), name=batch)"""
    batch = 16  # the batch size
    \'\'\'@nni.variable(nni.uniform(0.1, 1), name=self.rate)\'\'\'
    self.rate = 0.5
    """@nni.variable(nni.choice(relu, double), name=act)"""
    act = relu
    if é:
        """@nni.function_choice(relu(é), double(é), name=relu)"""
        y = relu(é) + 1
    """@nni.report_intermediate_result(y)"""
    """@nni.report_final_result({"default": y})"""
    return batch, self.rate, act.__name__, y
'''
SPACE = {
    "trial/batch/choice": {"_type": "choice", "_value": [16, 32, "auto"]},
    "trial/self.rate/uniform": {"_type": "uniform", "_value": [0.1, 1]},
    "trial/act/choice": {"_type": "choice", "_value": ["relu", "double"]},
    "trial/relu/function_choice": {"_type": "choice", "_value": ["relu(é)", "double(é)"]},
}


def outcome(parameters: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> tuple[Any, list[Any]]:
    """What the expanded program returns and reports with these parameters."""
    reported: list[Any] = []
    calls = dict.fromkeys(("report_intermediate_result", "report_final_result"), reported.append)
    nni = SimpleNamespace(get_next_parameter=lambda: parameters, **calls)
    monkeypatch.setitem(sys.modules, "nni", nni)
    names: dict[str, Any] = {"self": SimpleNamespace()}
    exec(expand(PROGRAM.encode(), "trial", "trial.py").text, names)
    return names["main"](), reported


def test_the_search_space_has_nnis_names_and_is_sound() -> None:
    found = expand(PROGRAM.encode(), "trial", "trial.py").space
    assert found == SPACE
    SearchSpace.parse(found)


def test_the_program_uses_the_parameters_and_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    values = ("auto", 0.25, "double", "double(é)")
    returned, reported = outcome(dict(zip(SPACE, values, strict=True)), monkeypatch)
    assert returned == ("auto", 0.25, "double", 3)
    assert reported == [3, {"default": 3}]


def test_without_parameters_it_does_what_it_did_before(monkeypatch: pytest.MonkeyPatch) -> None:
    assert outcome({}, monkeypatch)[0] == (16, 0.5, "relu", 2)


def test_everything_else_in_the_text_stays() -> None:
    text = expand(PROGRAM.encode(), "trial", "trial.py").text.decode()
    assert text.startswith(
        '"""A program that NNI 2 ran."""\nfrom __future__ import annotations\n\nimport nni\ndef relu'
    )
    assert "  # the batch size\n" in text


@pytest.mark.parametrize("text", ["x = 1  # @nni.variable\n", "print 'Python 2 @nni.'\n", 'x = "@nni.variable(1)"\n'])
def test_a_program_without_annotations_is_unchanged(text: str) -> None:
    assert expand(text.encode(), "m", "m.py").text == text.encode()


@pytest.mark.parametrize(
    ("annotation", "following", "sentence"),
    [
        ("nni.variable(nni.choice(1), name=x)", "y = 1", "must stand before the assignment to x"),
        ("nni.variable(nni.choice(1), name=x)", "", "must stand before the assignment to x"),
        ("nni.variable(nni.choice(1))", "x = 1", "needs the one keyword `name`"),
        ("nni.variable(nni.unknown(1), name=x)", "x = 1", "needs one of nni.choice, "),
        ("nni.variable(nni.uniform(0, top), name=x)", "x = 1", "top must be written as a number"),
        ("nni.function_choice(f(), g(), name=f)", "x = h()", "must stand before a call of one of f(), g()"),
        ("nni.mutable_layers({})", "x = 1", "nni.mutable_layers searches architectures"),
        ("nni.variable(", "x = 1", "is no Python"),
    ],
)
def test_what_cannot_be_expanded_is_named_with_its_line(annotation: str, following: str, sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        expand(f"a = 1\n'''@{annotation}'''\n{following}\n".encode(), "m", "m.py")
    assert str(caught.value).startswith(f"m.py:2: the annotation {sentence}")


OLD = """
trainingServicePlatform: local
useAnnotation: true
trialConcurrency: 1
tuner: {builtinTunerName: TPE}
trial: {command: python3 trial.py, codeDir: code}
"""
PRESENT = """
useAnnotation: true
trialConcurrency: 1
trialCommand: python3 trial.py
trialCodeDirectory: code
tuner: {name: TPE}
trainingService: {platform: local}
"""


@pytest.mark.parametrize("text", [OLD, PRESENT])
def test_the_command_that_the_fault_names_makes_a_config_that_works(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config, code = tmp_path / "config.yml", tmp_path / "code"
    config.write_text(text)
    code.mkdir()
    (code / "trial.py").write_text(PROGRAM)
    (code / "data.txt").write_text("kept")
    with pytest.raises(ConfigError, match="`nnictl config expand FILE`"):
        load(config).checked()
    assert run(["config", "expand", str(config)]) == 0
    assert f"nnictl create --config {tmp_path / 'config-expanded.yml'}" in capsys.readouterr().out
    made = load(tmp_path / "config-expanded.yml").checked()
    assert made.search_space == SPACE
    assert made.trial_code_directory == tmp_path / "code-expanded"
    assert (made.trial_code_directory / "data.txt").read_text() == "kept"
    assert (yaml.safe_load(config.read_text()), (code / "trial.py").read_text()) == (yaml.safe_load(text), PROGRAM)
    assert run(["config", "expand", str(config)]) == 4


def test_code_without_annotations_is_no_success(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "config.yml").write_text(PRESENT)
    (tmp_path / "code").mkdir()
    assert run(["config", "expand", str(tmp_path / "config.yml")]) == 1
    assert "has an annotation with a parameter" in capsys.readouterr().err
    assert not (tmp_path / "code-expanded").exists()
