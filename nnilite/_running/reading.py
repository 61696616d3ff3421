"""Opens any experiment for reading: by its manager if it has one, else by its folder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from nnilite._experiments.registry import RegistryEntry
from nnilite._running import managers
from nnilite._running.manager_client import Client
from nnilite._running.manager_connection import ManagerError
from nnilite.records import Trial, TrialState


@contextmanager
def opened(entry: RegistryEntry, *, timeout_s: float = managers.ANSWER_TIMEOUT_S) -> Iterator[Client]:
    """Yield a client for reading. Raises: NniliteError if the manager does not answer, or the folder cannot be read."""
    if entry.alive:
        with managers.connect(entry, timeout_s=timeout_s) as found:
            yield found
        return
    from nnilite._running import offline

    with offline.opened(entry) as found:
        yield found


@contextmanager
def checking_answers(entry: RegistryEntry) -> Iterator[None]:
    """Read answers of an experiment's manager inside. Raises: ManagerError if they are not of the shape expected.

    The manager may be of another version, or another person's program, if the folder is theirs.
    """
    try:
        yield
    except (LookupError, TypeError, AttributeError, ValueError, ArithmeticError) as error:
        raise ManagerError(
            f"The manager of experiment {entry.id} gave an answer that this version does not understand."
        ) from error


def what_ran(client: Client, *, comparable: bool = False) -> dict[str, Any]:
    """Return what was recorded at the last start, and what trials ran with on their hosts.

    `start` is None where nothing is recorded. `comparable`: in the form in which experiments are compared.
    """
    answer: dict[str, Any] = client.ask("GET", "/provenance", {"comparable": str(comparable).lower()})
    answer.setdefault("workers", [])  # which an older manager does not send
    return answer


def read_intermediate_results(client: Client) -> dict[tuple[str, int], list[Any]]:
    """Return the intermediate results of each attempt, by its trial and number. Attempts without any are left out.

    They are asked for in pages: a request for each trial would take minutes where there are many.
    """
    found: dict[tuple[str, int], list[Any]] = {}
    for metric in client.metrics(kind="PERIODICAL"):
        found.setdefault((metric["trial"], metric["attempt"]), []).append(metric["value"])
    return found


def trial_of(one: Mapping[str, Any]) -> Trial:
    """Return the record of a trial that a manager has described."""
    return Trial(
        id=one["id"],
        sequence=one["sequence"],
        parameters=one["parameters"],
        parameter_id=one.get("parameterId"),
        source=one.get("source", "algorithm"),
        state=TrialState(one["state"]),
        reason=one["reason"],
        attempt=one["attempt"],
        created=one["created"],
        started=one["started"],
        ended=one["ended"],
        value=one["value"],
        service=one.get("service", ""),
        cost=one.get("cost"),
        attributes=one.get("attributes", {}),
        violates=one.get("violates", ""),
    )
