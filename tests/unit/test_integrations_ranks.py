"""Callbacks of trainers that are several processes: all of them stop after the same batch.

The libraries are stand-ins, as far as the callbacks use them; PyTorch is the real one.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ddp_example import find_torch, without_compiler

pytestmark = pytest.mark.process

RANK = """
import sys, types
from types import SimpleNamespace as Made

class Callback: pass

for name in ("transformers", "lightning", "lightning.pytorch"):
    sys.modules[name] = types.ModuleType(name)
sys.modules["transformers"].TrainerCallback = sys.modules["lightning.pytorch"].Callback = Callback

import nnilite, torch
from nnilite import integrations

rank, meeting = int(sys.argv[1]), sys.argv[2]
store = torch.distributed.FileStore(meeting, 2)
torch.distributed.init_process_group("gloo", store=store, world_size=2, rank=rank)

class Strategy:
    def reduce_boolean_decision(self, decision):
        votes = torch.tensor(int(decision))
        torch.distributed.all_reduce(votes)
        return bool(votes == 2)

control = Made(should_training_stop=False)
trainer = Made(strategy=Strategy(), should_stop=False, is_global_zero=rank == 0, enable_validation=False)
state, args = Made(is_world_process_zero=rank == 0), Made(device="cpu")

def by_transformers(callback, number):
    callback.on_step_end(args, state, control)
    if number % 2:
        callback.on_evaluate(args, state, control, {"loss": 1.0})
    return control.should_training_stop

def by_lightning(callback, number):
    callback.on_train_batch_end(trainer)
    if number % 2:
        trainer.callback_metrics = {"loss": 1.0}
        callback.on_train_epoch_end(trainer, None)
    return trainer.should_stop

for make, stops in (
    (integrations.TransformersCallback, by_transformers), (integrations.LightningCallback, by_lightning)
):
    asked = []
    nnilite.should_stop = lambda: asked.append(1) or len(asked) > 4 + 5 * rank
    callback = make("loss", report=lambda value: None)
    print(make.__name__, next(number for number in range(100) if stops(callback, number)))
    torch.distributed.barrier()
torch.distributed.destroy_process_group()
"""


def test_all_processes_of_a_training_stop_after_the_same_batch(tmp_path: Path) -> None:
    """With each of the two libraries, in the same processes: each takes seconds to import torch."""
    environment = {**os.environ, "PYTHONPATH": without_compiler(find_torch())}
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", RANK, str(rank), str(tmp_path / "it's a meeting")],
            env=environment, stdout=subprocess.PIPE, text=True,
        )
        for rank in range(2)
    ]  # fmt: skip
    try:
        batches = [rank.communicate(timeout=120)[0] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    assert batches[0] == batches[1]
    assert [line.split()[0] for line in batches[0].splitlines()] == ["TransformersCallback", "LightningCallback"]
