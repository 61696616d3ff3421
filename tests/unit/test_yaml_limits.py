"""YAML and JSON that would take a machine's memory are refused by counting, before anything is made of them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from nnilite import yaml_files
from nnilite.config import load, parse
from nnilite.config.text import parse_yaml, read_space, read_without_lines
from nnilite.errors import ConfigError
from nnilite.yaml_files import BoundedLoader, load_yaml
from nnilite_kubernetes._frameworkcontroller import read_roles_of_template
from nnilite_openpai._template import read_template


@pytest.mark.process
def test_a_short_file_needs_little_memory(tmp_path: Path) -> None:
    (tmp_path / "it's.yaml").write_text("x: 1")
    program = (
        "import resource; from pathlib import Path; from nnilite.yaml_files import read_text\n"
        "most = int(Path('/proc/self/statm').read_text().split()[0]) * resource.getpagesize() + (64 << 20)\n"
        'resource.setrlimit(resource.RLIMIT_AS, (most, most)); print(read_text(Path("it\'s.yaml")))'
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.stdout == "x: 1\n"


def repeated(levels: int, width: int = 8) -> str:
    """A document of some lines that stands for `width ** levels` values."""
    lines = [f"l0: &l0 [{', '.join('x' * width)}]"]
    lines += [f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * width)}]" for n in range(1, levels)]
    return "\n".join(lines) + "\n"


def merged(levels: int) -> str:
    """Merges instead of aliases: each mapping has the keys of the one before it, many times."""
    lines = ["m0: &m0 {a: 1, b: 2, c: 3}"]
    lines += [f"m{n}: &m{n} {{<<: [{', '.join([f'*m{n - 1}'] * 8)}]}}" for n in range(1, levels)]
    return "\n".join(lines) + "\n"


class Counting(BoundedLoader):
    """Counts the nodes that are composed before the refusal."""

    composed = 0

    def compose_scalar_node(self, anchor: dict[str, yaml.Node]) -> yaml.ScalarNode:
        type(self).composed += 1
        return super().compose_scalar_node(anchor)


@pytest.mark.parametrize("make", [repeated, merged])
@pytest.mark.parametrize("levels", [7, 30])
def test_aliases_of_aliases_are_refused_before_they_cost_anything(
    make: object, levels: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nnilite.config.text.BoundedLoader", Counting)
    monkeypatch.setattr(Counting, "composed", 0)
    monkeypatch.setattr(Counting, "construct_document", lambda *_: pytest.fail("something is made of it"))
    with pytest.raises(ConfigError, match=r"more than 100,000 values.* repeats .*; write out fewer of them") as caught:
        parse_yaml(make(levels), "config.yaml")  # type: ignore[operator]
    assert caught.value.place.file == "config.yaml"
    assert caught.value.place.line in (6, 7)
    assert Counting.composed <= 100


@pytest.mark.parametrize("field", ["searchSpace", "classArgs"])
def test_a_config_with_aliases_of_aliases_is_refused_with_its_line(tmp_path: Path, field: str) -> None:
    text = f"trialCommand: x\n{field}:\n  " + repeated(9).replace("\n", "\n  ") + "\n"
    (tmp_path / "config.yaml").write_text(text)
    with pytest.raises(ConfigError, match=r"config.yaml:8: .*\*l4 repeats"):
        load(tmp_path / "config.yaml")
    with pytest.raises(ConfigError, match=r"more than 100,000 values"):
        parse(text, tmp_path)


@pytest.mark.parametrize("read", [load_yaml, read_template, read_roles_of_template, read_space, read_without_lines])
def test_every_reader_of_yaml_refuses_them(tmp_path: Path, read: object) -> None:
    (tmp_path / "job.yaml").write_text(repeated(9))
    with pytest.raises(ConfigError, match=r"job.yaml:6: stands for more than 100,000 values"):
        read(tmp_path / "job.yaml")  # type: ignore[operator]


def test_twenty_thousand_values_anchors_and_merges_are_read() -> None:
    text = "base: &base {lr: 0.1, deep: &deep [1, 2]}\nown: {<<: *base, lr: 0.2, same: *deep}\nmore:\n"
    found, source = parse_yaml(text + "".join(f"- {n}\n" for n in range(20_000)), None)
    assert found["own"] == {"lr": 0.2, "deep": [1, 2], "same": [1, 2]}
    assert len(found["more"]) == 20_000
    assert source.place(("more", 5)).line == 9


def test_a_template_that_is_repeated_a_thousand_times_is_read() -> None:
    text = "t: &t {a: 1, b: 2, c: 3}\nall:\n" + "- *t\n" * 1000
    assert len(parse_yaml(text, None)[0]["all"]) == 1000


def test_more_values_than_yaml_is_read_for_are_read_from_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(yaml_files, "MOST_VALUES", 1000)  # to scan as many as there may be takes seconds
    values = list(range(1001))
    (tmp_path / "s.json").write_text(json.dumps(values))
    assert read_without_lines(tmp_path / "s.json") == values
    with pytest.raises(ConfigError, match=r"has more than 1,000 values; write large values as JSON"):
        parse_yaml("".join(f"- {n}\n" for n in values), None)


@pytest.mark.parametrize(
    "text", ["[" * 101 + "]" * 101, "\n".join(f"a{n}: &a{n} [{f'*a{n - 1}' if n else ''}]" for n in range(200))]
)
def test_what_is_deep_by_itself_or_by_aliases_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="nested too deep: at most 100 levels"):
        parse_yaml(text, None)


@pytest.mark.parametrize("text", ["[" * 150 + "]" * 150, "[" * 100_000, '{"a": 1' + "0" * 400 + "}", "1" * 5000])
def test_json_that_is_too_deep_or_has_an_endless_number_gets_a_sentence(tmp_path: Path, text: str) -> None:
    (tmp_path / "s.json").write_text(text)
    for read in (read_space, read_without_lines):
        with pytest.raises(ConfigError, match=r"s.json.*(nested too deep|more than 300 digits)"):
            read(tmp_path / "s.json")


@pytest.mark.parametrize(
    "value",
    [
        "1" * 5000,
        "!!int 1:" + "1:" * 5000 + "1",
        "!!int x",
        "!!int ''",
        "!!float x",
        "!!bool x",
        "!!set {a}",
        "!!binary YQ==",
    ],
)
def test_a_value_that_does_not_fit_its_tag_gets_a_sentence_with_its_line(value: str) -> None:
    with pytest.raises(ConfigError, match=r"^c.yaml:2: is not YAML: .*(tag|digits)"):
        parse_yaml(f"a: 1\nb: {value}\n", "c.yaml")


def test_no_longer_text_is_read_than_any_config_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(yaml_files, "MOST_BYTES", 1 << 20)
    with pytest.raises(ConfigError, match="/dev/zero: is larger than 1 MB"):
        load(Path("/dev/zero"))
