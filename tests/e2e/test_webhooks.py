"""A real experiment with an address that listens, and one that accepts and never answers."""

from __future__ import annotations

import socket
from typing import Any

from e2e.running import wait_for
from unit.test_webhooks import Inbox


def test_an_address_that_hangs_holds_up_neither_trials_nor_the_other_address(start: Any) -> None:
    inbox = Inbox()
    inbox.listener.start()
    with socket.create_server(("127.0.0.1", 0), backlog=50) as silent:
        hooks = [{"url": f"http://127.0.0.1:{silent.getsockname()[1]}/T0KEN"}, {"url": inbox.listener.url}]
        running = start(webhooks=hooks)
        running.wait("DONE")
        assert {trial["state"] for trial in running.trials()} == {"SUCCEEDED"}
        wait_for(lambda: [told for told in inbox.told if told.endswith("end-1")], 60.0)
        running.stop()
    log = (running.directory / "log" / "manager.log").read_text()
    assert "webhook 1 has not received everything" in log or "webhook 1 has not received everything" in log
    assert "T0KEN" not in log
    inbox.listener.stop()
