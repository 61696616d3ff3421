"""NNI's annotations, expanded: the program with calls, and its search space."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from nnilite._cli.nnictl import run
from nnilite._nni import annotated_configs
from nnilite._nni.annotations import expand
from nnilite._nni.program_text import ProgramText
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


WRITTEN = {
    "nni.choice(-1, +2.5, None, True)": [-1, 2.5, None, True],
    "nni.choice(0, False)": [0, False],
    "nni.choice(b'a', 1j, [1, 2])": ["b'a'", "1j", "[1, 2]"],
    "nni.uniform(low=0, high=1)": [0, 1],
    "nni.quniform(0, q=2, high=10)": [0, 10, 2],
    "nni.randint(10)": [0, 10],
    "nni.lognormal(mu=0, sigma=1)": [0, 1],
    "nni.choice(1,\n   2)": [1, 2],
}


@pytest.mark.parametrize("kind", WRITTEN)
def test_values_are_read_however_they_are_written(kind: str) -> None:
    text = f"'''\n@nni.variable({kind}, name='x')\n'''\nx = 1\n"
    (parameter,) = expand(text.encode(), "m", "m.py").space.values()
    assert parameter["_value"] == WRITTEN[kind]


UNIFORM = "'''@nni.variable(nni.uniform(0, 1), name=x)'''"
CHOICE = "'''@nni.variable(nni.choice([1], (2, 3)), name=x)'''"
FUNCTIONS = "'''@nni.function_choice(max(max(1, 2), 0), max(1, 2), name=max)'''"
PLACES = {
    f"{UNIFORM}\nx = 1, 2": ((1, 2), {"m/x/uniform": 0.5}, 0.5),
    f"{CHOICE}\nx = 1, 2": ((1, 2), {"m/x/choice": "(2, 3)"}, (2, 3)),
    f"{UNIFORM}\nx: float = 1": (1, {"m/x/uniform": 0.5}, 0.5),
    f"{UNIFORM}; x = 1": (1, {"m/x/uniform": 0.5}, 0.5),
    f"{UNIFORM}\nx = (1 +  # one\n2)": (3, {"m/x/uniform": 0.5}, 0.5),
    f"{UNIFORM}\nx = 1 if 1 else 2": (1, {"m/x/uniform": 0.5}, 0.5),
    f"{FUNCTIONS}\nx = max(max(1, 2), 0)": (2, {"m/max/function_choice": "max(1, 2)"}, 2),
    f"match 1:\n  case 1:\n    {UNIFORM}\n    x = 1": (1, {"m/x/uniform": 0.5}, 0.5),
}


@pytest.mark.parametrize("text", PLACES)
@pytest.mark.parametrize("ends", ["\n", "\r\n"])
def test_values_take_the_place_of_whatever_is_assigned(text: str, ends: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before, drawn, after = PLACES[text]
    program = expand(text.replace("\n", ends).encode(), "m", "m.py").text
    for parameters, value in (({}, before), (drawn, after)):
        monkeypatch.setitem(sys.modules, "nni", SimpleNamespace(get_next_parameter=lambda found=parameters: found))
        names: dict[str, Any] = {}
        exec(program, names)
        assert names["x"] == value


@pytest.mark.parametrize(("cookie", "encoding"), [("# coding: gbk\n", "gbk"), ("", "utf-8-sig")])
def test_a_program_keeps_its_encoding(cookie: str, encoding: str) -> None:
    text = f"{cookie}{UNIFORM}\nx, y = 1, '中'\nz = '中'; '''@nni.report_final_result(z)'''\n".replace("x, y", "x = y")
    expanded = expand(text.encode(encoding), "m", "m.py").text
    assert expanded.decode(encoding).endswith("z = '中'; nni.report_final_result(z)\n")
    compile(expanded, "m.py", "exec")


def test_a_program_that_cannot_be_read_is_named_if_it_has_annotations() -> None:
    with pytest.raises(ConfigError, match=r"^m.py: this Python cannot read the program.*'print'"):
        expand(f"{UNIFORM}\nx = 1\nprint x\n".encode(), "m", "m.py")


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
        ("nni.variable(", "x = 1", "is not Python"),
        ("nni.variable(nni.choice(1), name=x)", "x += 1", "must stand before the assignment to x"),
        ("nni.variable(nni.uniform(1), name=x)", "x = 1", "cannot be a parameter: uniform takes [low, high]"),
        ("nni.variable(nni.randint(2, 3, 5), name=x)", "x = 1", "cannot be a parameter: randint takes"),
        ("nni.variable(nni.quniform(0, 1, 0), name=x)", "x = 1", "cannot be a parameter: q, the step"),
        ("nni.variable(nni.uniform(0, 1e999), name=x)", "x = 1", "cannot be a parameter: must be a finite"),
        ("nni.variable(nni.uniform(0, up=1), name=x)", "x = 1", "nni.uniform takes low, high"),
        ("nni.variable(nni.choice(), name=x)", "x = 1", "cannot be a parameter: has no option"),
        ("nni.variable(nni.choice(*range(3)), name=x)", "x = 1", "*range(3) must be written as single options"),
        ("nni.variables(nni.choice(1), name=x)", "x = 1", "nni.variables is unknown; did you mean nni.variable?"),
        ("nni.report_final_result()", "", "nni.report_final_result needs one value"),
        ("nni.function_choice(f(1), g(1), name=f)", "x = f'{f(1)}'", "must stand before a call of one of"),
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
    with pytest.raises(ConfigError, match="`nnictl config expand CONFIG`"):
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


def test_the_copy_may_be_in_a_folder_of_the_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "config.yml").write_text(PRESENT.replace("trialCodeDirectory: code\n", ""))
    (tmp_path / "trial.py").write_text("'@nni.variable(nni.choice(1, 2), name=x)'\nx = 1\n")
    (tmp_path / "sub").mkdir()
    assert run(["config", "expand", str(tmp_path / "config.yml"), "--output", str(tmp_path / "sub/out")]) == 0
    assert sorted(path.name for path in (tmp_path / "sub/out").iterdir()) == [
        *("config.yml", "search_space.json", "sub", "trial.py")
    ]
    assert not list((tmp_path / "sub/out/sub").iterdir())
    assert "with its search space of 1 parameter." in capsys.readouterr().out


def test_a_config_of_that_name_is_not_replaced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "config.yml").write_text(PRESENT)
    (tmp_path / "config-expanded.yml").touch()
    (tmp_path / "code").mkdir()
    assert run(["config", "expand", str(tmp_path / "config.yml")]) == 4
    assert "config-expanded.yml exists already; rename or remove it." in capsys.readouterr().err


@pytest.mark.parametrize("name", ["config-expanded.yml", "code-expanded"])
def test_a_link_in_the_place_of_what_is_written_makes_no_file_elsewhere(tmp_path: Path, name: str) -> None:
    (tmp_path / "config.yml").write_text(PRESENT)
    (tmp_path / "code").mkdir()
    (tmp_path / "code/trial.py").write_text(PROGRAM)
    (tmp_path / name).symlink_to("start.sh")
    assert run(["config", "expand", str(tmp_path / "config.yml")]) == 4
    assert not (tmp_path / "start.sh").exists()


def test_a_program_behind_a_link_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "config.yml").write_text(PRESENT)
    (tmp_path / "own.py").write_text(PROGRAM)
    (tmp_path / "code").mkdir()
    (tmp_path / "code/trial.py").symlink_to("../own.py")
    (tmp_path / "code/zero.py").symlink_to("/dev/zero")
    (tmp_path / "own.json").write_text("{}")
    (tmp_path / "code/search_space.json").symlink_to("../own.json")
    (tmp_path / "code/again.py").symlink_to("trial.py")
    assert run(["config", "expand", str(tmp_path / "config.yml")]) == 0
    assert ((tmp_path / "own.py").read_text(), (tmp_path / "own.json").read_text()) == (PROGRAM, "{}")
    made = tmp_path / "code-expanded"
    assert "nni.report_final_result" in (made / "trial.py").read_text()
    assert "@nni" not in (made / "trial.py").read_text()
    assert (made / "again.py").read_text() == (made / "trial.py").read_text()


def test_a_pipe_in_the_code_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "config.yml").write_text(PRESENT)
    (tmp_path / "code").mkdir()
    os.mkfifo(tmp_path / "code/pipe")
    assert run(["config", "expand", str(tmp_path / "config.yml")]) == 1
    assert f"{tmp_path / 'code/pipe'} cannot be copied: " in capsys.readouterr().err
    assert not (tmp_path / "code-expanded").exists()


REPORTS = '"""@nni.report_final_result(x)"""\n'


_TAKEN_BY_310 = pytest.mark.skipif(sys.version_info < (3, 11), reason="the parser of Python 3.10 takes it")
_TAKEN_BY_314 = pytest.mark.skipif(sys.version_info >= (3, 14), reason="the parser of Python 3.14 takes it")


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(f"x={'1+' * 100_000}1\n{REPORTS}", id="sum", marks=_TAKEN_BY_310),
        pytest.param(f"x=a{'.b' * 100_000}\n{REPORTS}", id="attributes", marks=[_TAKEN_BY_310, _TAKEN_BY_314]),
        pytest.param(f'"""@nni.variable(nni.choice({"-" * 20_000}1), name=x)"""\nx=1\n', id="minus"),
        pytest.param(f"# coding: zip\n{REPORTS}", id="coding"),
    ],
)
def test_a_program_that_no_parser_takes_is_named(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^t\.py"):
        expand(text.encode(), "t", "t.py")


def test_many_annotations_are_read_in_proportion_to_their_number() -> None:
    pair = '"""@nni.variable(nni.uniform(0,1), name=x)"""\nx=1\n'
    lines = ProgramText.parse((pair * 3).encode())
    assert lines._starts is lines._starts  # they are found once, not once for each annotation
    assert expand((pair * 3).encode(), "t", "t.py").text.count(b"get_next_parameter") == 3


def test_a_program_in_place_of_its_config_is_refused_with_the_cure(tmp_path: Path) -> None:
    program = tmp_path / "mnist.py"
    program.write_text('"""@nni.variable(nni.choice(1, 2), name=x)"""\nx = 1\n')
    with pytest.raises(ConfigError, match=r"mnist\.py: is a program; give the config whose trialCommand runs it"):
        annotated_configs.expand(program)


def test_a_trial_that_is_no_mapping_is_named_with_its_line(tmp_path: Path) -> None:
    config = tmp_path / "config.yml"
    config.write_text("trainingServicePlatform: local\ntrial: python3 train.py\n")
    with pytest.raises(ConfigError, match="must be a mapping of fields") as error:
        annotated_configs.expand(config)
    assert error.value.place.line == 2


@pytest.mark.parametrize("code", ["trialCodeDirectory:", "trainingServicePlatform: local\ntrial: {codeDir: }"])
def test_a_code_directory_that_is_left_empty_is_that_of_the_config(code: str, tmp_path: Path) -> None:
    folder = tmp_path / "it's"
    folder.mkdir()
    (folder / "train.py").write_text(f"{UNIFORM}\nx = 1\n")
    (folder / "config.yml").write_text(f"{code}\n")
    assert annotated_configs.expand(folder / "config.yml").code == tmp_path / "it's-expanded"
