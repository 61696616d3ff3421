"""Shows an experiment in words: what it is, how far it has come, and why its trials wait."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from nnilite._cli import screen
from nnilite._running import final_delivery
from nnilite.units import format_size

_WANTS_INTEGERS = re.compile(
    r"'float' object cannot be interpreted as an integer|non-int of type 'float'|indices must be integers|"
    r"(?:must be|should be|expected) (?:a positive |an? )?(?:int|integer)\b.{0,200}(?:float|\.0)|__index__"
)
"""What Python and libraries say where a number must be whole."""


def show(profile: dict[str, Any]) -> None:
    """Print all about an experiment, from its manager's profile."""
    limits = profile["limits"]
    screen.show_facts(
        {
            "Experiment": profile["id"],
            "Name": profile["name"] or None,
            "State": profile["state"],
            "Reason": screen.brief(profile["reason"]) or None,
            "Trials": trials(profile),
            "At once": limits["trialConcurrency"],
            "Time": _join_limit(screen.span(profile["duration"]), screen.span(limits["maxExperimentDuration"])),
            "Time of a trial": _join_limit(None, screen.span(limits["maxTrialDuration"])),
            "Cost": _join_limit(screen.money(profile.get("spent")), screen.money(limits.get("maxCost"))),
            "Stops at": limits.get("stopAtValue"),
            "Slots shared": limits.get("maxSlots"),
            "Priority": limits.get("priority"),
            "Platform": ", ".join(profile["platforms"]),
            "Tuner": profile.get("tunerChoice") or None,
            "Created": screen.moment(profile["created"]),
            "Ended": screen.moment(profile["ended"]),
            "Kept in": profile["directory"],
        }
    )
    screen.show_traceback(profile["reason"])
    show_waiting(profile)
    show_undelivered(profile)
    show_services(profile)
    show_hosts(profile)
    show_notices(profile)
    show_best(profile)


def _join_limit(value: str | None, limit: str | None) -> str | None:
    return " of at most ".join(part for part in (value, limit) if part) or None


def trials(profile: dict[str, Any]) -> str:
    """Return the counts of trials: `12 of 30: 10 SUCCEEDED, 2 RUNNING`."""
    counts = profile["counts"]
    total, limit = sum(counts.values()), profile["limits"]["maxTrialNumber"]
    parts = ", ".join(f"{count} {state}" for state, count in counts.items() if count)
    return (f"{total} of {limit}" if limit else str(total)) + (f": {parts}" if parts else "")


def have_none_succeeded(profile: dict[str, Any]) -> bool:
    """Return whether trials have failed, and none has come to a result."""
    counts = profile["counts"]
    return bool(counts.get("FAILED")) and not (counts.get("SUCCEEDED") or counts.get("EARLY_STOPPED"))


def has_several_objectives(profile: dict[str, Any]) -> bool:
    """Return whether there is a front instead of one best trial."""
    return list(profile["objectives"]) != ["default"]


def show_metric(value: Any, latest: Any) -> str:
    """Return the final result or, with a mark, the latest intermediate one."""
    return screen.metric(value) if value is not None or latest is None else f"{screen.metric(latest)} (latest)"


def find_latest(trial: dict[str, Any], metrics: Iterable[dict[str, Any]]) -> Any:
    """Return what the present attempt has reported last, or None; what a lost one has says nothing of it."""
    return next((one["value"] for one in reversed(list(metrics)) if one["attempt"] == trial["attempt"]), None)


def show_best(profile: dict[str, Any]) -> None:
    """Print the best trial, its metric, and its parameters one per line."""
    best = profile["best"]
    if has_several_objectives(profile):
        goals = ", ".join(f"{direction} {name}" for name, direction in profile["objectives"].items())
        print(f"Objectives: {screen.clean(goals)}")
        print(f"Best: `nnictl trial ls {profile['id']} --front` lists the trials that no other one beats.")
        return
    limits = profile["config"].get("resultConstraints")
    if best is None and limits and profile["counts"].get("SUCCEEDED"):
        print(f"Best: none; no succeeded trial satisfies {screen.clean(' and '.join(limits))}.")
        print(f"`nnictl trial ls {profile['id']}` lists what each one violates.")
        return
    if best is None and profile["counts"].get("SUCCEEDED"):
        print(f"Best: none; no trial has a number as its final result. `nnictl trial ls {profile['id']}` says why.")
        return
    if best is None and profile["state"] in ("DONE", "ERROR") and have_none_succeeded(profile):
        print("Best: none; no trial has succeeded.")
        return
    if best is None:
        print("Best: no trial has reported a final metric yet.")
        return
    print(f"Best metric: {screen.metric(best['value'])} (trial {best['id']}, no. {best['sequence']})")
    print("Best parameters:")
    for line in list_parameters(best["parameters"]):
        print(f"  {line}")


def show_notices(profile: dict[str, Any]) -> None:
    """Print what a person should know about the results."""
    # A manager of an earlier version, which still runs, does not send them.
    for sentence in profile.get("notices", []):
        print(f"Note: {screen.clean(sentence)}.")


def list_parameters(parameters: Any) -> list[str]:
    """Return parameters, one per line. Numbers have all digits, so that they can be used again."""
    if not isinstance(parameters, dict):
        return [_whole(parameters)]
    return [f"{screen.clean(name)}: {_whole(value)}" for name, value in parameters.items()]


