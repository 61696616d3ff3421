"""Every code block of the documentation is run, or read by what would read it. One that is wrong fails, with its place.

The word after the fence says what a block is. `python` is compiled, and run where it needs nothing else; `yaml` goes
through the loader of configs, also where it is a part of one; `nnictl` lines of `sh` go through the parser of nnictl. A
block of `yaml` that is not for nnilite has a title: ```yaml title="a manifest for kubectl".
"""

from __future__ import annotations

import ast
import builtins
import importlib
import importlib.util
import json
import re
import shlex
import subprocess
import sys
import types
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from markdown_it import MarkdownIt

import nnilite
from loadable import import_or_skip
from nnilite._cli import nnictl
from nnilite.config import ExperimentConfig, from_dict
from nnilite.errors import ConfigError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")])
INSTEAD = {
    "bash": "sh",
    "shell": "sh",
    "console": "sh",
    "zsh": "sh",
    "yml": "yaml",
    "py": "python",
    "python3": "python",
}
REDIRECTION = re.compile(r"\s[0-2]?(?:>>?|<)(?:&[0-2]|\s*[^\s<>&|]+)")
DIAGRAMS = ("flowchart ", "sequenceDiagram", "stateDiagram-v2")
VARIABLES = {"WEBHOOK": "https://chat.example.com/hook", "SECRET": "whsec_" + "c2VjcmV0" * 4}
"""What environment variables of configs hold, by the end of their names."""
MINIMAL = {
    "searchSpace": {"x": {"_type": "uniform", "_value": [0, 1]}},
    "trialCommand": "python3 trial.py",
    "trialConcurrency": 1,
    "tuner": {"name": "TPE"},
    "trainingService": {"platform": "local"},
}


@dataclass(frozen=True)
class Block:
    """One block, and where it is."""

    page: Path
    line: int
    language: str
    title: str
    text: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def _list_blocks() -> Iterator[Block]:
    # What stands within the lines takes most of the time, in each process of `pytest -n`, and holds no block.
    markdown = MarkdownIt("commonmark").disable(["inline", "text_join"])
    for page in PAGES:
        for token in markdown.parse(page.read_text("utf-8")):
            if token.type == "fence":
                language, _, rest = token.info.strip().partition(" ")
                title = re.search(r'title="([^"]+)"', rest)
                yield Block(page, (token.map or [0])[0] + 1, language, title[1] if title else "", token.content)


BLOCKS = list(_list_blocks())


def blocks(language: str) -> list[Block]:
    found = [block for block in BLOCKS if block.language == language]
    assert found
    return found


def test_every_block_says_what_it_is() -> None:
    assert [str(block) for block in BLOCKS if not block.language] == []
    other_words = {str(block): INSTEAD[block.language] for block in BLOCKS if block.language in INSTEAD}
    assert other_words == {}, "use these words after the fence, so that the blocks are tried"


