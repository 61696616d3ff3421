"""Azure Machine Learning: the contract of all services, with reports by REST and by the log.

With NNILITE_TEST_AML the second one runs on a real workspace: what needs neither files of this machine nor a way to it.
"""

from __future__ import annotations

import pytest

from nnilite.testing import ServiceContract
from platforms.aml.bench import GIVEN, MARKS, AmlBench
from platforms.contract_cases import BATCH_MATTERS

pytestmark = MARKS


@pytest.mark.skipif(bool(GIVEN), reason="nodes of Azure cannot reach this machine")
class TestAml(ServiceContract):
    every_case = False
    matters = BATCH_MATTERS
    has_logs = False

    @pytest.fixture
    def bench(self, tmp_path, azure):
        with AmlBench(tmp_path) as bench:
            yield bench


@pytest.mark.timeout(3600 if GIVEN else 120)
class TestAmlByLog(ServiceContract):
    has_logs = False
    same_machine = not GIVEN
    pytestmark = [] if GIVEN else [pytest.mark.long]

    @pytest.fixture
    def bench(self, tmp_path, request):
        if not GIVEN:
            request.getfixturevalue("azure")
        with AmlBench(tmp_path, by_log=True) as bench:
            yield bench
