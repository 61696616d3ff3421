"""Asks each platform of a config whether it would take trials, by the `check` of its training service.

This starts nothing anywhere. A service without a `check` says nothing here; the rehearsal finds out.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from nnilite._doctor.finding import PLATFORM_CURE, Finding, divided, fault, ok
from nnilite._experiments.address import Address
from nnilite._manager import assembly
from nnilite._manager.port_choice import placeholder_listener
from nnilite._network.interactive_calls import OUTAGE_S, limit_patience
from nnilite.config import CheckedConfig
from nnilite.errors import NniliteError


def ask(config: CheckedConfig, host: str, port: int, limit_s: float) -> Iterator[Finding]:
    """Yield what the platforms of the config say. `host` and `port` are where the manager would listen."""
    names = ", ".join(name for name, _, _ in config.services)
    check = f"platform {names}"
    with tempfile.TemporaryDirectory(prefix="nnilite-doctor-") as folder, contextlib.ExitStack() as listens:
        directory = Path(folder) / "doctor"
        for part in ("log", "trials", "code"):
            (directory / part).mkdir(parents=True)
        address = Address("http", host, port)
        try:
            listens.enter_context(placeholder_listener(directory, address))
        except NniliteError:
            return  # The check of the port has said why no manager can listen there, so nothing else is known yet.
        try:
            service = assembly.make_service(directory, config, address, wake=lambda: None)
            began = time.monotonic()
            # A person waits for the answer, so an unreachable platform is an error after seconds.
            with limit_patience(OUTAGE_S):
                asyncio.run(asyncio.wait_for(service.check(), limit_s))
        except asyncio.TimeoutError:
            cure = "check that its address is right, and that no firewall blocks this machine"
            yield fault(check, f"no answer within {limit_s:.0f} s", cure)
        except NniliteError as error:
            yield divided(check, config.spell(str(error)), PLATFORM_CURE)
        else:
            yield ok(check, f"its own check found nothing wrong ({time.monotonic() - began:.1f} s)")
