"""Tools for tests of plugins and the manager. They need only pytest.

ServiceContract     the tests that every training service passes: subclass it, and give it `make_service`
BatchContract       the tests of failures of a batch platform: give it `trouble`, a BatchTrouble
TunerContract       the tests that every tuner passes: subclass it, and give it `make_tuner`
ServiceBench        the surroundings in which the service tests run jobs: a manager's side without a manager
ReadingBench        the same, for services that read reports themselves, as from the log of their platform
Receiver            the callback of such a manager: takes events as it would, and can fail in all ways
FakeService         a training service in memory, whose jobs do what the test says
SlowService, NeverService, BadService, LyingService      the same, misbehaving
eventually          waits for a condition, with a deadline

The modules:

service_contract  the tests that every training service passes
trial_contract    those of them that look at a trial: what it finds, and what it reports
batch_contract    the tests of what goes wrong on a batch platform
tuner_contract    the tests that every tuner passes
bench             the manager's side of everything that a service needs, without a manager
reading_bench     the same for services that read reports themselves
meeting           how a trial and its test meet: words and signs
fakes             training services without a platform
receiver          a manager's callback in a thread, which can fail on demand
listener          an HTTP server in a thread, which can go away as servers do that are killed
ports             ports for servers that are stopped and started again
probes            looking at this machine: shell words, files, processes
_programs         what the trials of the service contract do
_rewrite          makes the contracts' assertions explain themselves
"""

from __future__ import annotations

from nnilite.testing import _rewrite as _rewrite
from nnilite.testing.batch_contract import BatchContract, BatchTrouble
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
from nnilite.testing.reading_bench import ReadingBench
from nnilite.testing.receiver import Receiver
from nnilite.testing.service_contract import ServiceContract
from nnilite.testing.tuner_contract import TunerContract

__all__ = [
    "BadService",
    "BatchContract",
    "BatchTrouble",
    "FakeJob",
    "FakeService",
    "LyingService",
    "NeverService",
    "NoConfig",
    "ReadingBench",
    "Receiver",
    "ServiceBench",
    "ServiceContract",
    "SlowService",
    "TunerContract",
    "eventually",
    "fake_context",
    "keeper_zipapp",
]