@pytest.mark.filterwarnings("ignore:nnilite. no nnilite manager runs this trial")
@pytest.mark.parametrize("block", blocks("python"), ids=str)
def test_python_runs_where_it_needs_nothing_else(block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = compile(block.text, str(block), "exec")
    tree = ast.parse(block.text)
    assert tree.body, "the block has no statement"
    _import_what_is_ours(tree)
    if _stands_alone(tree):
        if "import lightgbm" in block.text:
            import_or_skip("lightgbm")
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("NNILITE_HOME", str(tmp_path / "home"))
        monkeypatch.setattr(nnilite, "_trial", nnilite._ThisTrial())  # each block is a trial of its own
        module = types.ModuleType("block")
        monkeypatch.setitem(sys.modules, "block", module)
        exec(code, vars(module))


def _import_what_is_ours(tree: ast.AST) -> None:
    """Names that a block imports from nnilite exist, also where the block cannot run."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "nnilite":
            module = importlib.import_module(node.module or "")
            assert [alias.name for alias in node.names if not _has(module, alias.name)] == []


def _has(module: types.ModuleType, name: str) -> bool:
    return (
        name in dir(module)
        or hasattr(module, name)
        or importlib.util.find_spec(f"{module.__name__}.{name}") is not None
    )


def _stands_alone(tree: ast.Module) -> bool:
    """Whether all names are known and all modules are installed here, and no experiment is started."""
    known, used, modules, called = set(dir(builtins)) | {"__name__"}, set(), set(), set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            (used if isinstance(node.ctx, ast.Load) else known).add(node.id)
        elif isinstance(node, ast.arg):
            known.add(node.arg)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            known.add(node.name)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            known.update((alias.asname or alias.name).partition(".")[0] for alias in node.names)
            modules.update([node.module] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names])
        elif isinstance(node, ast.Attribute):
            called.add(node.attr)
    manager = "Experiment" in used and called & {"run", "start", "connect", "resume", "view"}
    return used <= known and not manager and all(_installed(str(name)) for name in modules)


def _installed(name: str) -> bool:
    return importlib.util.find_spec(name.partition(".")[0]) is not None


@pytest.mark.parametrize("block", blocks("yaml"), ids=str)
def test_yaml_goes_through_the_loader_of_configs(block: Block, monkeypatch: pytest.MonkeyPatch) -> None:
    given = yaml.safe_load(block.text) if not block.title else list(yaml.safe_load_all(block.text))
    assert given, "the block is empty"
    if not block.title:
        for name in re.findall(r"\$\{env:(\w+)\}", block.page.read_text("utf-8")):
            monkeypatch.setenv(name, next((value for end, value in VARIABLES.items() if name.endswith(end)), "secret"))
        try:
            _config_with(block, given).checked(paths=False).check_algorithms()
        except (ConfigError, TypeError) as error:
            pytest.fail(f"{block}: {error}. If the block is for another program, give it a title.")


def _config_with(block: Block, given: dict[str, Any]) -> ExperimentConfig:
    """The block with all that a config needs beside it. An indented block belongs to the training service above it."""
    if block.text.startswith(" "):
        above = [one for one in BLOCKS if one.page == block.page and one.line < block.line and not one.title]
        parts = [yaml.safe_load(one.text).get("trainingService") for one in above if one.language == "yaml"]
        service = [part for part in parts if isinstance(part, dict)][-1]
        given = {"trainingService": {**service, **given}}
    return from_dict({**MINIMAL, **given}, ROOT / "docs")


@pytest.mark.parametrize("block", blocks("sh"), ids=str)
def test_commands_are_ones_that_their_programs_take(block: Block, capsys: pytest.CaptureFixture[str]) -> None:
    for words in _commands(block.text):
        if words[0] == "nnictl":
            _parsed(words[1:], capsys)
        elif words[0] == "make":
            assert re.search(rf"^{re.escape(words[-1])}:", (ROOT / "Makefile").read_text(), re.MULTILINE), words
        elif words[:2] == ["pip", "install"]:
            asked = [extra for word in words for extra in re.findall(r"^(?:nnilite|\.)\[(.*)\]", word)]
            assert {name for extras in asked for name in extras.split(",")} <= _extras(), words


def _parsed(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    try:
        nnictl._make_parser(words[0]).parse_args(words)
    except SystemExit:
        pytest.fail(f"nnictl {shlex.join(words)}: {capsys.readouterr().err}")


def _extras() -> set[str]:
    metadata = tomllib.loads((ROOT / "pyproject.toml").read_text())
    return set(metadata["project"]["optional-dependencies"])


def _commands(text: str) -> Iterator[list[str]]:
    """The words of each command, without variables that are set before it and without redirections."""
    for line in text.replace("\\\n", " ").splitlines():
        lexer = shlex.shlex(REDIRECTION.sub("", line), posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        words: list[str] = []
        for word in [*lexer, ";"]:
            if set(word) <= set("|&;"):
                while words and re.match(r"\w+=|sudo$|exec$", words[0]):
                    words.pop(0)
                if words:
                    yield words
                words = []
            else:
                words.append(word)


@pytest.mark.process
def test_sh_is_shell() -> None:
    for block in blocks("sh"):
        checked = subprocess.run(["bash", "-n"], input=block.text, capture_output=True, text=True, timeout=60)
        assert (checked.returncode, checked.stderr) == (0, ""), block


def test_json_toml_and_diagrams_are_such() -> None:
    for block in blocks("json"):
        json.loads(block.text)
    for block in blocks("toml"):
        assert tomllib.loads(block.text), block
    for block in blocks("mermaid"):
        assert block.text.startswith(DIAGRAMS), block


@pytest.mark.parametrize(
    ("text", "commands"),
    [
        ("A=1 nnictl stop ID > log 2>&1  # why\n", [["nnictl", "stop", "ID"]]),
        ("nnictl trial ls \\\n  --json | jq .\n", [["nnictl", "trial", "ls", "--json"], ["jq", "."]]),
        ("cd x && nnictl view 'a b'\n", [["cd", "x"], ["nnictl", "view", "a b"]]),
    ],
)
def test_commands_are_found_among_other_words(text: str, commands: list[list[str]]) -> None:
    assert list(_commands(text)) == commands


def test_a_block_that_needs_something_else_is_not_run() -> None:
    assert _stands_alone(ast.parse("import math\ndef f(x): return math.sin(x)\nf(1)"))
    assert not _stands_alone(ast.parse("import absent_module"))
    assert not _stands_alone(ast.parse("print(model)"))
    assert not _stands_alone(ast.parse("from nnilite import Experiment\nExperiment('local').run()"))
