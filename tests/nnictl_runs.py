"""`nnictl` with the present environment, as cheaply as it can be had."""

from __future__ import annotations

import io
import subprocess
import sys
import warnings
from contextlib import redirect_stderr, redirect_stdout

from nnilite._cli.nnictl import run

SERVING = ("ui", "worker")
LIMIT_S = 110.0


def nnictl(*words: str, limit_s: float = LIMIT_S, serves: bool | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command: what does not end by itself in a process of its own, all else in this one, which has the imports.

    `serves`: whether it would not end by itself. If that is not given, the name of the command says so.
    """
    if words[0] in SERVING if serves is None else serves:
        command = [sys.executable, "-m", "nnilite._cli", *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=limit_s, check=False)
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    usual = sys.excepthook
    try:
        # Programs do not show most of the warnings that are errors in tests.
        with redirect_stdout(out), redirect_stderr(err), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            code = run(words)
    except SystemExit as end:  # a wrong command line
        code = int(end.code or 0)
    finally:
        sys.excepthook = usual
    return subprocess.CompletedProcess(words, code, *(told.buffer.getvalue().decode() for told in (out, err)))  # type: ignore[attr-defined]
