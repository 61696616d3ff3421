"""What `nnictl doctor` asks the platforms of a config, as a start and a dry run do."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from nnilite._doctor.finding import Level
from nnilite._doctor.platform_checks import ask
from nnilite._manager import port_choice
from nnilite.config import from_dict
from nnilite.errors import NniliteError
from nnilite.services import callback_address
from nnilite.services.cluster.queue_service import QueueService
from unit.test_options_by_platform import SECTIONS

CONFIG = {
    "searchSpace": {"x": {"_type": "choice", "_value": [1]}},
    "trialCommand": "true",
    "trialConcurrency": 1,
    "trainingService": {"platform": "slurm", **SECTIONS["slurm"]},
}


@pytest.fixture(autouse=True)
def scheduler(monkeypatch: pytest.MonkeyPatch) -> None:
    """A scheduler that has nothing to say."""

    async def check(self: object, api: object) -> None:
        assert api is not None

    monkeypatch.setattr(QueueService, "_checked", check)


def test_it_is_said_that_trials_could_not_reach_the_manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(callback_address, "_address_towards", lambda host, port: "nobody.invalid")
    (found,) = ask(from_dict(CONFIG, tmp_path).checked(), "127.0.0.1", 8080, 20.0)
    assert found.level is Level.FAULT
    assert "trials would connect to the manager at nobody.invalid" in found.what
    assert found.cure.startswith("start it with --host 0.0.0.0, or set nniManagerIp")


def test_what_the_check_of_the_port_has_said_is_not_said_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise NniliteError("too many open files")

    monkeypatch.setattr(port_choice, "bind", refuse)
    assert list(ask(from_dict(CONFIG, tmp_path).checked(), "127.0.0.1", 8080, 20.0)) == []


def test_meanwhile_something_listens_where_the_manager_would(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(callback_address, "_address_towards", lambda host, port: "0.0.0.0")
    with socket.create_server(("127.0.0.1", 0)) as another:  # has the port that the manager would have
        (found,) = ask(from_dict(CONFIG, tmp_path).checked(), "127.0.0.1", another.getsockname()[1], 20.0)
    assert (found.level, found.what[:31]) == (Level.OK, "its own check found nothing wro"), found
