"""What stays of checkpoints, on this machine and in a shared folder, when a real manager tidies them up."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from nnilite._keeper.folder import WRITER_SUFFIX

SAVES = """
import nnilite
x = nnilite.get_next_parameter()["x"]
found = sorted(path.name for path in nnilite.checkpoint_dir().glob("epoch*"))
for epoch in range(2):
    with nnilite.checkpoint(f"epoch{len(found) + epoch}") as path:
        path.write_text(str(x))
nnilite.report_final_result({"default": x, "found": found})
"""


class Places:
    """The folders in which trials have checkpoints."""

    def __init__(self, directory: Path, mount: Path) -> None:
        self.here = directory / "checkpoints"
        self.shared = mount / "nni" / directory.name / "checkpoints"

    def left(self) -> tuple[set[str], set[str]]:
        """The files of checkpoints, as `trial/name`, here and in the shared folder."""
        here = {str(path.relative_to(self.here)) for path in _files(self.here) if path.suffix != WRITER_SUFFIX}
        shared = {
            f"{path.relative_to(self.shared).parts[0]}/{path.name}"
            for path in _files(self.shared)
            if path.suffix != ".json"
        }
        return here, shared


def _files(folder: Path) -> list[Path]:
    """All files below a folder from which some are being removed: `os.walk` goes on where one has just gone."""
    return [Path(place, name) for place, _, names in os.walk(folder) for name in names]


@pytest.fixture
def mount(tmp_path: Path) -> Path:
    (tmp_path / "an nfs").mkdir()
    return tmp_path / "an nfs"


def storage(mount: Path) -> dict[str, Any]:
    return {"storageType": "NFS", "localMountPoint": str(mount), "remoteMountPoint": str(mount)}


def test_only_the_best_trial_keeps_its_checkpoints(start: Any, mount: Path) -> None:
    running = start(SAVES, checkpoint={"keep": "best"}, sharedStorage=storage(mount))
    best = running.wait("DONE")["best"]["id"]
    wanted = {f"{best}/epoch0", f"{best}/epoch1"}
    places = Places(running.directory, mount)
    running.wait_for(lambda: places.left() == (wanted, wanted))
    running.wait_for(lambda: [note.stem for note in places.here.glob(f"*{WRITER_SUFFIX}")] == [best])


def test_a_trial_that_runs_again_finds_the_last_one_and_a_resume_tidies_up_the_rest(start: Any, mount: Path) -> None:
    running = start(SAVES, checkpoint={"keep": "last"}, sharedStorage=storage(mount), maxTrialNumber=1)
    running.wait("DONE")
    places = Places(running.directory, mount)
    (trial,) = [known["id"] for known in running.trials()]
    running.wait_for(lambda: places.left() == ({f"{trial}/epoch1"}, {f"{trial}/epoch1"}))
    running.client.rerun(ids=[trial])
    running.wait_for(lambda: running.trials()[0]["attempt"] == 1 and running.trials()[0]["state"] == "SUCCEEDED")
    assert running.trials()[0]["value"]["found"] == ["epoch1"]
    running.wait_for(lambda: places.left() == ({f"{trial}/epoch2"}, {f"{trial}/epoch2"}))
    running.stop()
    # As if this manager had died before it tidied up.
    (places.here / trial / "epoch0").write_text("old")
    (places.here / f".gone-{trial}").mkdir()
    shutil.copytree(places.shared / trial / "1", places.shared / trial / "0")
    known = json.loads((places.shared / trial / "1.json").read_text().replace(f"{trial}/1/", f"{trial}/0/"))
    (places.shared / trial / "0.json").write_text(json.dumps(known))
    running.resume().wait("DONE")
    running.wait_for(lambda: places.left() == ({f"{trial}/epoch0"}, {f"{trial}/epoch2"}))
    running.wait_for(lambda: not (places.shared / trial / "0.json").exists())
    assert not list(places.here.glob(".gone-*"))
