"""Imported before the contracts, so that their assertions explain themselves as those of test files do."""

import pytest

pytest.register_assert_rewrite(
    "nnilite.testing.batch_contract",
    "nnilite.testing.service_contract",
    "nnilite.testing.trial_contract",
    "nnilite.testing.tuner_contract",
)
