"""The variables of a trial's ranks, against those that a real torchrun sets."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from ddp_example import PYTHON, find_torch
from keeper_bench import Bench

pytestmark = [pytest.mark.process, pytest.mark.real]

_SHOW = """import json, os, sys
with open(os.path.join(sys.argv[1], os.environ["RANK"]), "w") as file:
    json.dump(dict(os.environ), file)
"""
_OF_THE_AGENT = {"TORCHELASTIC_ERROR_FILE", "TORCHELASTIC_SIGNALS_TO_HANDLE"}
"""What only a process uses whose agent is torchrun's."""
_OF_A_RUN = {"MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID"}


class _Shown:
    """Where two ranks show their environments."""

    def __init__(self, folder: Path) -> None:
        self.program = folder / "show.py"
        self.program.write_text(_SHOW)
        self.by_torchrun, self.here = folder / "by torchrun", folder / "here"
        self.by_torchrun.mkdir()
        self.here.mkdir()

    def run_torchrun(self, processes: int, env: dict[str, str]) -> None:
        words = [PYTHON, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
        ran = subprocess.run(
            [*words, str(self.program), str(self.by_torchrun)], env=env, capture_output=True, text=True, timeout=200
        )
        assert ran.returncode == 0, ran.stderr

    def run_here(self, bench: Bench, processes: int, env: dict[str, str]) -> None:
        told = {"nodes": 1, "processes": processes, "launcher": "torch"}
        code = bench.run(f'{PYTHON} {self.program} "{self.here}"', distributed=told, env=env)
        assert code == 0, bench.text("stderr")

    @staticmethod
    def added(place: Path, rank: int, base: dict[str, str]) -> dict[str, str]:
        shown = json.loads((place / str(rank)).read_text())
        return {name: value for name, value in shown.items() if base.get(name) != value}


@pytest.mark.parametrize(
    ("processes", "own"),
    [
        (2, {}),
        pytest.param(1, {}, marks=pytest.mark.long),
        pytest.param(2, {"OMP_NUM_THREADS": "3"}, marks=pytest.mark.long),
    ],
)
def test_a_rank_finds_what_torchrun_sets(tmp_path, monkeypatch, processes, own):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    site = find_torch()
    shown = _Shown(tmp_path)
    base = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONPATH": str(site), "LC_CTYPE": "C.UTF-8", **own}
    shown.run_torchrun(processes, base)
    with Bench(tmp_path) as bench:
        shown.run_here(bench, processes, own)
    for rank in range(processes):
        wanted = shown.added(shown.by_torchrun, rank, base)
        found = shown.added(shown.here, rank, base)
        assert wanted["TORCHELASTIC_RUN_ID"]
        assert {*wanted} - _OF_THE_AGENT <= {*found}
        assert found["TORCHELASTIC_USE_AGENT_STORE"] == "False"  # there is no agent, so rank 0 has to open the store
        same = {*wanted} - _OF_THE_AGENT - _OF_A_RUN - {"TORCHELASTIC_USE_AGENT_STORE"}
        assert {name: found[name] for name in same} == {name: wanted[name] for name in same}
        assert ("OMP_NUM_THREADS" in found) == ("OMP_NUM_THREADS" in wanted)
