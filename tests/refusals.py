"""What the statuses mean by which a platform refuses a job, whichever platform it is."""

from __future__ import annotations

import pytest

from nnilite.errors import ConfigError, JobRefused, NotFound, ServiceError

each_refusal = pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, JobRefused),
        (401, ServiceError),
        (403, ServiceError),
        (404, NotFound),
        (413, ConfigError),
        (429, ServiceError),
        (500, ServiceError),
        (503, ServiceError),
    ],
)
