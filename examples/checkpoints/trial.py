"""A training that is interrupted half-way, as on a preemptible machine, and goes on where it was.

The first attempt of each trial ends with exit code 75, which `retryOn` in the config calls a lost worker. The next
attempt finds the checkpoint of the first one in `nnilite.checkpoint_dir()`.
"""

import json
import os
import sys

import nnilite

EPOCHS = 8
PREEMPTED = 75


def train(weight, rate):
    return weight + rate * (1.0 - weight)


def main():
    rate = nnilite.get_next_parameter().get("rate", 0.3)
    epoch, weight = 0, 0.0
    saved = nnilite.checkpoint_dir() / "state.json"
    if saved.exists():
        state = json.loads(saved.read_text())
        epoch, weight = state["epoch"], state["weight"]
        print(f"going on after epoch {epoch}")
    begun_at = epoch
    while epoch < EPOCHS:
        weight = train(weight, rate)
        epoch += 1
        with nnilite.checkpoint("state.json") as path:  # whole or not at all
            path.write_text(json.dumps({"epoch": epoch, "weight": weight}))
        nnilite.report_intermediate_result(weight)
        if epoch == EPOCHS // 2 and os.environ.get("NNILITE_ATTEMPT") == "0":
            sys.exit(PREEMPTED)
    nnilite.report_final_result({"default": weight, "begun_at": begun_at})


if __name__ == "__main__":
    main()
