"""The example notebook, executed by a real kernel: its outputs, and that they are renewed while a cell runs."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from nnilite._experiments import registry

NOTEBOOK = Path(__file__).resolve().parents[2] / "examples" / "notebook" / "search.ipynb"


EXPERIMENT = 8
"""The cell that runs one."""


class Watching(NotebookClient):  # type: ignore[misc]
    """Counts, by cell, how often an output was renewed in its place. The first one of the experiment makes `shown`."""

    renewed: dict[int, int]
    shown: Path

    def process_message(self, msg: dict[str, Any], cell: Any, cell_index: int) -> Any:
        if msg["msg_type"] == "update_display_data":
            self.renewed[cell_index] = self.renewed.get(cell_index, 0) + 1
        elif msg["msg_type"] == "display_data" and cell_index == EXPERIMENT:
            self.shown.touch()
        return super().process_message(msg, cell, cell_index)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.timeout(240)
def test_the_example_notebook_shows_progress_results_and_plots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "it's here"
    folder.mkdir()
    shutil.copy(NOTEBOOK, folder)
    monkeypatch.setenv("NNILITE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    for name in ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name))
    book = nbformat.read(folder / NOTEBOOK.name, 4)
    # Its trials end only when their progress has been shown.
    cell = book.cells[EXPERIMENT]
    cell.source = cell.source.replace("'echo", f"'until [ -e {tmp_path}/shown ]; do sleep 0.05; done; echo")
    client = Watching(book, timeout=180, kernel_name="python3", resources={"metadata": {"path": str(folder)}})
    client.renewed, client.shown = {}, tmp_path / "shown"
    client.execute()
    shown = [[out["data"] for out in cell.get("outputs", []) if "data" in out] for cell in book.cells]
    assert not [out for cell in book.cells for out in cell.get("outputs", []) if out.get("name") == "stderr"]
    assert "40 of 40 trials" in shown[3][0]["text/html"]  # the progress, as it was in the end
    assert "40 trials" in shown[3][1]["text/html"]  # the result
    assert all("application/vnd.plotly.v1+json" in shown[cell][0] for cell in (4, 5, 9))
    assert "4 of 4 trials ended" in shown[EXPERIMENT][0]["text/html"]
    assert min(client.renewed[3], client.renewed[EXPERIMENT]) >= 1
    assert not any(entry.is_running for entry in registry.entries())
