"""The worker's end of a connection: a program that is piped to a Python there, and carries out the manager's requests.

It runs on Python 3.8 and later, and uses only the standard library and `worker_side` and `slots` of nnilite. Its
modules are not installed there but sent (`program`). After them, its standard input has one line of settings and then,
by mode:

    serve     requests, one JSON line each: {"id": 1, "do": "status", ...}. Answers {"id": 1, "ok": ...} or
              {"id": 1, "error": sentence} come in any order, {"event": "ended", "job": ...}, reports and what
              becomes of preloaded modules unasked
    receive   the bytes of a file for the cache, from the offset that the first answer names
    send      nothing: a folder comes back as a tar stream
    send_file nothing: one file of an attempt comes back

The first line of output holds the settings' `nonce`, which separates it from earlier output of the user's shell.

    <root>/cache/                       code packages and keepers by their hash, for all experiments of this user
    <root>/.slots/                      who has a slot of this machine, and who waits: see `nnilite.services.slots`
    <root>/<experiment>/callback-<key>  the manager's address as seen from this machine; `.sock`: see `report_socket`
    <root>/<experiment>/trials/<trial>/<attempt>/    see the keeper; and `spec.json`, `job.json`
    <root>/<experiment>/checkpoints/    see `checkpoints`

main         the course of an agent, from start to end
agent        the agent that stays, and answers requests until its connection ends
attempt      the folder of one attempt
keeper_starter  starts keepers through one fork server, which reports the state of each
hosted_keepers  which keepers are at work at which attempts, and how to end them
checkpoints  the checkpoints of earlier attempts, and those that come from other machines
report_socket  passes reports of keepers on, by the agent's own connection
gpus         the GPUs of the machine, from the driver's own library
processes    processes of the machine, and files for their owner alone
transfer     files that come to the machine's cache, and folders that are sent from it
"""

from __future__ import annotations

import functools
import importlib.util
import marshal
import zlib
from pathlib import Path
from types import CodeType
from typing import Any, NamedTuple

from nnilite.services.worker_side import sources

__all__ = ["AgentProgram", "program"]

# each after what it imports
_MODULES = (
    "processes",
    "attempt",
    "gpus",
    "transfer",
    "checkpoints",
    "keeper_starter",
    "hosted_keepers",
    "report_socket",
    "agent",
    "main",
)
_PACKAGES = ("nnilite_remote", "nnilite_remote._worker")
# To compile the modules takes a Python more time than all else until it is ready. That of the manager's
# version need not.
_START = f"""import importlib.util, marshal, sys, types, zlib
_packed = [sys.stdin.buffer.read(size) for size in {{sizes}}]
_modules = marshal.loads(zlib.decompress(_packed[importlib.util.MAGIC_NUMBER == {{magic}}]))
for _name, _code in _modules.items():
    _module = sys.modules[_name] = types.ModuleType(_name)
    _module.__package__ = _name.rpartition(".")[0] if _code else _name
    if _code:
        exec(compile(_code, _name, "exec") if isinstance(_code, str) else _code, _module.__dict__)
    else:
        _module.__path__ = []
sys.modules["{_PACKAGES[-1]}.main"].main()
"""


class AgentProgram(NamedTuple):
    """What a Python on the machine gets: a text that it runs, and what this text reads from standard input."""

    text: bytes
    modules: bytes


@functools.lru_cache(maxsize=1)
def program() -> AgentProgram:
    """Return the agent: its modules as texts and, for the version of Python that runs here, as bytecode as well."""
    folder = Path(__file__).parent
    texts = sources() | dict.fromkeys(_PACKAGES, "")
    texts |= {f"{_PACKAGES[-1]}.{name}": (folder / f"{name}.py").read_text("ascii") for name in _MODULES}
    codes = {name: text and (_bytecode(name) or text) for name, text in texts.items()}
    # Any Python 3 reads this form of texts.
    packed = [zlib.compress(marshal.dumps(texts, 2)), zlib.compress(marshal.dumps(codes))]
    text = _START.format(sizes=[len(part) for part in packed], magic=importlib.util.MAGIC_NUMBER)
    return AgentProgram(text.encode("ascii"), b"".join(packed))


def _bytecode(name: str) -> CodeType | None:
    """Return a module's bytecode, which Python keeps in `__pycache__`; None if it is damaged.

    On a full disk, Pythons before 3.12.8 and 3.13.1 leave a part of it.
    """
    spec: Any = importlib.util.find_spec(name)
    try:
        return _place(spec.loader.get_code(name), name)
    except (EOFError, ValueError, TypeError):
        return None


def _place(code: CodeType, name: str) -> CodeType:
    """Return the code of a module without the module's place on this machine."""
    inner = tuple(_place(one, name) if isinstance(one, CodeType) else one for one in code.co_consts)
    return code.replace(co_filename=name, co_consts=inner)
