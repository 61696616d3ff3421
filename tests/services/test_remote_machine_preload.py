"""What a machine says of preloaded modules: it is foreign, so nothing of it may break the manager or fill its log."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any, cast

import pytest

pytest.importorskip("paramiko")

from nnilite.records import Json
from nnilite_remote._machine_preload import MachinePreload
from nnilite_remote._machine_session import MachineSession


class Session(SimpleNamespace):
    """A machine that has preloaded, and says nothing more by itself."""

    title = "box"

    async def ask(self, do: str, answer_s: float, **more: Json) -> Any:
        return {"memory": 30e6}

    def tell(self, do: str, **more: Json) -> None:
        pass


@pytest.fixture
def preload(caplog: pytest.LogCaptureFixture) -> MachinePreload:
    caplog.set_level(logging.INFO)
    return MachinePreload(cast("MachineSession", Session()), {"modules": ["numpy"]})


@pytest.mark.parametrize("memory", ["much", None, [], 10**400, -1, float("nan")])
def test_a_memory_that_cannot_be_is_not_shown(
    preload: MachinePreload, caplog: pytest.LogCaptureFixture, memory: Any
) -> None:
    assert preload.handle_event({"event": "preloaded", "memory": memory})
    assert caplog.messages == ["the preloader of machine box is ready"]


def test_an_event_without_its_fields_is_heard(preload: MachinePreload) -> None:
    assert preload.handle_event({"event": "preloaded"})
    assert preload.handle_event({"event": "not preloaded"})
    assert not preload.handle_event({"event": "ended"})


async def test_each_kind_of_event_is_logged_once_for_each_connection(
    preload: MachinePreload, caplog: pytest.LogCaptureFixture
) -> None:
    await preload.order()
    for _ in range(2):
        caplog.clear()
        for _ in range(100):
            preload.handle_event({"event": "not preloaded", "message": "x" * 1_000_000})
        assert len(caplog.messages) == 1
        assert len(caplog.messages[0]) < 2000
        await preload.order()  # another connection
