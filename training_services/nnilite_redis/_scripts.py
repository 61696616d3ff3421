"""Load the Lua scripts that Redis runs as a whole or not at all. Each is described where it is called, in `_api`.

A reply is a status word, or a list that begins with one. The scripts are in `_lua`; `heads`, `listed` and `slots` have
functions that others call.
"""

from __future__ import annotations

from pathlib import Path

_FOLDER = Path(__file__).with_name("_lua")


def _lua(*names: str) -> str:
    """Return the script that consists of these files."""
    return "".join((_FOLDER / f"{name}.lua").read_text("ascii") for name in names)


SUBMIT = _lua("submit")
TAKE = _lua("heads", "slots", "take")
HASHES = _lua("hashes")
LIST = _lua("listed", "list")
SHARES = _lua("listed", "shares")
MESSAGES = _lua("messages")
DIGEST = _lua("digest")
RUNG = _lua("rung")
PLACES = _lua("heads", "places")
SYNC = _lua("heads", "slots", "sync")
BEAT = _lua("beat")
FENCE = _lua("fence")
CANCEL = _lua("cancel")
REMOVE = _lua("remove")
