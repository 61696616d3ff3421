"""Write the reference pages that are made from the code: config, nnictl, REST and others. --check only compares.

.venv/bin/python scripts/reference_pages.py            # what `make docs` does
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

os.environ.pop("NNILITE_HOME", None)  # a default in the config depends on it

import request_sizes
import share_of_nni

from nnilite._cli import nnictl
from nnilite._cli.command_line import Parser
from nnilite._plugins import lookup
from nnilite._rest.openapi import document
from nnilite._rest.routes import ROUTES
from nnilite._rest.session_handlers import SESSION_ROUTES
from nnilite.config import BY_MANAGER, BY_WORKERS, reference_markdown
from nnilite.service import TrainingService

DOCS = Path(__file__).resolve().parent.parent / "docs" / "reference"
HEAD = "<!-- Made by scripts/reference_pages.py: change the code, then run `make docs`. -->\n\n"

CONFIG = """\
# The configuration file

This page lists all fields of an experiment's YAML (or JSON) file. The file is checked before anything starts.
`nnictl create --config FILE --dry-run` checks it and starts nothing; `nnictl config schema` prints the same rules as
JSON Schema, for editors.

- Case and underscores in field names do not matter: `trialConcurrency`, `trial_concurrency` and `TRIALCONCURRENCY` are
  the same field. In Python the names have underscores.
- Besides the fields marked **required**, every experiment needs a `trialCommand`, and either `searchSpace` or
  `searchSpaceFile`. Without a `tuner` it has [Auto](tuners/auto.md).
- **duration**: seconds as a whole number, or a number and one of `d h m s`, such as `10m` or `1.5h`.
- **size**: bytes as a whole number, or a number and one of `tb gb mb kb b`. **memory**: the same, but a plain number
  is megabytes.
- **GPU indices**: `0`, `"0,1"` or `[0, 1]`, as `nvidia-smi` numbers them.
- **file**, **folder**, **path**: relative to the folder of the configuration file. A file or folder must exist.
- **secret**: shown as `********` everywhere. Write `${env:NAME}` to read it from the environment, so that it need not
  be in the file.
- A configuration of NNI before 2.0 (`trainingServicePlatform` at the top) is converted when it is read, with a warning
  for settings that no longer have a meaning.

"""

CLI = """\
# nnictl

This page lists all commands and their options; `nnictl COMMAND --help` shows the same.
`nnilite` is the same command, under the package's name.

An experiment's id can be shortened to its first letters; without an id, the command means the only running experiment.
Commands for scripts have `--json`. [Exit codes](exit-codes.md) lists the exit codes.

| | |
| --- | --- |
"""

OPTIONS = """\
# Which options have an effect on which platform

Most options of [the configuration file](config.md) are the manager's own business and work on every platform: {own}.

For the others it depends on the training service. `in part` means that an option has no effect in some cases; the list
of the platform says which. `nnictl create` warns of every option that was set and has no effect, and a dry run
(`nnictl create --dry-run`) lists them. In a list of several platforms each one follows its own rules: with
`callback: log`, for example, trials on `slurm` report by their folders, and trials on `local` report to the manager as
always.

Fields of a platform that need another field to mean anything, such as `priority` without `maxSlots`, are refused.

"""

REST = """\
# The REST interface

Each experiment's manager has a REST interface, at the same address as its web page. All paths are below `/api/v1`. The
running server describes it, with all schemas, at `/api/v1/openapi.json`.

- Times are seconds since the epoch. NaN and infinities are the strings `"NaN"`, `"Infinity"` and `"-Infinity"`.
- An error is `{"error": "what is wrong"}`, with `field` if a field is the cause.
- [Security and tokens](../how-to/security-and-tokens.md) says when a token is needed and how to send it. Requests that
  change something send JSON (`Content-Type: application/json`).
- Routes below `/nni` answer as NNI's manager did, for programs that were written for it.

