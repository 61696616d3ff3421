"""What holds for trials that waited on one service for longer than `moveAfter`, and ran on another."""

from __future__ import annotations

from typing import Any

REPORTING = """
import nnilite
x = nnilite.get_next_parameter()["x"]
for step in range(3):
    nnilite.report_intermediate_result(step)
nnilite.report_final_result(x)
"""


def check_moved(running: Any, first: str, then: str) -> None:
    """Both trials of the experiment have moved from `first` to `then`, and each metric is there once."""
    trials = running.trials()
    assert [(trial["state"], trial["service"]) for trial in trials] == [("SUCCEEDED", then)] * 2
    for trial in trials:
        attempts = running.client.trial(trial["id"])["attempts"]
        assert [attempt["service"] for attempt in attempts] == [first, then]
        found = {kind: running.client.metrics(trial["id"], kind=kind) for kind in ("PERIODICAL", "FINAL")}
        assert [one["value"] for one in found["PERIODICAL"]] == [0, 1, 2]
        assert [one["value"] for one in found["FINAL"]] == [trial["parameters"]["x"]]
