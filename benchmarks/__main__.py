"""`python -m benchmarks [name ...]`: measure the budgets and print the table.

Without names it measures all, and README and docs get the figures of that run.
"""

from __future__ import annotations

import importlib
import sys
import traceback
from dataclasses import replace
from pathlib import Path

from benchmarks import figures
from benchmarks.curves import Curve, svg
from benchmarks.neighbours import WHAT
from benchmarks.table import Result, show

# Trials come before all that removes thousands of files: some disks are slow to make new ones after that.
MEASURES = (
    "machine",
    "trials",
    "neighbours",
    "startup",
    "intake",
    "proposals",
    "search_costs",
    "packing",
    "scale",
    "heartbeats",
    "web",
    "remote",
)

PICTURES = Path(__file__).parents[1] / "docs/images/benchmarks"


def draw(name: str, curve: Curve) -> None:
    points = ", ".join(f"{size:g}: {value:.3g} {curve.value}" for size, value in curve.points)
    print(f"{curve.name}, by {curve.size}: {points}; exponent {curve.exponent:.2f}")
    PICTURES.mkdir(parents=True, exist_ok=True)
    (PICTURES / f"{name}.svg").write_text(svg(curve), "utf-8")


def with_share(results: list[Result]) -> list[Result]:
    """Add to what budgets of trials must not cost: how long a trial takes where the machine is busy."""
    beside = next((one for one in results if one.what.startswith(WHAT)), None)
    share = "trials on a busy machine not measured" if beside is None else f"{beside.what} {beside.ratio}"
    return [replace(one, price=f"{one.price}; {share}") if one.price else one for one in results]


def main(names: list[str]) -> int:
    """Returns the exit code: 1 if something could not be measured. The rest is in the table all the same."""
    results: list[Result] = []
    broken = []
    for name in names or MEASURES:
        print(f"measuring {name} ...", file=sys.stderr)
        try:
            module = importlib.import_module(f"benchmarks.{name}")
            results += module.measure()
            if (curve := module.curve()) is not None:
                draw(name, curve)
        except Exception:  # noqa: BLE001 (what failed is printed, and minutes of other measurements are not lost)
            traceback.print_exc()
            broken.append(name)
    results = with_share(results)
    print(show(results))
    if not names and not broken:
        figures.keep_rows(results)
    if broken:
        print(f"could not be measured: {', '.join(broken)}", file=sys.stderr)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
