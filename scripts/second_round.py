"""Runs failed tests once more, one at a time: `make test` does so after four at once have kept the machine busy.

    scripts/second_round.py STATUS

STATUS is the exit status of the first round. What passes only now has found something all the same, so it is listed at
the end, and somebody has to look: a deadline that is too short, or a race of ours that needs a busy machine.

Many failures are no accident. More than `MOST` of them, or a round that did not come to its end, fail at once.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

MOST = 10
TESTS_FAILED = 1  # pytest's exit status; all others above 0 say that the round itself went wrong
LAST_FAILED = Path(".pytest_cache/v/cache/lastfailed")


def failed_tests(cache: Path = LAST_FAILED) -> list[str]:
    """The tests that failed, as pytest takes them. xdist's `--dist loadgroup` adds "@GROUP" to their names."""
    return sorted({re.sub(r"@[^\]]*$", "", name) for name in json.loads(cache.read_text())})


def run_again(tests: list[str]) -> int:
    """The exit status of pytest, which runs the tests in one process."""
    return subprocess.run([sys.executable, "-m", "pytest", "-v", *tests], check=False).returncode


def main(first: int) -> int:
    if first != TESTS_FAILED:
        return first
    tests = failed_tests()
    if not 0 < len(tests) <= MOST:
        print(f"{len(tests)} tests failed; only {MOST} or fewer are tried a second time")
        return first
    print(f"\n{len(tests)} of the tests failed beside others, and are tried alone now:", *tests, sep="\n  ", flush=True)
    status = run_again(tests)
    if status == 0:
        print("these passed only at their second try; look at why the first failed:", *tests, sep="\n  ")
    return status


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
