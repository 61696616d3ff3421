"""What plugins and the manager are tested with. Needs pytest, and nothing beside it.

ServiceContract     the tests that every training service passes: subclass it, and give it `make_service`
TunerContract       the tests that every tuner passes: subclass it, and give it `make_tuner`
ServiceBench        the surroundings in which the service tests run jobs: a manager's side without a manager
Receiver            the callback of such a manager: takes events as it would, and can fail in all ways
FakeService         a training service in memory, whose jobs do what the test says
SlowService, NeverService, BadService, LyingService      the same, misbehaving
eventually          waits for a condition, with a deadline
"""

from __future__ import annotations

from nnilite.testing import _rewrite as _rewrite
from nnilite.testing.bench import ServiceBench, eventually, keeper_zipapp
from nnilite.testing.fakes import (
    BadService,
    FakeJob,
    FakeService,
    LyingService,
    NeverService,
    NoConfig,
    SlowService,
    fake_context,
)
from nnilite.testing.receiver import Receiver
from nnilite.testing.service_contract import ServiceContract
from nnilite.testing.tuner_contract import TunerContract

__all__ = [
    "BadService",
    "FakeJob",
    "FakeService",
    "LyingService",
    "NeverService",
    "NoConfig",
    "Receiver",
    "ServiceBench",
    "ServiceContract",
    "SlowService",
    "TunerContract",
    "eventually",
    "fake_context",
    "keeper_zipapp",
]
