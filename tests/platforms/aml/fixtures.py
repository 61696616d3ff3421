"""The fixtures of the tests on the stand-in. They take long to make, so all tests of it share one process."""

from __future__ import annotations

import warnings

import pytest

from platforms.aml.azurite import Azurite, missing
from platforms.aml.bench import GIVEN
from platforms.aml.cloud import StandInCloud
from platforms.aml.contract import AzureContract

# Azure's library is told by its own libraries what it should do otherwise.
MARKS = [
    pytest.mark.process,
    pytest.mark.xdist_group("azure"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


@pytest.fixture(scope="session")
def azurite(tmp_path_factory):
    """A storage account for all tests."""
    if missing():
        pytest.skip(missing())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import azure.ai.ml  # noqa: F401 - it takes seconds, which belong to no test
    with Azurite().running(tmp_path_factory.mktemp("azurite")) as found:
        yield found


@pytest.fixture(scope="session")
def azure_contract():
    return AzureContract()


@pytest.fixture
def azure(tmp_path, azurite, azure_contract, monkeypatch):
    """A workspace; with it ends the test of whether all calls were within the contract."""
    if GIVEN:
        pytest.skip("a workspace of Azure does not break when it is told to")
    with StandInCloud(tmp_path / "azure", azurite, azure_contract) as found:
        for name, value in found.environment.items():
            monkeypatch.setenv(name, value)
        yield found


@pytest.fixture
def place(request):
    """The stand-in, or None for Azure itself, where NNILITE_TEST_AML names a workspace."""
    return None if GIVEN else request.getfixturevalue("azure")
