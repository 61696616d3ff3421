"""`nnictl trial reproduce`: puts a trial's code and parameters into a folder, with a script that runs it."""

from __future__ import annotations

import argparse
import json
import math
import os
import shlex
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nnilite import codedir
from nnilite._cli import access, screen
from nnilite._experiments.provenance_reading import read_starts
from nnilite._experiments.registry import RegistryEntry
from nnilite._keeper import sdk_sources
from nnilite._keeper.working_copy import CodeError, unpack
from nnilite._manager.provenance_recording import hash_of
from nnilite.config import CheckedConfig, load_stored
from nnilite.errors import ConfigError, NniliteError

_NAMED = 5
_SCRIPT = """#!/bin/sh
# Runs the command of trial {trial} of experiment {experiment} again. Results go to trial/.nni/metrics beside this file.
here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd) || exit
export NNI_PLATFORM=local NNI_EXP_ID={experiment} NNI_TRIAL_JOB_ID={trial} NNI_TRIAL_SEQ_ID={sequence}
export NNI_SYS_DIR="$here/trial" NNI_OUTPUT_DIR="$here/trial" NNI_CODE_DIR="$here/code"
export PYTHONPATH="$here/sdk${{PYTHONPATH:+:$PYTHONPATH}}"
export NNILITE_METRICS="$here/trial/.nni/metrics" NNILITE_CHECKPOINT_DIR="$here/trial/checkpoint"
cd "$here/code" && exec bash -c {command}
"""


def reproduce(options: argparse.Namespace) -> None:
    """Write the folder of a trial. Raises: NniliteError; then nothing of it is left."""
    entry = access.find(options, read_only=True)
    with access.reading(options) as manager:
        trial = manager.trial(options.trial)
    config = load_stored(entry.directory, paths=False)
    target = (options.folder or Path(f"{entry.id}-{trial['sequence']}")).absolute()
    if os.path.lexists(target):  # also a link, which leads to where another person has chosen
        raise ConfigError(f"--in {target}: exists already; give a folder that does not")
    try:
        changed = _write(entry, config, trial, target)
    except BaseException as error:
        shutil.rmtree(target, ignore_errors=True)
        if not isinstance(error, (OSError, CodeError)):
            raise
        why = error.strerror if isinstance(error, OSError) and error.strerror else error
        sentence = f"--in {target}: the trial cannot be reproduced there: {why}; name another folder"
        raise NniliteError(sentence) from error
    if options.json:
        screen.show_json({"folder": str(target), "command": f"sh {target / 'run.sh'}", "changed": changed})
        return
    if changed:
        from nnilite._cli.nnictl import warn

        more = f" and {len(changed) - _NAMED} more" if len(changed) > _NAMED else ""
        warn(f"the code is not what ran: {', '.join(changed[:_NAMED])}{more} differ; {_cure(entry, trial)}")
    print(f"Trial {trial['id']} (no. {trial['sequence']}) is in {target}. Run it with")
    print(f"  sh {shlex.quote(str(target / 'run.sh'))}")


def _write(entry: RegistryEntry, config: CheckedConfig, trial: Mapping[str, Any], target: Path) -> list[str]:
    """Write code, parameters and command. Return the files of the code that are not as they were when it ran."""
    code = target / "code"
    (target / "trial" / ".nni").mkdir(parents=True, mode=0o700)
    # It often lies in the code directory, and would be part of the code from now on: of the next such folder, too.
    (target / ".nniignore").write_text("*\n", "ascii")
    # Each start of a manager may have packed anew; the last package is what later trials got.
    packages = sorted((entry.directory / "code").glob("*.tar.gz"), key=lambda path: path.stat().st_mtime)
    if packages:
        unpack(str(packages[-1]), str(code))
    else:
        _copy(Path(config.trial_code_directory), code)
    for name, content in sdk_sources().items():  # what a keeper gives its trials, `import nni` among it
        place = target / "sdk" / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
    record = {
        "parameter_id": trial.get("parameterId"),
        "parameter_source": trial["source"],
        "parameters": trial["parameters"],
        "parameter_index": 0,
    }
    (target / "trial" / "parameter.cfg").write_text(json.dumps(record), "utf-8")
    command = shlex.quote(_command(config, str(trial.get("service") or "")))
    names = {"trial": trial["id"], "experiment": entry.id, "sequence": trial["sequence"], "command": command}
    (target / "run.sh").write_text(_SCRIPT.format(**names), "utf-8")
    return _changed(_recorded(entry, trial), code)


def _command(config: CheckedConfig, service: str) -> str:
    names = [name for name, _, _ in config.services]
    return config.settings(service if service in names else names[0]).trial_command or config.trial_command


def _copy(source: Path, code: Path) -> None:
    """Copy the files that would be sent to a worker. Raises: OSError, CodeDirError."""
    if not source.is_dir():
        raise ConfigError(f"the code directory {str(source)!r} does not exist any more, and no package of it is kept")
    codedir.list_files(source, codedir.PackageLimits(max_bytes=1 << 40, max_files=1_000_000)).copy(code)


def _recorded(entry: RegistryEntry, trial: Mapping[str, Any]) -> dict[str, Any]:
    """Return what was recorded at the last start before a trial began; nothing where nothing was."""
    starts: list[dict[str, Any]] = read_starts(entry.directory)
    began = trial.get("started") or math.inf
    return next((one for one in reversed(starts) if one.get("time", 0) <= began), starts[0] if starts else {})


def _changed(start: Mapping[str, Any], code: Path) -> list[str]:
    recorded = (start.get("code") or {}).get("files")
    if not isinstance(recorded, dict):
        return []
    return [path for path, digest in recorded.items() if _hash_or_none(code / path) != digest]


def _hash_or_none(path: Path) -> str | None:
    return hash_of(path) if path.is_file() else None


def _cure(entry: RegistryEntry, trial: Mapping[str, Any]) -> str:
    git = _recorded(entry, trial).get("git")
    commit = git.get("commit") if isinstance(git, dict) else None
    checkout = f"`git checkout {commit}` restores that commit, and" if commit else ""
    return f"{checkout} `nnictl experiment provenance {entry.id} --json` has the hashes and the difference".strip()
