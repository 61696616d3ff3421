"""nnictl: experiments from the command line.

`nnictl` imports only the module of the requested command. Each such module has `add(parser)`, which declares its
options and its function. Commands print through `screen`, speak to managers through
`nnilite._running.manager_client`, and raise errors, which `nnictl` turns into one sentence and an exit code.

nnictl          the command line as a whole: the list of commands, and the answer to errors
command_line    the parser, which says what is wrong with a command line and what would help
arguments       the arguments that several commands have
trial_names     the trials that a command is about, by id or number
trial_roles     the table of a trial's ranks or pods
access          finds the experiment that a command is about, and its manager
screen          prints tables on a terminal, plain lines into a pipe, or JSON
terminal_output  shows what a trial has printed without the trial controlling the terminal
progress_text   the progress of an experiment as text
summary         an experiment in words
foreground      shows the progress of an experiment until it is done
undelivered_warning  what trackers and webhooks have not got when an experiment ends
config_source   the files from which an experiment was created, and which of them have changed
dryrun          checks everything and shows what would be submitted, for `create --dry-run`
provenance      what ran in an experiment, and what differs from another one
replay          asks a new tuner for the proposals of an experiment again, and compares
reproduce       lays out a trial's code and parameters, to run it by hand
result_export   results of an experiment in NNI's shapes, to be imported into another one
archive         an experiment as one zip file
progress_line   shows how far a long work is
ctrl_c          makes one sentence and exit code 130 of Ctrl-C
unpack          loads a saved experiment from a zip file that anybody may have made
unpack_nni      the same for a zip file that NNI has written
archive_entries  the entries of both, which are checked before they are unpacked
remark_command  tags and a note for trials, for `trial remark`
again_command   runs the parameters of trials again, for `trial again`
trial_folders   compares the folders of trials with the database, for `verify`
drill_report    what a drill has cost, from attempts and metrics
drill_starts    the same of elastic trials, from the records of their ranks

create, resume, view, stop, update     the life of an experiment: one module for each command
experiment, trial, top, log, config    commands that show experiments and trials, and change some of them
algo, platform, webui                  what is installed, and where the web page is
ui                                     serves one page for all experiments
doctor                                 finds out why experiments do not work here
verify                                 recomputes whether a finished experiment is whole
drill                                  interrupts running trials as spot nodes do
tensorboard                            opens TensorBoard on an experiment
completion                             prints a script that completes commands in a shell
worker                                 offers this machine to a pool of workers
"""

from __future__ import annotations

import io
import os
import sys

from nnilite._side_processes.quick_end import run_program


def main() -> None:
    """Run the program `nnictl`."""
    run_program(_main)


def _main() -> int:
    from nnilite._cli import ctrl_c

    _have_streams()
    _write_all_characters()
    try:
        with ctrl_c.ImmediateExit():
            from nnilite._cli.nnictl import run
        code = run(sys.argv[1:])
        ctrl_c.ignore()
    except KeyboardInterrupt:
        ctrl_c.ignore()
        code = ctrl_c.tell("Interrupted.")
    return code


def _have_streams() -> None:
    """Replace closed standard streams: otherwise the next files that are opened would get their numbers."""
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if getattr(sys, name) is None:
            # The lowest free number is taken, which is this one, since those below are open by now.
            os.open(os.devnull, os.O_RDWR)
            setattr(sys, name, open(number, mode, encoding="utf-8"))  # noqa: PTH123, SIM115  it stays open


def _write_all_characters() -> None:
    """Write what the encoding of the output lacks as Python spells it: names may have any characters."""
    output = sys.stdout
    if isinstance(output, io.TextIOWrapper) and output.encoding.lower() != "utf-8":
        output.reconfigure(errors="backslashreplace")
