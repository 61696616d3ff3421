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


def show(results: Sequence[Result]) -> str:
    """The table as Markdown."""
    lines = ["| what | measured | baseline, same run | ratio | budget | met | at the price of |", "| --- " * 7 + "|"]
    words = {True: "yes", False: "**no**", None: "-"}
    lines += [
        f"| {r.what} | {r.measured} | {r.baseline} | {r.ratio} | {r.budget} | {words[r.met]} | {r.price} |"
        for r in results
    ]
    return "\n".join(lines)
