"""Check that a finished experiment is complete and consistent.

It changes nothing. It checks the database (numbers without gaps, states and results that agree, what the tuner
received), the experiment's own files and, for trials that ran on this machine, their parameters, reports and ends. The
exit code is 1 if anything is wrong; each place is listed.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from nnilite._cli import access, arguments, progress_line, screen
from nnilite._experiments.manager_state import ManagerState, read_manager
from nnilite.errors import Conflict

if TYPE_CHECKING:
    from nnilite._experiments.registry import RegistryEntry
    from nnilite._store.integrity import Defect


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", help="id of the experiment, or its first letters")
    arguments.add_json_argument(parser)
    parser.set_defaults(command=verify)


def verify(options: argparse.Namespace) -> int:
    entry = access.find(options)
    if entry.alive:
        raise Conflict(
            f"Experiment {entry.id} {entry.activity}; stop it before it is verified: `nnictl stop {entry.id}`."
        )
    with progress_line.shown("Checking", quiet=options.json):
        counts, findings = checked(entry)
    if options.json:
        screen.show_json({"id": entry.id, "checked": counts, "findings": [vars(finding) for finding in findings]})
    else:
        _show(entry, counts, findings)
    return 1 if findings else 0


def checked(entry: RegistryEntry) -> tuple[dict[str, int], list[Defect]]:
    """Check an experiment. Return how many things of each kind were compared, and the defects.

    Raises: NniliteError if nothing can be read.
    """
    from nnilite._cli.trial_folders import check_folders
    from nnilite._store.database_file import FILE_NAME
    from nnilite._store.integrity import Defect, IntegrityCheck
    from nnilite.config import load_stored
    from nnilite.errors import ConfigError, DamagedFile, UnreadableFile

    findings: list[Defect] = []
    folders = 0
    try:
        load_stored(entry.directory, paths=False)
        manager = read_manager(entry.directory)
    except (ConfigError, DamagedFile, UnreadableFile) as error:
        manager = ManagerState()
        findings.append(Defect("files", str(error)))
    with IntegrityCheck(entry.directory / FILE_NAME) as check:
        findings += check.findings(entry.id)
        # Without its rows, there is nothing to compare the folders with.
        if check.counts:
            final = ("DONE", "STOPPED", "ERROR")
            state = check.state()
            if manager.state in final and state in final and manager.state != state:
                findings.append(Defect("manager.json", f"it says {manager.state}, and the database {state}"))
            folders, found = check_folders(entry.directory, check)
            findings += found
    return {**check.counts, "folders": folders}, findings


def _show(entry: RegistryEntry, counts: dict[str, int], findings: list[Defect]) -> None:
    listed = ", ".join(screen.amount(count, kind) for kind, count in counts.items())
    print(f"Experiment {entry.id}: {listed} were compared.")
    screen.show_table(
        ("PLACE", "WHAT IS WRONG"),
        [(finding.place, finding.what) for finding in findings],
        "Everything is complete and consistent.",
    )
    if findings:
        print(
            "\nThis copy was changed by another program, or its disk has lost data: restore it from another copy "
            "(`nnictl experiment load`)."
        )