"""

FOR_BROWSERS = """\
A page sends neither the secret of its sign-in link nor the key of its session. It proves that it knows them, by the
codes that [keepers](#for-trials) make: `code(KEY, a, b, ...)`. The name of a secret or key is `code(KEY, "name")`,
which opens nothing. MINE is 32 random hex digits.

1. `POST /sessions` with `{"link": NAME, "nonce": MINE, "proof": code(LINK, "link", MINE)}` uses a link up. The answer
   is `{"nonce": THEIRS, "proof": code(LINK, "manager", MINE, THEIRS)}`. The key of the session is
   `code(LINK, "session", MINE, THEIRS)`. If THEIRS is empty, this sender needs no key.
2. `GET /sessions/{session}/proof?nonce=MINE`, with the name of the session, is answered as keepers are. Unless the
   answer proves that the server knows the key, send nothing more. Ask again if the last proof is older than a second.
3. Each request has the headers `X-Nnilite-Session`, with the name of the session, and `Authorization`, as keepers sign.
   The server takes requests in any order, each COUNT once, for 60 s after the exchange of nonces and up to 4095. A
   request that changes something also needs the header `Origin`.
4. Each answer, except for files that are made while they are sent, has the header `X-Nnilite-Proof`. Its digest is that
   of the body before it is compressed. An answer without a proof says at most that the request was refused.

What sends no headers has a ticket (`POST /tickets`): a download in its query (`?ticket=...`), a WebSocket as a protocol
(`Sec-WebSocket-Protocol: nnilite, TICKET`). Links, sessions and tickets end with the server. Cookies open nothing.

"""

FOR_TRIALS = """\
Keepers do not send their trial's token. Both ends prove that they know it, with codes that cannot be made without it:
`code(a, b, ...)` is HMAC-SHA256 in hex, with the token as key, of the texts `nnilite`, `a`, `b`, ... joined by newlines
(`\\n`).

1. On each new connection: `GET /callback/{job}/proof?nonce=MINE`, where MINE is 32 random hex digits. The answer is
   `{"nonce": THEIRS, "proof": PROOF}`. Unless PROOF is `code("manager", MINE, THEIRS)`, this is not the manager: close
   the connection.
2. Each request on that connection has the header `Authorization: Nnilite MINE:THEIRS:COUNT:DIGEST:CODE`. COUNT is 1 for
   the first and goes up by one, DIGEST is the SHA-256 of the body in hex, and CODE is
   `code("request", MINE, THEIRS, COUNT, METHOD, PATH, DIGEST)` with the whole path from `/api/v1` on. Downloads also
   name the job, in the header `X-Nnilite-Job`.
3. Each answer has the header `X-Nnilite-Proof`: `code("answer", MINE, THEIRS, COUNT, STATUS, DIGEST)`, with the digest
   of the answer's body. Without it, ignore the answer; open a new connection and ask again.

Batches are accepted only in the order of THEIRS and COUNT, so nobody who has listened can send one again. Keepers
started by nnilite 0.1.0 send the token itself (`Authorization: Bearer TOKEN`), which is still accepted.

The head of a request is checked before its body is read. A request with `Expect: 100-continue` is refused, or told to
send its body, by the head alone. One job may have 16 MB of batches under way; beyond that the answer is 503.
"""


def config() -> str:
    return CONFIG + reference_markdown()


def options() -> str:
    classes = {name: lookup.training_service_class(name) for name in lookup.names(lookup.SERVICES)}
    head = OPTIONS.replace("{own}", ", ".join(f"`{option}`" for option in BY_MANAGER))
    lists = [_ignored(name, cls) for name, cls in classes.items()]
    return f"{head}{_matrix(classes)}\n## What has no effect\n{''.join(lists)}"


def _matrix(classes: Mapping[str, type[TrainingService]]) -> str:
    """Return the table of platforms and options."""
    rows = [["", *(f"`{option}`" for option in BY_WORKERS)], ["---"] * (len(BY_WORKERS) + 1)]
    rows += [[f"[{name}](#{name})", *(_effect(cls, option) for option in BY_WORKERS)] for name, cls in classes.items()]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _effect(cls: type[TrainingService], option: str) -> str:
    if not cls.honours(option):
        return "no"
    return "in part" if any(one.option == option for one in cls.ignores) else "yes"


def _ignored(name: str, cls: type[TrainingService]) -> str:
    rows = [f"| `{one.option}` | {one.case or 'always'} | {one.why} |\n" for one in cls.ignores]
    table = "| option | ignored | why |\n| --- | --- | --- |\n" + "".join(rows)
    return f"\n### {name}\n\n{table if rows else 'Nothing is ignored.'}"


def cli() -> str:
    commands = "".join(f"| [`nnictl {name}`](#nnictl-{name}) | {text} |\n" for name, text in nnictl.COMMANDS.items())
    return CLI + commands + "".join(_command(name) for name in nnictl.COMMANDS)


def _command(name: str) -> str:
    module = importlib.import_module(f"nnilite._cli.{name}")
    parser = Parser(prog=f"nnictl {name}")
    module.add(parser)
    return f"\n## nnictl {name}\n\n{(module.__doc__ or '').strip()}\n{_usage(parser)}"


def _usage(parser: argparse.ArgumentParser) -> str:
    actions = [action for action in parser._actions if not isinstance(action, argparse._HelpAction)]
    groups = [action for action in actions if isinstance(action, argparse._SubParsersAction)]
    if groups:
        return "".join(_group(action) for action in groups)
    rows = [f"| {_spelling(action)} | {_meaning(action)} |" for action in actions if action.help != argparse.SUPPRESS]
    if not rows:
        return ""
    return "\n| argument | meaning |\n| --- | --- |\n" + "\n".join(rows) + "\n"


def _group(action: Any) -> str:
    """Each member once, under its first name."""
    names: dict[int, list[str]] = {}
    for name, parser in action.choices.items():
        names.setdefault(id(parser), []).append(name)
    helps = {choice.dest.split(" ")[0]: choice.help for choice in action._choices_actions}
    parts = []
    for name, *aliases in names.values():
        parser = action.choices[name]
        also = f" (or `{'`, `'.join(aliases)}`)" if aliases else ""
        parts.append(f"\n### {parser.prog}\n\n{_sentence(helps[name])}{also}\n{_usage(parser)}")
    return "".join(parts)


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _spelling(action: argparse.Action) -> str:
    value = _value(action)
    if not action.option_strings:
        text = value if action.required else f"[{value}]"
        return f"`{text}`"
    options = ", ".join(f"`{option}`" for option in action.option_strings)
    needed = " (required)" if action.required else ""
    return f"{options}{f' `{value}`' if value else ''}{needed}"


def _value(action: argparse.Action) -> str:
    if action.nargs == 0:
        return ""
    if action.choices is not None:
        value = "{" + ",".join(map(str, action.choices)) + "}"
    else:
        value = str(
            action.metavar or action.dest if not action.option_strings else action.metavar or action.dest.upper()
        )
    return f"{value} ..." if action.nargs in ("+", "*") else value


def _meaning(action: argparse.Action) -> str:
    return (action.help or "").replace("|", "\\|").replace("%(default)s", str(action.default))


_ABOUT = {"For browsers": FOR_BROWSERS, "For trials": FOR_TRIALS}


def rest() -> str:
    found = document(ROUTES, "")
    parts = []
    for title, chosen in _chapters(found["paths"]):
        parts.append(f"## {title}\n")
        parts += [_ABOUT[title]] if title in _ABOUT else []
        parts += [
            _describe_operation(path, method, about) for path, methods in chosen for method, about in methods.items()
        ]
    return REST + "\n".join(parts)


def _chapters(paths: dict[str, Any]) -> Iterator[tuple[str, list[tuple[str, Any]]]]:
    titles = ("For people and scripts", "For browsers", "For trials", "As NNI's manager")
    kinds: dict[str, list[tuple[str, Any]]] = {title: [] for title in titles}
    of_browsers = {route.path for route in SESSION_ROUTES}
    for path, methods in paths.items():
        first = next(iter(methods.values()))
        if path.startswith("/nni/"):
            kind = "As NNI's manager"
        elif path in of_browsers:
            kind = "For browsers"
        else:
            own = {"manager": []} in first["security"]
            kind = "For people and scripts" if own else "For trials"
        kinds[kind].append((path, methods))
    yield from kinds.items()


def _describe_operation(path: str, method: str, about: dict[str, Any]) -> str:
    text = about["summary"].removeprefix("NNI: ")
    lines = [f"### {method.upper()} {path}", "", _sentence(text) + ".", ""]
    if about["parameters"]:
        lines += ["| parameter | in | type | meaning |", "| --- | --- | --- | --- |"]
        lines += [_parameter(param) for param in about["parameters"]]
        lines.append("")
    body = about.get("requestBody")
    if body:
        lines += [f"Body: {_schema(body['content']['application/json']['schema'])}.", ""]
    for status, answer in about["responses"].items():
        if status.startswith(("1", "2")):
            media = ", ".join(f"`{kind}`" for kind in answer.get("content", {}))
            lines += [f"Answers {status}: {answer['description']}{f' ({media})' if media else ''}.", ""]
    return "\n".join(lines)


def _parameter(param: dict[str, Any]) -> str:
    needed = " (required)" if param["required"] and param["in"] != "path" else ""
    return f"| `{param['name']}`{needed} | {param['in']} | {_type(param['schema'])} | {param['description']} |"


def _type(schema: dict[str, Any]) -> str:
    if schema["type"] == "array":
        return f"{_type(schema['items'])}, may be repeated"
    text = schema["type"]
    if "enum" in schema:
        text = " \\| ".join(f"`{value}`" for value in schema["enum"])
    elif "minimum" in schema:
        text += f" from {schema['minimum']} to {schema['maximum']}"
    default = schema.get("default")
    return text if default is None else f"{text}, default `{str(default).lower()}`"


def _schema(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        return f"`{schema['$ref'].rpartition('/')[2]}`"
    if schema.get("type") == "array":
        return f"list of {_schema(schema['items'])}"
    if "properties" in schema:
        required = schema.get("required", [])
        names = [f"`{name}`{'' if name in required else ' (optional)'}" for name in schema["properties"]]
        return "object with " + ", ".join(names)
    for word in ("oneOf", "anyOf"):
        if word in schema:
            return " or ".join(_schema(one) for one in schema[word])
    return str(schema.get("type", "any JSON"))


PAGES = {
    "config.md": config,
    "options-by-platform.md": options,
    "cli.md": cli,
    "rest.md": rest,
    "share-of-nni.md": share_of_nni.page,
    "request-sizes.md": request_sizes.page,
}


def main(arguments: Sequence[str]) -> int:
    stale = []
    DOCS.mkdir(parents=True, exist_ok=True)
    for name, make in PAGES.items():
        text = HEAD + make().rstrip() + "\n"
        path = DOCS / name
        if path.exists() and path.read_text("utf-8") == text:
            continue
        stale.append(name)
        if "--check" not in arguments:
            path.write_text(text, "utf-8")
    if stale and "--check" in arguments:
        sys.stderr.write(f"not up to date: {', '.join(stale)}; run `make docs`\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
