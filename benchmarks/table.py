"""Results and how they are shown: each with its raw numbers, its baseline and its budget."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Result:
    """One line of the table. `met` None: the budget is not a number that this run can decide."""

    what: str
    measured: str
    baseline: str
    ratio: str
    budget: str
    met: bool | None
    price: str = ""  # what must not get worse for this budget, measured in the same run


def in_starts(what: str, measured_ms: float, start_ms: float, budget: float) -> Result:
    """A time with its budget in empty starts of Python, so that it can be met on any machine."""
    ratio = measured_ms / start_ms
    base = f"an empty start of Python: {start_ms:.1f} ms"
    return Result(what, f"{measured_ms:.1f} ms", base, f"{ratio:.2f}", f"{budget:g} starts", ratio <= budget)


def show(results: Sequence[Result]) -> str:
    """The table as Markdown."""
    lines = ["| what | measured | baseline, same run | ratio | budget | met | at the price of |", "| --- " * 7 + "|"]
    words = {True: "yes", False: "**no**", None: "-"}
    lines += [
        f"| {r.what} | {r.measured} | {r.baseline} | {r.ratio} | {r.budget} | {words[r.met]} | {r.price} |"
        for r in results
    ]
    return "\n".join(lines)
