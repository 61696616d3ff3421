"""What Ray raises."""


class RayError(Exception):
    """The base of all of it."""
