"""`nni.runtime.env_vars`: the environment of trials and tuners, as it is when an attribute is read."""

from __future__ import annotations

import os

__path__ = []  # type: ignore[var-annotated]  # see `nni._Elsewhere`

__all__ = ["dispatcher_env_vars", "trial_env_vars"]


class _Variables:
    """Environment variables as attributes; None for one that is not set."""

    def __getattr__(self, name: str) -> str | None:
        if name.startswith("__"):
            raise AttributeError(name)
        return os.environ.get(name)


trial_env_vars = _Variables()
dispatcher_env_vars = _Variables()
