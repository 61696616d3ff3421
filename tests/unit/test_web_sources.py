"""The types that the web page's sources are checked with are those of what it gets and of what it uses."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from nnilite._rest.schemas import COMPONENTS

ROOT = Path(__file__).resolve().parents[2]
WEB = ROOT / "nnilite/_web"
SENT = [
    "Trial",
    "TrialDetails",
    "NewTrial",
    "Attempt",
    "Metric",
    "TrialRemarks",
    "TrialUse",
    "ExperimentLimits",
    "Host",
    "ServiceState",
    "Experiment",
    "Listed",
    "Owed",
    "FileEntry",
    "OtherEntry",
    "FileListing",
]


def interfaces() -> dict[str, tuple[str, set[str]]]:
    """The interfaces of wire.d.ts: what each extends, and its own fields."""
    text = (WEB / "lib/wire.d.ts").read_text()
    found = re.findall(r"^export interface (\w+)(?: extends (\w+))? \{\n(.*?)^\}", text, re.MULTILINE | re.DOTALL)
    return {name: (base, set(re.findall(r"^  (\w+):", body, re.MULTILINE))) for name, base, body in found}


@pytest.mark.parametrize("name", SENT)
def test_the_page_knows_exactly_the_fields_that_are_sent(name: str) -> None:
    known = interfaces()
    base, fields = known[name]
    while base:
        base, inherited = known[base]
        fields = fields | inherited
    assert fields == set(COMPONENTS[name]["properties"])


def test_no_other_interface_is_left_without_a_check() -> None:
    assert sorted(interfaces()) == sorted(SENT)


def test_vendored_libraries_are_checked_with_the_types_of_their_versions() -> None:
    manifest = json.loads((WEB / "vendor/manifest.json").read_text())
    vendored = dict(entry["from"].partition(":")[0].rsplit(" ", 1) for entry in manifest.values())
    installed = json.loads((ROOT / "package-lock.json").read_text())["packages"]
    types = {name: installed[f"node_modules/{name}"]["version"] for name in vendored if name != "echarts"}
    assert types == {name: version for name, version in vendored.items() if name != "echarts"}
