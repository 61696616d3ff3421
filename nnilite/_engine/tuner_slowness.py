"""Says why no trial begins while the tuner's process has not answered a request for parameters yet."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from nnilite._engine.messages import Ask, Assess, TunerCall

_PATIENCE_S = 10.0


class TunerSlowness:
    """Follows the calls of the tuner from the queue to their answers. `now` returns the time in seconds."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._asked: float | None = None  # since when parameters are awaited
        self._before: dict[type, int] = {}  # calls by kind that are queued or sent and not answered
        self._computing: float | None = None  # since when the tuner computes parameters

    def queued(self, action: TunerCall) -> None:
        self._before[type(action)] = self._before.get(type(action), 0) + 1
        if isinstance(action, Ask):
            self._asked = self._now()

    def sent(self, actions: Sequence[TunerCall]) -> None:
        """Note that these calls are made now, in their order."""
        self._computing = self._now() if isinstance(actions[0], Ask) else None

    def answered(self, action: TunerCall) -> None:
        self._before[type(action)] = max(self._before.get(type(action), 0) - 1, 0)
        if isinstance(action, Ask):
            self._asked = self._computing = None

    def reason(self, find_stop: Callable[[], str] = str) -> str:
        """Return a sentence; "" if no parameters are awaited, or not for long.

        `find_stop`: returns that the tuner's process was stopped; "" if it was not. Few questions need it.
        """
        if self._asked is None or self._now() - self._asked < _PATIENCE_S:
            return ""
        waited = f"new parameters were requested {self._now() - self._asked:.0f} s ago"
        stop = find_stop()
        if stop:
            return f"{waited}, and the tuner does nothing: {stop}"
        others = {kind: count for kind, count in self._before.items() if count and kind is not Ask}
        if self._computing is not None or not others:
            return f"{waited}, and the tuner is still computing them"
        judged, more = others.pop(Assess, 0), sum(others.values())
        parts = [f"{judged} result{'s' * (judged > 1)} to assess"] if judged else []
        parts += [f"{more} other call{'s' * (more > 1)} to make"] if more else []
        return f"{waited}, and the tuner's process still has {' and '.join(parts)}"
