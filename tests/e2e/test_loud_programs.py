"""A tuner that prints without end neither waits, nor fills the disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from e2e.running import wait_for
from nnilite._manager.log_limits import MOST_LOG_BYTES

LOUD = """
import os, threading
from nni.tuner import Tuner

def shout(stream):
    while True:
        os.write(stream, b"x" * 99_999 + b"\\n")

class Loud(Tuner):
    def __init__(self):
        for stream in (1, 2):
            threading.Thread(target=shout, args=(stream,), daemon=True).start()
    def update_search_space(self, space):
        pass
    def generate_parameters(self, number, **_):
        return {"x": number}
    def receive_trial_result(self, *_, **__):
        pass
"""


@pytest.mark.timeout(120)
def test_a_tuner_that_prints_without_end_fills_no_disk(start: Any, tmp_path: Path) -> None:
    (tmp_path / "loud.py").write_text(LOUD)
    running = start(tuner={"className": "loud.Loud", "codeDirectory": str(tmp_path)})
    path = running.directory / "log" / "tuner.log"
    running.wait("DONE", timeout_s=100.0)
    wait_for(lambda: b" bytes of output left out here: a log has at most 32 MB" in path.read_bytes(), 60.0)
    running.stop()
    assert path.stat().st_size <= MOST_LOG_BYTES
