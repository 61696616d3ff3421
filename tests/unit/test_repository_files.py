"""Files for forges and visitors say the same as the project does."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import yaml

from nnilite import __version__

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[2]
MAKEFILE = (ROOT / "Makefile").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def loaded(path: str) -> Any:
    return yaml.safe_load((ROOT / path).read_text())


def promised_pythons() -> list[str]:
    found = [re.fullmatch(r"Programming Language :: Python :: (3\.\d+)", line) for line in PROJECT["classifiers"]]
    return [match[1] for match in found if match]


def test_ci_checks_the_oldest_and_the_newest_python_that_are_promised() -> None:
    versions = promised_pythons()
    jobs = loaded(".github/workflows/checks.yml")["jobs"]
    assert jobs["check"]["strategy"]["matrix"]["python"] == [versions[0], versions[-1]]


def test_ci_runs_targets_of_the_makefile() -> None:
    steps = [step for job in loaded(".github/workflows/checks.yml")["jobs"].values() for step in job["steps"]]
    commands = [step["run"] for step in steps if "run" in step]
    assert commands == ["make check", "make test"]
    assert [command for command in commands if f"\n{command.removeprefix('make ')}:" not in MAKEFILE] == []


def test_ci_uses_actions_of_a_known_commit_and_leaves_them_no_key() -> None:
    steps = [step for job in loaded(".github/workflows/checks.yml")["jobs"].values() for step in job["steps"]]
    actions = [step for step in steps if "uses" in step]
    assert [step["uses"] for step in actions if not re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", step["uses"])] == []
    checkouts = [step["with"] for step in actions if step["uses"].startswith("actions/checkout@")]
    assert checkouts == [{"persist-credentials": False}] * len(checkouts)


def test_test_pythons_runs_all_pythons_that_are_promised() -> None:
    versions = ", ".join(f'"{version}"' for version in promised_pythons())
    assert f"WHOLE_PACKAGE = ({versions})" in (ROOT / "scripts/test_pythons.py").read_text()


def test_the_hooks_before_a_commit_are_commands_of_make_lint() -> None:
    hooks = loaded(".pre-commit-config.yaml")["repos"][0]["hooks"]
    commands = [hook["entry"].removesuffix(" --force-exclude").replace(".venv", "$(VENV)") for hook in hooks]
    others = [line for line in commands if line.replace("$(VENV)/bin", "$(RUN)") not in MAKEFILE]
    assert others == ["$(VENV)/bin/python scripts/reference_pages.py --check"]


def test_forms_for_issues_ask_for_something() -> None:
    for path in (ROOT / ".github/ISSUE_TEMPLATE").glob("[!c]*.yml"):
        form = yaml.safe_load(path.read_text())
        assert {"name", "description", "body"} <= form.keys()
        fields = [part for part in form["body"] if part["type"] != "markdown"]
        assert len({part["id"] for part in fields}) == len(fields) > 1


def test_the_citation_names_this_version_and_licence() -> None:
    citation = loaded("CITATION.cff")
    assert (citation["version"], citation["license"]) == (__version__, PROJECT["license"])


def test_the_security_page_supports_this_version() -> None:
    minor = __version__.rpartition(".")[0]
    assert f"the latest minor version ({minor})" in (ROOT / "SECURITY.md").read_text()


def test_the_changelog_has_a_place_for_what_comes_and_names_this_version() -> None:
    heads = re.findall(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert heads[0] == "Unreleased"
    assert any(head.startswith(f"{__version__}") for head in heads)


def test_the_changes_since_the_last_version_can_be_scanned() -> None:
    """Group a new entry with those on its subject. A merge that brings old entries back fails here, too."""
    unreleased = (ROOT / "CHANGELOG.md").read_text().partition("## Unreleased")[2].partition("\n## ")[0]
    assert len(unreleased.split()) < 4500
