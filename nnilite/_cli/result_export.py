"""Exports the results of an experiment in NNI's formats, so that they can be imported into another one.

JSON: a list of `{"parameter": {...}, "value": ..., "trialJobId": ...}`. CSV: a column for each parameter (nested ones
joined by dots), `trialJobId`, `reward` (the number that counts), and one for each further key of the metrics. With
intermediate results both have `intermediate`, the list of them; if any have been written, both have `tags` and `note`,
and `violates` if results break result constraints;
if trials have set attributes, JSON has `attributes`, and CSV a column `attribute.NAME` for each.
Only trials that succeeded with a metric are in it, and of Microsoft NNI's only those whose parameters are known. With
`--all` the others that have ended are in it, too, with their `state`: those that were stopped early with their latest
result, from which the tuner has learned, the rest without a value.
"""

from __future__ import annotations

import csv
import json
import pickle
import secrets
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from nnilite._cli.nnictl import warn
from nnilite._cli.progress_line import Work
from nnilite._cli.terminal_output import SupportsWrite, guard_terminal
from nnilite._experiments.nni_folders import is_uncertain
from nnilite._running.manager_client import Client
from nnilite._running.manager_connection import replace_infinities, write_strict_json
from nnilite._running.reading import read_intermediate_results
from nnilite.errors import ConfigError, NniliteError, explain_os_error
from nnilite.records.dotted import flatten
from nnilite.units import format_csv_text

Row = dict[str, Any]
_OPTIONAL = ("violates", "tags", "note")
_FOREIGN = (
    ".xlsx",
    ".xls",
    ".ods",
    ".parquet",
    ".feather",
    ".pkl",
    ".pickle",
    ".db",
    ".sqlite",
    ".h5",
    ".html",
    ".tsv",
)
_OPEN = ("WAITING", "RUNNING", "UNKNOWN")


def export(
    manager: Client, form: str, target: Path | None, work: Work, *, intermediate: bool, every: bool = False
) -> int:
    """Write all results to `target` or standard output. Return their number. The file is whole or not written.

    The trials are counted in `work`. With `every`, all trials that have ended are written.
    """
    write = _write_csv if form == "csv" else _write_json
    rows = results(manager, work, intermediate, every)
    if target is None:
        return write(rows, guard_terminal(sys.stdout), intermediate)
    if target.suffix.lower() in _FOREIGN:
        raise ConfigError(
            f"--filename {target}: only CSV and JSON can be written, no {target.suffix}; give the file the ending .csv"
        )
    draft = target.parent / f".{secrets.token_hex(8)}.new"
    try:
        if target.is_dir() or not target.parent.is_dir():
            what = "is a folder" if target.is_dir() else "its folder does not exist"
            raise ConfigError(f"--filename {target}: {what}")
        with draft.open("w", encoding="utf-8", newline="") as file:
            count = write(rows, file, intermediate)
        draft.replace(target)
    except OSError as error:
        reason = explain_os_error(OSError(error.errno, error.strerror or str(error)))  # without the name of the draft
        raise NniliteError(f"--filename {target}: cannot be written: {reason}") from error
    finally:
        draft.unlink(missing_ok=True)
    return count


def results(manager: Client, work: Work, intermediate: bool, every: bool = False) -> Iterator[Row]:
    """Yield the results in the order of trials. With `every`, all trials that have ended are among them."""
    counts = manager.profile()["counts"]
    states = [state for state in counts if state not in _OPEN] if every else ["SUCCEEDED"]
    reported = read_intermediate_results(manager) if intermediate else {}
    work.expect(sum(counts.get(state, 0) for state in states))
    for trial in manager.trials(states=states) if states else ():
        work.advance()
        if is_uncertain(trial["reason"]) or (trial["value"] is None and not every):
            continue
        value = trial.get("latest") if trial["state"] == "EARLY_STOPPED" else None
        value = trial["value"] if trial["value"] is not None else value
        row = {"parameter": trial["parameters"], "value": value, "trialJobId": trial["id"]}
        row |= {"state": trial["state"]} if every else {}
        row |= {name: trial[name] for name in (*_OPTIONAL, "attributes") if trial.get(name)}
        if intermediate:
            row["intermediate"] = reported.get((trial["id"], trial["attempt"]), [])
        yield row


