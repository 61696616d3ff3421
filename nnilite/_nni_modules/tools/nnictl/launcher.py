"""`nni.tools.nnictl.launcher`: creates, resumes and views experiments."""

from __future__ import annotations

from typing import Any

from .command_calls import carry_out, option

__path__: list[str] = []  # see `nni._Elsewhere`

__all__ = ["create_experiment", "resume_experiment", "view_experiment"]


def create_experiment(args: Any) -> None:
    """Create an experiment from the file `args.config`."""
    carry_out("create", "-c", args.config, *_options(args))


def resume_experiment(args: Any) -> None:
    """Resume the experiment `args.id`."""
    carry_out("resume", args.id, *option(args, "experiment_dir", "-e"), *_options(args))


def view_experiment(args: Any) -> None:
    """View the experiment `args.id`."""
    port = option(args, "port", "-p")
    carry_out("view", args.id, *option(args, "experiment_dir", "-e"), *port)


def _options(args: Any) -> list[object]:
    found = [*option(args, "port", "-p"), *option(args, "url_prefix", "-u"), *option(args, "foreground", "-f")]
    return [*found, *option(args, "debug", "--debug")]
