"""Run the tests that failed once more, alone, if they are on the list of those that may have a second chance.

    scripts/second_round.py STATUS

STATUS is the exit status of the first round. `tests/second_chances.yaml` names them, each with a date and a reason; a
name that ends with a slash stands for a folder. An entry may name a marker of pytest in place of a test: then at most
`most` failed tests that have it are tried again.
A test that is not on it has no second chance: one that fails beside others and passes alone has found a race that needs
a busy machine. A place on the list lasts `DAYS` days, in which the cause is to be found.
"""

from __future__ import annotations

import datetime
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

DAYS = 30
MOST = 10
TESTS_FAILED = 1  # pytest's exit status; all others above 0 say that the round itself went wrong
LAST_FAILED = Path(".pytest_cache/v/cache/lastfailed")
CHANCES = Path("tests/second_chances.yaml")


def failed_tests(cache: Path = LAST_FAILED) -> list[str]:
    """Return the names of the tests that failed. xdist's `--dist loadgroup` adds "@GROUP" to some, which is removed."""
    return sorted({re.sub(r"@[^\]]*$", "", name) for name in json.loads(cache.read_text())})


def entries(today: datetime.date, chances: Path = CHANCES) -> list[dict[str, Any]]:
    """Return the entries of the list whose place has not run out. Raises: ValueError for an entry without a reason."""
    found = []
    for entry in yaml.safe_load(chances.read_text()) or []:
        if not entry.get("reason"):
            raise ValueError(f"{chances}: {entry.get('test') or entry.get('marker')} has no reason")
        if datetime.timedelta(0) <= today - entry["since"] < datetime.timedelta(days=DAYS):
            found.append(entry)
    return found


def with_a_chance(tests: list[str], found: list[dict[str, Any]]) -> set[str]:
    """Return those of the failed tests that an entry of the list names, by themselves, by a folder or by a marker."""
    names = {entry["test"] for entry in found if "test" in entry}
    folders = tuple(name for name in names if name.endswith("/"))
    listed = {test for test in tests if test in names or test.partition("[")[0] in names or test.startswith(folders)}
    for entry in found:
        rest = [test for test in tests if test not in listed]
        if "marker" in entry and rest:
            listed.update(marked(rest, entry["marker"])[: entry["most"]])
    return listed


def marked(tests: list[str], marker: str) -> list[str]:
    """Return those of the tests that have the marker."""
    # Without the options of the project, of which some shorten the list.
    command = [sys.executable, "-m", "pytest", "-o", "addopts=", "-p", "no:cacheprovider", "--collect-only", "-q"]
    shown = subprocess.run([*command, "-m", marker, *tests], check=False, stdout=subprocess.PIPE, text=True).stdout
    return [test for test in tests if test in shown.splitlines()]


def run_again(tests: list[str]) -> int:
    """Run the tests in one process and return the exit status of pytest."""
    return subprocess.run([sys.executable, "-m", "pytest", "-v", *tests], check=False).returncode


def main(first: int) -> int:
    if first != TESTS_FAILED or not LAST_FAILED.exists():
        return first
    tests = failed_tests()
    if len(tests) > MOST:
        print(f"\n{len(tests)} tests failed; at most {MOST} are tried a second time")
        return first
    chances = with_a_chance(tests, entries(datetime.date.today()))
    without = [test for test in tests if test not in chances]
    if without or not tests:
        print("\nThese tests failed and have no second chance:", *without, sep="\n  ")
        print(f"If one of them passes alone, it has found a race: mend it, or add it to {CHANCES} with the reason.")
        return first
    print(f"\n{len(tests)} tests failed beside others and run alone now:", *tests, sep="\n  ", flush=True)
    status = run_again(tests)
    if status == 0:
        print("these passed only at their second try; find out why the first failed:", *tests, sep="\n  ")
    return status


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
