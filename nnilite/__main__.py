"""`python -m nnilite ARGUMENTS`: runs Python with these arguments, in which `import nni` is nnilite.

For programs written for NNI that no manager runs: a trial by hand, a script that launches experiments, a notebook
server. Trials and tuners of an experiment have `nni` anyway.

    python -m nnilite trial.py --epochs 3
    python -m nnilite -m jupyter lab

A command of nnictl in the place of a program is run as such: `python -m nnilite create config.yaml`.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from nnilite._keeper import SHIM

_USAGE = """\
usage: python -m nnilite [option of Python] ... FILE [argument] ...
       python -m nnilite COMMAND [argument] ...

The first runs a Python program in which `import nni` is nnilite, such as trial.py, or -m jupyter lab.
The second is `nnictl COMMAND`; `nnictl --help` lists the commands."""


def main() -> None:
    """Become that Python, whose programs inherit the path, or nnictl."""
    first = sys.argv[1] if len(sys.argv) > 1 else ""
    if first in ("-h", "--help"):
        sys.stdout.write(f"{_USAGE}\n")
        return
    if first and not first.startswith("-") and not Path(first).exists() and _is_command(first):
        from nnilite._cli import main as nnictl

        nnictl()
        return
    paths = [str(SHIM), *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)
    os.execv(sys.executable, [sys.executable, *sys.argv[1:]])


def _is_command(word: str) -> bool:
    from nnilite._cli.nnictl import COMMANDS

    return word in COMMANDS


if __name__ == "__main__":
    main()
