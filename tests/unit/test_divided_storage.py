"""A platform's own storage for checkpoints beside the experiment's for all else."""

from __future__ import annotations

import json
from pathlib import Path

from nnilite._keeper.storage import check_storage
from nnilite._keeper.storage_choice import open_storage, read_entry


def test_checkpoints_go_to_the_one_and_all_else_to_the_other(tmp_path: Path) -> None:
    own, others = ({"kind": "folder", "paths": [str(tmp_path / name)], "parts": []} for name in ("own", "others"))
    path = tmp_path / "storage"
    path.write_text(json.dumps({**own, "parts": ["checkpoints"]}))
    entry = read_entry(str(path), {**others, "parts": ["outputs"]})
    assert not path.exists(), "it may hold keys"
    assert entry["parts"] == ["checkpoints", "outputs"]
    for name in ("own", "others"):
        (tmp_path / name).mkdir()
    storage, file = open_storage(entry), tmp_path / "file"
    file.write_text("1")
    for name in ("checkpoints/t/0/1/x", "trials/t/0/x"):
        check_storage(storage, name, str(file))
        storage.put(name, str(file))
    assert [str(one.relative_to(tmp_path)) for one in sorted(tmp_path.rglob("x"))] == [
        "others/trials/t/0/x",
        "own/checkpoints/t/0/1/x",
    ]
