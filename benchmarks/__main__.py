"""`python -m benchmarks [name ...]`: measure the budgets and print the table."""

from __future__ import annotations

import importlib
import sys

from benchmarks.table import Result, show

MEASURES = ("startup", "trials", "intake", "proposals", "packing", "scale", "web", "remote")


def main(names: list[str]) -> None:
    results: list[Result] = []
    for name in names or MEASURES:
        print(f"measuring {name} ...", file=sys.stderr)
        results += importlib.import_module(f"benchmarks.{name}").measure()
    print(show(results))


if __name__ == "__main__":
    main(sys.argv[1:])
