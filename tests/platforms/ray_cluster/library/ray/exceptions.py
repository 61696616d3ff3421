"""What Ray raises."""


class RayError(Exception):
    """The base of all of it."""


class GetTimeoutError(RayError, TimeoutError):
    """No result came within the time limit."""
