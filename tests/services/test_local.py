"""The local service: the contract of all services, in the user's folder and in copies of it."""

from __future__ import annotations

import pytest

from nnilite.testing import ServiceContract
from nnilite_local import LocalConfig, LocalService


class TestLocalService(ServiceContract):
    own_copy = False
    pushes = True

    @pytest.fixture
    def make_service(self):
        return lambda context: LocalService("local", LocalConfig(), context)


class TestLocalServiceWithCopies(ServiceContract):
    pushes = True

    @pytest.fixture
    def make_service(self):
        return lambda context: LocalService("local", LocalConfig(isolate_code=True), context)
