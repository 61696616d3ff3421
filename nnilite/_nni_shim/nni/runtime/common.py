"""`nni.runtime.common`: whether a trial has several phases, which neither NNI 3 nor nnilite has."""

__path__ = []  # type: ignore[var-annotated]  # see `nni._Elsewhere`


def enable_multi_phase() -> None:
    """Do nothing."""


def multi_phase_enabled() -> bool:
    """Return False, always."""
    return False
