"""Find out why experiments do not work here.

Without a file, it checks this machine: Python, port, disk, clock, limits, GPUs and proxies. With a configuration file,
it also checks the file, tuner, code and search space, and runs a real trial on each platform. This tests credentials,
host keys, rights, the image or Python there, and the way back. The trial runs a command of the doctor or, with --run,
your own for some seconds. Each problem is shown with its cure. The exit code is 1 if there are problems.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nnilite._cli import access, arguments, screen
from nnilite._experiments import registry

if TYPE_CHECKING:
    from nnilite._doctor.finding import Finding
    from nnilite.config import CheckedConfig

TRIAL_TIMEOUT_S = 300.0
CHECK_TIMEOUT_S = 60.0
RUN_S = 60


def add(parser: argparse.ArgumentParser) -> None:
    arguments.add_config_arguments(parser)
    arguments.add_manager_arguments(parser)
    parser.add_argument("--no-trial", action="store_true", help="run no trial; ask the platforms only")
    parser.add_argument(
        "--run",
        type=arguments.positive,
        nargs="?",
        const=RUN_S,
        metavar="S",
        help=f"let that trial run your own command, for at most S seconds (default {RUN_S})",
    )
    parser.add_argument(
        "--timeout",
        type=arguments.positive,
        default=int(TRIAL_TIMEOUT_S),
        metavar="S",
        help=f"seconds to wait for the result of the trial on each platform (default {TRIAL_TIMEOUT_S:.0f})",
    )
    arguments.add_json_argument(parser)
    parser.set_defaults(command=doctor)


def doctor(options: argparse.Namespace) -> int:
    from nnilite._doctor.finding import Level

    options.config = arguments.choose_config(options)
    findings: list[Finding] = []
    for finding in _run_checks(options):
        findings.append(finding)
        if not options.json:
            _show(finding)
    faults = sum(finding.level is Level.FAULT for finding in findings)
    if options.json:
        listed: list[dict[str, Any]] = [dataclasses.asdict(finding) for finding in findings]
        screen.show_json({"faults": faults, "findings": listed})
    else:
        print(f"\n{faults} faults." if faults != 1 else "\n1 fault.")
    return 1 if faults else 0


def _run_checks(options: argparse.Namespace) -> Iterable[Finding]:
    from nnilite._doctor import setup, this_machine
    from nnilite._doctor.finding import Level

    found: list[Finding] = []
    config = setup.read_config(options.config, found) if options.config else None
    wanted, allowed = _count_local_gpus(config)
    folder = Path(config.experiment_working_directory) if config else registry.root()
    yield from this_machine.check_python()
    ports = list(this_machine.check_port(options.host, options.port))
    yield from ports
    yield from this_machine.check_disk(folder)
    yield from this_machine.check_clock(time.time())
    yield from this_machine.check_limits()
    yield from this_machine.check_gpus(wanted, allowed)
    yield from this_machine.check_proxies(os.environ)
    yield from found
    if config is not None:
        taken = any(finding.level is Level.FAULT for finding in ports)
        yield from _check_config(config, options, taken)


def _check_config(config: CheckedConfig, options: argparse.Namespace, taken: bool) -> Iterable[Finding]:
    from nnilite._doctor import platform_checks, rehearsal, setup
    from nnilite._manager import port_choice

    yield from setup.check_space(config)
    yield from setup.check_code(config)
    port = port_choice.FIRST if options.port is None else options.port
    asked = list(platform_checks.ask(config, options.host, port, CHECK_TIMEOUT_S))
    yield from asked
    if options.no_trial or any(finding.cure for finding in asked):
        return
    manager = access.read_manager_options(options)
    # Another program has the port; the rest can still be tried.
    manager = dataclasses.replace(manager, port=0) if taken else manager
    yield from rehearsal.rehearse(options.config, config, manager, options.timeout, options.run)


def _count_local_gpus(config: CheckedConfig | None) -> tuple[int, tuple[int, ...] | None]:
    """Return how many GPUs of this machine a trial needs, and which ones it may have."""
    if config is None:
        return 0, None
    for name, platform, section in config.services:
        if platform == "local":
            wanted = config.settings(name).gpus or 0
            allowed = getattr(section, "gpu_indices", None)
            return int(wanted), None if allowed is None else tuple(allowed)
    return 0, None


def _show(finding: Finding) -> None:
    print(f"{finding.level.value:8} {finding.check}: {screen.clean(finding.what)}")
    if finding.cure:
        print(f"         -> {screen.clean(finding.cure)}")
