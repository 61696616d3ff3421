"""An experiment in words: what it is, how far it got, and what its trials wait for."""

from __future__ import annotations

from typing import Any

from nnilite._cli import screen


def show(profile: dict[str, Any]) -> None:
    """All that is to be said of an experiment, from the profile that its manager gives."""
    limits = profile["limits"]
    screen.show_facts(
        {
            "Experiment": profile["id"],
            "Name": profile["name"] or None,
            "State": profile["state"],
            "Reason": screen.brief(profile["reason"]) or None,
            "Trials": trials(profile),
            "At once": limits["trialConcurrency"],
            "Time": _of(screen.span(profile["duration"]), screen.span(limits["maxExperimentDuration"])),
            "Time of a trial": _of(None, screen.span(limits["maxTrialDuration"])),
            "Platform": ", ".join(profile["platforms"]),
            "Created": screen.moment(profile["created"]),
            "Ended": screen.moment(profile["ended"]),
            "Kept in": profile["directory"],
        }
    )
    screen.show_traceback(profile["reason"])
    show_waiting(profile)
    show_hosts(profile)
    show_best(profile)


def _of(value: str | None, limit: str | None) -> str | None:
    return " of at most ".join(part for part in (value, limit) if part) or None


def trials(profile: dict[str, Any]) -> str:
    """`12 of 30: 10 SUCCEEDED, 2 RUNNING`."""
    counts = profile["counts"]
    total, limit = sum(counts.values()), profile["limits"]["maxTrialNumber"]
    parts = ", ".join(f"{count} {state}" for state, count in counts.items() if count)
    return (f"{total} of {limit}" if limit else str(total)) + (f": {parts}" if parts else "")


def objectives(profile: dict[str, Any]) -> dict[str, str]:
    """Of a tuner with several objectives: their names and directions."""
    from nnilite.objectives import configured

    return configured(profile["config"].get("tuner", {}).get("classArgs"))


def show_best(profile: dict[str, Any]) -> None:
    """The best trial, its metric, and its parameters one a line."""
    best = profile["best"]
    if objectives(profile):
        print(f"Best: `nnictl trial ls {profile['id']} --front` lists the trials that no other one beats.")
        return
    if best is None and profile["counts"].get("SUCCEEDED"):
        print(f"Best: none; no trial has a number as its final result. `nnictl trial ls {profile['id']}` says why.")
        return
    if best is None:
        print("Best: no trial has reported a final metric yet.")
        return
    print(f"Best metric: {screen.metric(best['value'])} (trial {best['id']}, no. {best['sequence']})")
    print("Best parameters:")
    for line in parameter_lines(best["parameters"]):
        print(f"  {line}")


def parameter_lines(parameters: Any) -> list[str]:
    """Parameters one a line; the numbers whole, so that they can be used again."""
    if not isinstance(parameters, dict):
        return [_whole(parameters)]
    return [f"{screen.clean(name)}: {_whole(value)}" for name, value in parameters.items()]


def _whole(value: Any) -> str:
    import json

    return screen.clean(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


def show_waiting(profile: dict[str, Any]) -> None:
    """Every reason for which trials wait."""
    for line in waiting(profile):
        print(line)


def waiting(profile: dict[str, Any]) -> list[str]:
    """`2 trials wait: no GPU is free`, one line for each reason."""
    return list(waiting_by_reason(profile).values())


def waiting_by_reason(profile: dict[str, Any]) -> dict[str, str]:
    """The same by the reason as the manager words it."""
    return {
        one["reason"]: f"{one['count']} {'trial waits' if one['count'] == 1 else 'trials wait'}"
        + (f": {screen.brief(one['reason'])}" if one["reason"] else "")
        for one in profile["waiting"]
    }


def show_hosts(profile: dict[str, Any]) -> None:
    """The machines that trials run on, where the platform knows them."""
    if profile["hosts"]:
        rows = [(host["name"], host["state"], host["running"], host["reason"]) for host in profile["hosts"]]
        screen.show_table(("HOST", "STATE", "TRIALS", "LAST ERROR"), rows, "")


def status(profile: dict[str, Any]) -> dict[str, Any]:
    """The state for scripts: NNI's `status` and `errors`, and what else decides how it goes on."""
    failed = profile["state"] == "ERROR" and profile["reason"]
    return {
        "status": profile["state"],
        "errors": [profile["reason"]] if failed else [],
        "reason": profile["reason"],
        "counts": profile["counts"],
        "waiting": profile["waiting"],
    }


def show_status(profile: dict[str, Any]) -> None:
    """The state in a few lines."""
    reason = f" ({screen.brief(profile['reason'])})" if profile["reason"] else ""
    print(f"{profile['state']}{reason}; trials: {trials(profile)}")
    show_waiting(profile)
