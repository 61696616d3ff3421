"""Trials that say they have ended, and go on."""

from __future__ import annotations

from typing import Any

import psutil
import pytest

from e2e.running import wait_for

BY_CALLBACK = """
import json, os, pathlib, time, urllib.request, nnilite
nnilite.get_next_parameter()
spec = json.loads((pathlib.Path(os.environ["NNI_SYS_DIR"]) / "spec.json").read_text())
body = json.dumps({"events": [{"type": "exit", "time": time.time(), "code": 1, "message": "I say so"}]}).encode()
headers = {"Authorization": "Bearer " + spec["token"], "Content-Type": "application/json"}
address = pathlib.Path(spec["callback_file"]).read_text() + "/api/v1/callback/" + spec["job"]
urllib.request.urlopen(urllib.request.Request(address, body, headers))
time.sleep(600)
"""
BY_FILE = """
import json, os, pathlib, time, nnilite
nnilite.get_next_parameter()
told = {"time": time.time(), "code": 1, "message": "I say so"}
(pathlib.Path(os.environ["NNI_SYS_DIR"]) / ".nni" / "exit").write_text(json.dumps(told))
time.sleep(600)
"""


def keepers(running: Any) -> list[psutil.Process]:
    """The keepers at work in the experiment's folder, and their trials."""
    found = []
    for process in psutil.process_iter():
        try:
            files = [file.path for file in process.open_files()]
        except psutil.Error:
            continue
        found += [process] if any(str(running.directory / "trials") in file for file in files) else []
    return found


@pytest.mark.parametrize("code", [BY_CALLBACK, BY_FILE], ids=["callback", "file"])
@pytest.mark.parametrize("at_once", [True, pytest.param(False, marks=pytest.mark.long)])
def test_a_keeper_does_not_outlive_the_end_that_its_trial_has_made_up(start: Any, code: str, at_once: bool) -> None:
    running = start(code, maxTrialNumber=1, gracePeriod=1)
    running.wait("DONE")
    assert [trial["reason"] for trial in running.trials()] == ["I say so"]
    if not at_once:
        wait_for(lambda: not keepers(running), 30.0)
    running.stop()
    wait_for(lambda: not keepers(running), 30.0)
