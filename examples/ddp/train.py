"""Train a small network on data that is generated: as one process, or as many processes, which share each batch.

Nothing here depends on where it runs: torch finds the other processes by the variables that nnilite sets. If it is
started again, with as many processes or others, it continues after the last epoch that it has reported.
"""

import io
import os
import signal
import uuid
from typing import Any

import torch
from torch import distributed, nn

import nnilite

SAMPLES, BATCH, EPOCHS = 480, 48, int(os.environ.get("EPOCHS", "5"))
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


def read_checkpoint() -> dict[str, Any]:
    """Return the last checkpoint in all processes: rank 0 has it, and the others get it from there."""
    path = nnilite.checkpoint_dir() / "state.pt"
    here = path.read_bytes() if RANK == 0 and path.exists() else b""
    size = torch.tensor([len(here)])
    if distributed.is_initialized():
        distributed.broadcast(size, 0)
    if not size:
        return {"epoch": 0}
    data = torch.frombuffer(bytearray(here or int(size)), dtype=torch.uint8)
    if distributed.is_initialized():
        distributed.broadcast(data, 0)
    return dict(torch.load(io.BytesIO(bytes(data.tolist())), map_location="cpu"))


def report_and_save(state: dict[str, Any], loss: float) -> None:
    """Report an epoch and save it. A signal to end waits meanwhile, so no epoch is missing later, or there twice."""
    asked: list[int] = []
    usual = signal.signal(signal.SIGTERM, lambda number, frame: asked.append(number))
    nnilite.report_intermediate_result({"default": loss, "step": state["epoch"]})  # only that of rank 0 counts
    if RANK == 0:
        print(f"epoch {state['epoch'] - 1} loss {loss:.6f}", flush=True)
        with nnilite.checkpoint("state.pt") as path:
            torch.save(state, path)
    signal.signal(signal.SIGTERM, usual)
    if asked:
        raise SystemExit(128 + signal.SIGTERM)


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
    network = getattr(model, "module", model)  # what a single process has, too
    optimizer = torch.optim.SGD(model.parameters(), parameters["rate"], momentum=0.9)
    loss_of = nn.MSELoss()
    print(f"rank {RANK} of {SIZE} runs on {device}", flush=True)
    state = read_checkpoint()
    if state["epoch"]:
        network.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
    loss = state.get("loss", float("nan"))
    for epoch in range(state["epoch"], EPOCHS):
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
        saved = {"model": network.state_dict(), "optimizer": optimizer.state_dict()}
        report_and_save({"epoch": epoch + 1, "loss": loss, **saved}, loss)
    nnilite.report_final_result(loss)
    if distributed.is_initialized():
        # A thread of gloo that still lets go of the last sum would wait for ever for this one, which waits for it.
        distributed.barrier()
        distributed.destroy_process_group()


if __name__ == "__main__":
    main()
