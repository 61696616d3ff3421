"""Finds out why files in the home folder cannot be used, as after `sudo -u`, which leaves HOME as it was."""

from __future__ import annotations

import os
from pathlib import Path

from nnilite.units.path_rules import expand_home


def explain_home(path: Path) -> str:
    """Return what is wrong with the home folder and the cure, if `path` lies in it; "" if nothing is known.

    >>> explain_home(Path("/somewhere/else"))
    ''
    """
    home = expand_home("~")
    if not path.is_relative_to(home):
        return ""
    try:
        owner = home.stat().st_uid
    except FileNotFoundError:
        return f"the home folder {str(home)!r} does not exist: set HOME to a folder of your own"
    except OSError:
        return ""
    if owner == os.geteuid() or os.access(home, os.W_OK | os.X_OK):
        return ""
    return f"the home folder {str(home)!r} is another user's: set HOME to a folder of your own, as `sudo -H` does"