def warn_of_uncertain(manager: Client) -> None:
    """Warn of succeeded trials of Microsoft NNI that are left out."""
    found = [trial["id"] for trial in manager.trials(states=["SUCCEEDED"]) if is_uncertain(trial["reason"])]
    if found:
        warn(f"NNI mixed up the parameters of {len(found)} trials, which are left out: {', '.join(found[:10])}")


def _write_json(rows: Iterable[Row], file: SupportsWrite, _: bool) -> int:
    count = 0
    file.write("[")
    for count, row in enumerate(rows, 1):
        file.write(",\n" if count > 1 else "\n")
        file.write(write_strict_json(row))
    file.write("\n]\n")
    return count


def _write_csv(rows: Iterable[Row], file: SupportsWrite, intermediate: bool) -> int:
    """Write CSV: the columns must be known first, so the rows wait in a temporary file, as they may be very many."""
    count, filled = 0, dict.fromkeys(_OPTIONAL, False)
    with tempfile.TemporaryFile() as kept:

        def keep(row: Row) -> Row:
            nonlocal count
            count += 1
            for name in _OPTIONAL:
                filled[name] |= name in row
            # pickle is safe here: only this process writes and reads the file.
            pickle.dump(row, kept, pickle.HIGHEST_PROTOCOL)
            return row

        columns = columns_of(map(keep, rows))
        if intermediate:
            columns.append("intermediate")
        # Each cell is also under its full name, which has a column only if the short name is used twice.
        writer = csv.DictWriter(file, columns, extrasaction="ignore")
        writer.writerow({name: format_csv_text(name) for name in columns})
        kept.seek(0)
        names = [name for name, is_there in filled.items() if is_there]
        writer.writerows(cells(pickle.load(kept), names) for _ in range(count))
        return count


def columns_of(rows: Iterable[Row]) -> list[str]:
    """Return the columns: parameters in the order of their first occurrence, then the trial and its metrics."""
    parameters: dict[str, None] = {}
    metrics: dict[str, None] = {}
    optional: dict[str, None] = {}
    attributes: dict[str, None] = {}
    states: dict[str, None] = {}
    for row in rows:
        states.update({"state": None} if "state" in row else {})
        optional.update(dict.fromkeys(name for name in _OPTIONAL if name in row))
        parameters.update(dict.fromkeys(dict(flatten(row["parameter"]))))
        metrics.update(dict.fromkeys(_metrics(row["value"])))
        attributes.update(dict.fromkeys(_attributes(row)))
    fixed = ["trialJobId", *states, "reward", *optional]
    return [
        *_disambiguate(parameters, fixed, "parameter"),
        *fixed,
        *_disambiguate(metrics, [*fixed, *parameters], "metric"),
        *attributes,
    ]


def cells(row: Row, optional: Iterable[str] = ()) -> dict[str, Any]:
    """Return one row of the CSV file by column name; names that are used twice also appear in full.

    `optional`: which of `violates`, `tags` and `note` have a column.
    """
    parameters, metrics = dict(flatten(row["parameter"])), _metrics(row["value"])
    full = {f"parameter.{name}": value for name, value in parameters.items()}
    full |= {f"metric.{name}": value for name, value in metrics.items()}
    reward = row["value"].get("default") if isinstance(row["value"], dict) else row["value"]
    found = {**full, **metrics, **parameters, **_attributes(row), "trialJobId": row["trialJobId"], "reward": reward}
    if "state" in row:
        found["state"] = row["state"]
    if "intermediate" in row:
        found["intermediate"] = row["intermediate"]
    texts = {**dict.fromkeys(_OPTIONAL, ""), **row, "tags": ", ".join(row.get("tags", []))}
    return {name: _cell(value) for name, value in (found | {name: texts[name] for name in optional}).items()}


def _disambiguate(names: Iterable[str], taken: Iterable[str], kind: str) -> list[str]:
    occupied = set(taken)
    return [f"{kind}.{name}" if name in occupied else name for name in names]


def _attributes(row: Row) -> Row:
    return {f"attribute.{name}": value for name, value in row.get("attributes", {}).items()}


def _metrics(value: Any) -> Row:
    return {name: part for name, part in value.items() if name != "default"} if isinstance(value, dict) else {}


def _cell(value: Any) -> Any:
    if isinstance(value, str):
        return format_csv_text(value)
    return value if isinstance(value, (float, int)) or value is None else json.dumps(replace_infinities(value))
