"""What an import does not load. These modules cost time at every start, and only few programs come to need them."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.process

LATER = {
    "from nnilite import Search": "concurrent.futures difflib html random secrets sqlite3 tornado yaml "
    "nnilite.config nnilite.records",
    "import nnilite.service": "tornado yaml",
    "import nnilite._tuner_host.child": "nnilite.records tornado yaml",
    "import nnilite._manager.__main__": "yaml nnilite._nni.nni_view nnilite._nni.nni_copy",
    # What comes before the start of the manager's process, which imports its own part at the same time.
    "import nnilite._cli.create": "dataclasses http.client yaml nnilite._experiments.registry nnilite._running.launch",
    # Whoever reads an experiment's folder needs no manager.
    "import nnilite._cli.verify, nnilite._cli.trial_folders, nnilite._store.integrity, nnilite.config": ""
    "nnilite._engine nnilite._manager nnilite._rest nnilite._tuner_host nnilite._views",
    "import nnilite._views.experiment_view": "nnilite._engine.engine nnilite._manager nnilite._tuner_host",
}


@pytest.mark.parametrize(("program", "later"), LATER.items())
def test_what_few_programs_need_is_loaded_later(program: str, later: str) -> None:
    code = f"import sys; before = set(sys.modules); {program}; print(*set(sys.modules) - before)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert set(done.stdout.split()) & set(later.split()) == set()
