"""`python -m nnilite ARGUMENTS`: runs Python with these arguments, in which `import nni` is nnilite.

For programs written for NNI that no manager runs: a trial by hand, a script that launches experiments, a notebook
server. Trials and tuners of an experiment have `nni` anyway.

    python -m nnilite trial.py --epochs 3
    python -m nnilite -m jupyter lab
"""

from __future__ import annotations

import os
import sys

from nnilite._keeper import SHIM


def main() -> None:
    """Become that Python; the programs that it starts inherit the path."""
    paths = [str(SHIM), *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)
    os.execv(sys.executable, [sys.executable, *sys.argv[1:]])


if __name__ == "__main__":
    main()
