"""Train a small network on data that is generated: as one process, or as many processes, which share each batch.

Nothing here depends on where it runs: torch finds the other processes by the variables that nnilite sets.
"""

import os
import uuid

import torch
from torch import distributed, nn

import nnilite

SAMPLES, BATCH, EPOCHS = 480, 48, 5
RANK, SIZE = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
LOCAL_RANK = int(os.environ.get("LOCAL_RANK", "0"))


def choose_device() -> torch.device:
    """Return a GPU if each process has one to itself, else the processor, so that all choose the same."""
    gpus = torch.zeros(SIZE, dtype=torch.int64)  # a number that each GPU has alone; 0: none
    if torch.cuda.device_count() > LOCAL_RANK:
        gpus[RANK] = uuid.UUID(str(torch.cuda.get_device_properties(LOCAL_RANK).uuid)).int >> 65
    if distributed.is_initialized():
        distributed.all_reduce(gpus)
    has_own = all(gpus.tolist()) and len(set(gpus.tolist())) == SIZE
    return torch.device("cuda", LOCAL_RANK) if has_own else torch.device("cpu")


def make_data() -> tuple[torch.Tensor, torch.Tensor]:
    """Return the same points in each process."""
    points = torch.rand(SAMPLES, 2, generator=torch.Generator().manual_seed(0)) * 4 - 2
    return points, torch.sin(points[:, :1] * 2) + points[:, 1:] ** 2


def make_model(width: int, device: torch.device) -> nn.Module:
    """Return a network that begins the same in each process, and whose gradients are the mean of all processes."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, width), nn.Tanh(), nn.Linear(width, 1)).to(device)
    return nn.parallel.DistributedDataParallel(model) if distributed.is_initialized() else model


def mean(value: torch.Tensor) -> float:
    """Return the mean of a value over all processes."""
    value = value.detach().clone()
    if distributed.is_initialized():
        distributed.all_reduce(value)
    return value.item() / SIZE


def main() -> None:
    if BATCH % SIZE:
        raise SystemExit(f"a batch of {BATCH} cannot be shared by {SIZE} processes: choose another BATCH")
    parameters = {"rate": 0.1, "width": 16, **nnilite.get_next_parameter()}
    torch.set_num_threads(1)
    if SIZE > 1:
        # Without a name, torch would choose NCCL alone on a machine with GPUs, which the processes may have to share.
        distributed.init_process_group("cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo")
    device = choose_device()
    points, values = (data.to(device) for data in make_data())
    model = make_model(int(parameters["width"]), device)
    optimizer = torch.optim.SGD(model.parameters(), parameters["rate"], momentum=0.9)
    loss_of = nn.MSELoss()
    print(f"rank {RANK} of {SIZE} runs on {device}", flush=True)
    loss = float("nan")
    for epoch in range(EPOCHS):
        total = 0.0
        for start in range(0, SAMPLES, BATCH):
            # Each process takes its part of the batch, so all of them together do what one alone would do.
            part = slice(start + RANK, start + BATCH, SIZE)
            found = loss_of(model(points[part]), values[part])
            optimizer.zero_grad()
            found.backward()
            optimizer.step()
            total += mean(found)
        loss = total * BATCH / SAMPLES
        nnilite.report_intermediate_result(loss)  # only that of rank 0 counts
        if RANK == 0:
            print(f"epoch {epoch} loss {loss:.6f}", flush=True)
    nnilite.report_final_result(loss)
    if distributed.is_initialized():
        distributed.destroy_process_group()


if __name__ == "__main__":
    main()
