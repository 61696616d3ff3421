"""The child process that calls the user's function: `FILE FUNCTION`, parameters on standard input, the curve comes out.

The manager must not run foreign code itself, as that may hang or crash.
"""

from __future__ import annotations

import json
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path


def compute_curve(file: str, function: str, parameters: object) -> list[float]:
    """Return the function's numbers. Raises: whatever the function raises; TypeError if it gives no numbers."""
    sys.path.insert(0, str(Path(file).absolute().parent))  # its own modules are next to it
    found = runpy.run_path(file)[function](parameters)
    values = list(found) if isinstance(found, Sequence) else [found]
    return [float(value) for value in values]


if __name__ == "__main__":
    answer = json.dumps(compute_curve(sys.argv[1], sys.argv[2], json.load(sys.stdin)))
    sys.stdout.write("\n" + answer + "\n")