def _whole(value: Any) -> str:
    import json

    if isinstance(value, float):
        return screen.exact(value)
    return screen.clean(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


def show_waiting(profile: dict[str, Any]) -> None:
    """Print all reasons for which trials wait."""
    for line in waiting(profile):
        print(line)


def waiting(profile: dict[str, Any]) -> list[str]:
    """Return `2 trials wait: no GPU is free`, one line for each reason."""
    return list(explain_waiting(profile).values())


def explain_waiting(profile: dict[str, Any]) -> dict[str, str]:
    """Return the same sentences, by the reason in the manager's words."""
    return {
        one["reason"]: f"{one['count']} {'trial waits' if one['count'] == 1 else 'trials wait'}"
        + (f": {screen.brief(one['reason'])}" if one["reason"] else "")
        for one in profile["waiting"]
    }


def show_undelivered(profile: dict[str, Any]) -> None:
    """Print what trackers and webhooks have not got yet."""
    owed = final_delivery.find_undelivered(profile)
    if owed:
        print(f"Not sent yet: {final_delivery.describe_undelivered(owed)}")


def service_troubles(profile: dict[str, Any]) -> dict[str, str]:
    """Return `the training service slurm fails: ...` for each that is set aside, by its name.

    What trials wait for already says so is left out.
    """
    waits = [one["reason"] for one in profile["waiting"]]
    # A manager of an earlier version, which still runs, does not send them.
    services = profile.get("services", [])
    found = [one for one in services if one["reason"] and not any(one["reason"] in reason for reason in waits)]
    return {one["name"]: f"the training service {one['name']} fails: {screen.brief(one['reason'])}" for one in found}


def show_services(profile: dict[str, Any]) -> None:
    """Print the training services, if there are several or one is set aside: what each has, costs and has cost."""
    # A manager of an earlier version, which still runs, does not send them.
    services = profile.get("services", [])
    if len(services) < 2 and not any(one["reason"] or one["cost"] is not None for one in services):
        return
    rows = [
        (
            one["name"],
            one["state"],
            f"{one['trials']} of {one['slots']}" if one["slots"] else one["trials"],
            screen.money(one["cost"]),
            screen.money(one["spent"]),
            screen.brief(one["reason"]),
        )
        for one in services
    ]
    screen.show_table(("SERVICE", "STATE", "TRIALS", "COST/H", "SPENT", "REASON"), rows, "")


def show_hosts(profile: dict[str, Any]) -> None:
    """Print the machines on which trials run, if the platform knows them, and how busy a pool of workers is."""
    hosts = profile["hosts"]
    if hosts:
        rows = [
            (one["name"], one["state"], one["running"], _load(one["details"]), _use(one["details"]), one["reason"])
            for one in hosts
        ]
        screen.show_table(("HOST", "STATE", "TRIALS", "POOL", "IN USE", "LAST ERROR"), rows, "")
    for line in notes(profile):
        print(line)


def notes(profile: dict[str, Any]) -> list[str]:
    """Return `box: trials give way to other programs ...`, one line for each host that has something to report."""
    by_host = {one["name"]: one["details"]["note"] for one in profile["hosts"] if one["details"].get("note")}
    return [f"{name}: {screen.brief(note)}" for name, note in by_host.items()]


def _load(details: dict[str, Any]) -> str:
    """Return how busy a worker of a pool is and how many trials are waiting for one, or "" for other hosts."""
    if "processors" not in details:
        return ""
    return f"{details.get('busy')} of {details['processors']} processors busy, {details.get('queue')} in the queue"


def _use(details: dict[str, Any]) -> str:
    """Return how much of the host's processors and memory is in use, as far as it has reported."""
    parts = [f"CPU {details['cpuPercent']:.0f} %"] if "cpuPercent" in details else []
    if "memoryUsed" in details:
        parts.append(f"memory {format_size(details['memoryUsed'])} of {format_size(details['memoryTotal'])}")
    return ", ".join(parts + _gpus(details.get("gpuUse", [])))


def _gpus(gpus: Iterable[dict[str, Any]]) -> list[str]:
    return [f"GPU {gpu['index']} {gpu['percent']} %" for gpu in gpus if gpu["percent"] is not None]


def trial_usage(use: dict[str, Any] | None) -> str:
    """Return what the processes of a running trial use; "" where nothing is known."""
    if use is None:
        return ""
    parts = [f"{use['processors']:.2f} processors", f"memory {format_size(use['memory'])}"]
    return ", ".join(parts + _gpus(use["gpus"]))


def status(profile: dict[str, Any]) -> dict[str, Any]:
    """Return the state for scripts: NNI's `status` and `errors`, and other facts about its progress."""
    failed = profile["state"] == "ERROR" and profile["reason"]
    return {
        "status": profile["state"],
        "errors": [profile["reason"]] if failed else [],
        "reason": profile["reason"],
        "counts": profile["counts"],
        "waiting": profile["waiting"],
        "owed": final_delivery.find_undelivered(profile),
        "services": profile.get("services", []),
        "notes": notes(profile),
        "notices": profile.get("notices", []),
    }


def show_status(profile: dict[str, Any]) -> None:
    """Print the state in a few lines."""
    reason = f" ({screen.brief(profile['reason'])})" if profile["reason"] else ""
    print(f"{profile['state']}{reason}; trials: {trials(profile)}")
    show_waiting(profile)
    show_undelivered(profile)
    show_notices(profile)
    for line in [*service_troubles(profile).values(), *notes(profile)]:
        print(line)


def cure_floats(trial: dict[str, Any]) -> Iterator[str]:
    """Yield what to write where a trial that wants integers got 16.0, which is what NNI's quniform gives."""
    parameters = trial["parameters"] if isinstance(trial["parameters"], dict) else {}
    whole = [name for name, value in parameters.items() if isinstance(value, float) and value.is_integer()]
    if whole and _WANTS_INTEGERS.search(trial["reason"]):
        name = screen.clean(whole[0])
        given = parameters[whole[0]]
        cure = "write int(...) in the program, or qrandint in the search space"
        yield f"{name} is {given}, a float, as quniform gives it: {cure}."
