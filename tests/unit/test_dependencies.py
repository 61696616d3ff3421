"""What the package asks of others: bounds on both sides, so that a resolver has little to try."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PROJECT = tomllib.loads((Path(__file__).resolve().parents[2] / "pyproject.toml").read_text())["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]
FOR_CONTRIBUTORS = {"bench", "docs", "dev", "demo"}
LOWER, UPPER = {">=", ">", "==", "~="}, {"<", "<=", "==", "~="}


def for_users() -> list[Requirement]:
    """What users install from other projects."""
    lines = PROJECT["dependencies"] + [line for name in EXTRAS.keys() - FOR_CONTRIBUTORS for line in EXTRAS[name]]
    return [need for need in map(Requirement, lines) if need.name != "nnilite"]


@pytest.mark.parametrize("bounds", [LOWER, UPPER], ids=["lower", "upper"])
def test_what_users_install_is_bounded(bounds: set[str]) -> None:
    unbounded = [str(need) for need in for_users() if not bounds & {part.operator for part in need.specifier}]
    assert sorted(unbounded) == []


def test_a_project_has_the_same_bounds_wherever_it_is_named() -> None:
    bounds: dict[str, set[str]] = {}
    for need in for_users():
        bounds.setdefault(need.name.lower(), set()).add(str(need.specifier))
    assert {name: found for name, found in bounds.items() if len(found) > 1} == {}


def test_all_names_every_extra_for_users() -> None:
    [everything] = map(Requirement, EXTRAS["all"])
    assert sorted(everything.extras) == sorted(EXTRAS.keys() - FOR_CONTRIBUTORS - {"all"})


@pytest.mark.parametrize(
    ("name", "version"),
    [
        ("azure-ai-ml", "1.34.0"),  # a job's file whose name has `..` is written outside of the folder of a download
        ("tornado", "6.4.1"),  # a stranger's cookie takes seconds of the server, and a smuggled request is answered
    ],
)
def test_versions_with_a_way_in_are_left_out(name: str, version: str) -> None:
    [wanted] = {str(need.specifier) for need in for_users() if need.name == name}
    assert not Requirement(f"{name}{wanted}").specifier.contains(version)
