"""The port of a manager that was not told one, and who has a port that is taken."""

from __future__ import annotations

from pathlib import Path

import pytest

from nnilite._experiments.documents import write_json
from nnilite._experiments.registry import RegistryEntry
from nnilite._manager.port_choice import listening
from nnilite.errors import Conflict


def refusing(*taken: int) -> object:
    def listen(port: int) -> int:
        if port in taken:
            raise Conflict(f"port {port} is taken by another program")
        return port

    return listen


def test_it_counts_up_from_8080(tmp_path: Path) -> None:
    assert listening(refusing(), None, tmp_path) == 8080
    assert listening(refusing(8080, 8081), None, tmp_path) == 8082
    assert listening(refusing(*range(8080, 8180)), None, tmp_path) == 0


def test_an_experiment_gets_its_former_port_again(tmp_path: Path) -> None:
    write_json(tmp_path / "manager.json", {"state": "STOPPED", "port": 9123, "url": "http://127.0.0.1:9123"})
    assert listening(refusing(), None, tmp_path) == 9123
    assert listening(refusing(9123), None, tmp_path) == 8080


def test_a_port_that_was_asked_for_is_never_changed_and_its_holder_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    holder = RegistryEntry("abcd1234", "first one", tmp_path, port=8080, alive=True)
    monkeypatch.setattr("nnilite._experiments.registry.entries", lambda: [holder])
    with pytest.raises(Conflict, match=r"port 8080 is taken by your experiment abcd1234 \(first one\)"):
        listening(refusing(8080), 8080, tmp_path)
    with pytest.raises(Conflict, match="by another program"):
        listening(refusing(9000), 9000, tmp_path)
