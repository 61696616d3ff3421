"""The command that runs a module of a package in a new Python.

It is `python -m`, but for one thing: that imports from the folder in which it is started before all others. In a folder
of another person, or one such as `/tmp`, a file `json.py` would run.
"""

from __future__ import annotations

import sys

_FOR_3_10 = (
    "import sys; del sys.path[0]; import runpy; runpy.run_module(sys.argv.pop(1), run_name='__main__', alter_sys=True)"
)


def module_command(module: str, *words: str) -> list[str]:
    """Return the command, with the module's own words.

    >>> module_command("nnilite._manager", "--stand-by", "3")[-3:]
    ['nnilite._manager', '--stand-by', '3']
    """
    start = ("-P", "-m") if sys.version_info >= (3, 11) else ("-c", _FOR_3_10)
    return [sys.executable, *start, module, *words]
