"""What is named to pytest is read folder by folder.

pytest 9.1 runs tests without the fixtures of their folder if a file from the folder above is named between two of their
own: it makes the inner folder anew for the later file, and the fixtures stay with the former one (issue 14964 there).
"""

from __future__ import annotations

import pytest


def pytest_configure(config: pytest.Config) -> None:
    config.args.sort()
