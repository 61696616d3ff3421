"""The pages on tuners and assessors say what the code does."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest
import yaml

from nnilite._plugins.lookup import ASSESSORS, TUNERS, assessor_class, names, tuner_class
from nnilite.tuning.class_args import construct

PAGES = Path(__file__).parents[2] / "docs" / "reference" / "tuners"
OURS = [
    name
    for name in names(TUNERS)
    if tuner_class(name).__module__.split(".")[0] in {"nnilite_basic", "nnilite_optuna", "nnilite_sklearn"}
]


def rows(text: str) -> set[str]:
    return set(re.findall(r"^\| `(\w+)` \|", text, flags=re.MULTILINE))


def examples(text: str) -> list[dict]:
    return [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", text, flags=re.DOTALL)]


@pytest.mark.parametrize("name", OURS)
def test_the_page_of_a_tuner_has_all_its_arguments(name):
    text = (PAGES / f"{name.lower()}.md").read_text(encoding="utf-8")
    assert rows(text) == set(inspect.signature(tuner_class(name)).parameters)


@pytest.mark.parametrize("name", OURS)
def test_the_example_of_a_tuner_works(name, tmp_path):
    (example,) = examples((PAGES / f"{name.lower()}.md").read_text(encoding="utf-8"))
    args = example["tuner"].get("classArgs", {})
    if "all_checkpoint_dir" in args:
        args["all_checkpoint_dir"] = str(tmp_path)
    tuner = construct(tuner_class(example["tuner"]["name"]), args)
    tuner.update_search_space(example["searchSpace"])
    assert example["tuner"]["name"] == name
    assert isinstance(tuner.generate_parameters(0), dict)


@pytest.mark.parametrize("name", names(ASSESSORS))
def test_the_page_of_assessors_has_each_with_its_arguments_and_an_example(name):
    text = (PAGES / "assessors.md").read_text(encoding="utf-8")
    section = text.split(f"\n## {name}\n")[1].split("\n## ")[0]
    (example,) = examples(section)
    assert rows(section) == set(inspect.signature(assessor_class(name)).parameters)
    assert construct(assessor_class(name), example["assessor"]["classArgs"])


def test_the_index_has_a_row_for_each_tuner():
    text = (PAGES / "index.md").read_text(encoding="utf-8")
    assert {name for name, _ in re.findall(r"^\| \[(\w+)\]\((\w+)\.md\)", text, flags=re.MULTILINE)} == set(OURS)
