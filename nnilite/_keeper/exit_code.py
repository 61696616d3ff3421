"""Exit codes of commands, in the form that shells use and in words."""

from __future__ import annotations

from .signals import SIGKILL


def status(code: int) -> int:
    """Return an exit code in the form that shells use."""
    return 128 - code if code < 0 else code


def sentence(code: int) -> str:
    """Return what an exit code means, and its possible cause."""
    number = -code if code < 0 else code - 128 if 128 < code < 160 else 0
    if number:
        name = signal_name(number)
        why = ": the machine or the container may have been out of memory" if number == SIGKILL else ""
        return "killed by {}{}".format(name, why) if code < 0 else "exit code {} ({}{})".format(code, name, why)
    hints = {126: ": a command of it cannot be executed", 127: ": a command of it was not found"}
    return "exit code {}{}".format(code, hints.get(code, ""))


def signal_name(number: int) -> str:
    """Return the name of a signal, such as SIGKILL."""
    import signal

    try:
        return signal.Signals(number).name
    except ValueError:
        return "signal {}".format(number)
