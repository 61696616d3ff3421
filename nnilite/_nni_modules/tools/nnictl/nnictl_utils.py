"""`nni.tools.nnictl.nnictl_utils`: stops experiments, and lists them and their trials."""

from __future__ import annotations

import json
from typing import Any

from nnilite._experiments import registry
from nnilite._running import managers

from .command_calls import answer_of, carry_out, option
from .config_utils import Config, Experiments
from .launcher import create_experiment, resume_experiment, view_experiment

__path__: list[str] = []  # see `nni._Elsewhere`

__all__ = [
    "Config",
    "Experiments",
    "create_experiment",
    "experiment_list",
    "experiment_status",
    "export_trials_data",
    "get_config",
    "get_config_filename",
    "get_experiment_port",
    "list_experiment",
    "resume_experiment",
    "stop_experiment",
    "trial_kill",
    "trial_ls",
    "view_experiment",
    "webui_url",
]


def get_config_filename(args: Any) -> str:
    """Return the id of the experiment that is meant: `args.id`, or the only one that runs."""
    return str(answer_of("experiment", "show", args.id)["id"])


def get_experiment_port(args: Any) -> int | None:
    """Return the port of the experiment."""
    port = Experiments().get_all_experiments().get(get_config_filename(args), {}).get("port")
    return port if isinstance(port, int) else None


def stop_experiment(args: Any) -> None:
    """Stop the experiment `args.id`, the one at `args.port`, or all of them with `args.all`."""
    carry_out("stop", args.id, *option(args, "port", "-p"), *option(args, "all", "--all"))


def trial_ls(args: Any) -> list[Any]:
    """Print the trials as JSON, and return them as NNI's REST interface has them: all, or the best or worst few."""
    chosen = answer_of("trial", "ls", args.id, *option(args, "head", "--head"), *option(args, "tail", "--tail"))
    with managers.connect(registry.find(get_config_filename(args), read_only=True)) as manager:
        known = {one["trialJobId"]: one for one in manager.ask("GET", "/nni/trial-jobs")}
    found = [known[one["id"]] for one in chosen]
    print(json.dumps(found, indent=4, sort_keys=True))
    return found


def trial_kill(args: Any) -> bool:
    """End the trial `args.trial_id`."""
    carry_out("trial", "kill", args.id, "-T", args.trial_id)
    return True


def list_experiment(args: Any) -> Any:
    """Print the profile of an experiment as JSON, and return it."""
    found = answer_of("experiment", "show", args.id)
    print(json.dumps(found, indent=4, sort_keys=True))
    return found


def experiment_status(args: Any) -> None:
    """Print the state of an experiment as JSON."""
    carry_out("experiment", "status", args.id, "--json")


def experiment_list(args: Any) -> None:
    """Print the experiments that run, or all of them with `args.all`."""
    carry_out("experiment", "list", *option(args, "all", "--all"))


def export_trials_data(args: Any) -> None:
    """Write parameters and results to the file `args.path`, as `args.type` says: json or csv."""
    words = [*option(args, "type", "-t"), *option(args, "path", "-f"), *option(args, "intermediate", "-i")]
    carry_out("experiment", "export", args.id, *words)


def get_config(args: Any) -> None:
    """Print the configuration of an experiment."""
    carry_out("config", "show", args.id)


def webui_url(args: Any) -> None:
    """Print the address of an experiment's page."""
    carry_out("webui", "url", args.id)
