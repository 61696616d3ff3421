"""How a keeper finds the place of its node: from variables of its platform."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nnilite._keeper.node_start import placed
from nnilite._keeper.spec import Spec, SpecError, parse

TOLD = {"nodes": 4, "min": 1, "max": 4, "node_variable": "NUMBER", "first_variables": ["FIRST"], "shared": True}


def spec(folder: Path, **more: Any) -> Spec:
    fields = {"version": 1, "experiment": "e", "trial": "t", "attempt": 0, "job": "j", "sequence": 0, "platform": "p"}
    fields |= {"token": "secret", "callback": "http://localhost:1", "command": "true", "directory": str(folder)}
    return parse({**fields, "distributed": {**TOLD, **more}})


def test_the_first_node_begins_with_as_many_as_its_platform_has_given(tmp_path, monkeypatch):
    monkeypatch.setenv("NUMBER", "0")
    monkeypatch.setenv("COUNT", "2")
    assert placed(spec(tmp_path, count_variable="COUNT")).distributed["nodes"] == 2
    monkeypatch.setenv("COUNT", "many")
    assert placed(spec(tmp_path, count_variable="COUNT")).distributed["nodes"] == 4
    assert placed(spec(tmp_path)).distributed["nodes"] == 4


def test_a_node_that_joins_later_has_a_number_and_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.setenv("NUMBER", "0")
    monkeypatch.setenv("NNILITE_JOINED_NODE", "100007")
    monkeypatch.setenv("FIRST", "n1,10.0.0.1,")
    found = placed(spec(tmp_path))
    assert (found.distributed["node"], found.distributed["first"]) == (100007, ["n1", "10.0.0.1"])
    assert (found.directory, found.callback) == (f"{tmp_path}/nodes/100007", None)


def test_a_node_without_a_number_says_so(tmp_path, monkeypatch):
    monkeypatch.delenv("NUMBER", raising=False)
    with pytest.raises(SpecError, match="NUMBER has no number of this node"):
        placed(spec(tmp_path))
