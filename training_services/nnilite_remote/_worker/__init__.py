"""The worker's end of a connection: a program that is piped to a Python there, and carries out the manager's requests.

It runs on Python 3.8 and later, and uses only the standard library and `worker_side` and `slots` of nnilite. Its
modules are not installed there but sent as one text (`program`). After this text, its standard input has one line of
settings and then, by mode:

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

from pathlib import Path

from nnilite.services.worker_side import sources

__all__ = ["program"]

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
_START = """import sys, types
def _module(name, source):
    module = sys.modules[name] = types.ModuleType(name)
    if not source:
        module.__path__ = []
    module.__package__ = name.rpartition(".")[0] if source else name
    exec(compile(source, name, "exec"), module.__dict__)
"""


def program() -> bytes:
    """Return the agent as one text: its modules, and the call of `main`."""
    folder = Path(__file__).parent
    texts = sources() | dict.fromkeys(_PACKAGES, "")
    texts |= {f"{_PACKAGES[-1]}.{name}": (folder / f"{name}.py").read_text("ascii") for name in _MODULES}
    calls = [f"_module({name!r}, {text!r})\n" for name, text in texts.items()]
    return (_START + "".join(calls) + f"sys.modules['{_PACKAGES[-1]}.main'].main()\n").encode("ascii")
