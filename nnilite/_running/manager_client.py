"""A client of one manager's REST interface. It uses only the standard library, so that `nnictl` starts fast.

    with Client(url, token) as client:
        client.profile()["state"]

A client keeps its connection open, may be used by several threads and by signal handlers at once, and waits at most
`timeout_s` for each answer. Answers are the JSON of the REST interface (`docs/reference/rest.md`) as dicts, in which
metrics that are NaN, Infinity or -Infinity are floats again. Proxies are not used.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, TypeVar
from urllib.parse import quote, urlsplit

from nnilite._running.manager_connection import NUMBERS, ManagerConnection, ManagerError
from nnilite._running.timely_answer import PIECE_BYTES
from nnilite.errors import NotFound

log = logging.getLogger(__name__)

_T = TypeVar("_T")
_NUMBER = re.compile("#?[0-9]{1,9}")  # a trial's number; ids begin with a letter

PAGE = 1000
"""How many trials or metrics are asked for at once: the most that a manager answers."""

_TUNER_TIMEOUT_S = 150.0
"""How long a call waits for the start of a tuner that tries a search space."""


class Client(ManagerConnection):
    """Calls the manager at `url` (`http[s]://host:port[/prefix]`), with the experiment's token if it has one.

    `certificate`: a PEM file to trust for https, besides those that the system trusts; the host name is not compared
    with that in the manager's own certificate. Raises, in every method: Unreachable, NotFound, Conflict, ConfigError
    (the input was refused), ServiceError (try again later), ManagerError.
    """

    def __enter__(self) -> Client:
        return self

    # The experiment

    def version(self) -> dict[str, Any]:
        """Return the manager's version and the experiment's id."""
        answer: dict[str, Any] = self.ask("GET", "/version")
        return answer

    def profile(self) -> dict[str, Any]:
        """Return the experiment: id, state, reason, config, limits, counts, best, hosts, waiting, ..."""
        profile: dict[str, Any] = self.ask("GET", "/experiment")
        if profile.get("best"):
            profile["best"] = _trial(profile["best"])
        return profile

    def update(self, **changes: Any) -> dict[str, Any]:
        """Change trialConcurrency, maxTrialNumber, maxExperimentDuration, maxTrialDuration or searchSpace.

        The last may take a while, since a new tuner has to accept it first.
        """
        timeout_s = max(self._timeout_s, _TUNER_TIMEOUT_S) if "searchSpace" in changes else self._timeout_s
        with Client(self.url, timeout_s=timeout_s, **self._options) as patient:
            profile: dict[str, Any] = patient.ask("PATCH", "/experiment", body=changes)
        return profile

    def stop(self) -> None:
        """Ask the manager to stop the experiment and to end. Return before it has ended."""
        self.ask("POST", "/experiment/stop", body={})

    def resume(self) -> None:
        """Ask a viewer to become a manager, at the same address. Return before it has."""
        self.ask("POST", "/experiment/resume", body={})

    def sign_in_link(self) -> str:
        """Return the address of the web page with a key that signs in once, within ten minutes."""
        from nnilite._network.host_names import is_page_name

        parts = urlsplit(self.url)
        link = self.ask("POST", "/sign-in-links", body={})
        host, path = (link.get("host", ""), link.get("path")) if isinstance(link, dict) else ("", None)
        # A browser follows this link, so it must lead to the manager and nowhere else.
        if not ((host == "" or is_page_name(str(host))) and isinstance(path, str) and path.startswith("/")):
            raise ManagerError(f"{self.url} does not answer as a manager of nnilite does: it gave no link to its page.")
        # Managers of this version have a host name for each start, under which browsers open the page.
        netloc = f"{host}:{parts.port}" if host else parts.netloc
        return f"{parts.scheme}://{netloc}{path}"

    def export(self, form: str, write: Callable[[bytes], object]) -> None:
        """Hand all ended trials, as `json` or `csv`, to `write` piece by piece."""
        self.stream("/export", {"format": form}, write)

    def import_data(self, data: Sequence[Mapping[str, Any]]) -> tuple[int, int, str]:
        """Hand the tuner results from elsewhere, `{"parameter": ..., "value": ...}` each.

        Return how many were new, how many were known already, and a sentence on those that were changed or left out
        ("" if there are none).
        """
        answer = self.ask("POST", "/import", body=data)
        return int(answer["imported"]), int(answer.get("known", 0)), str(answer["warning"])

    # Trials

    def trials(
        self,
        *,
        states: Sequence[str] = (),
        tags: Sequence[str] = (),
        sort: str = "sequence",
        descending: bool = False,
        limit: int | None = None,
    ) -> Iterator[dict[str, Any]]:
        """Yield trials in the order of `sort` (sequence, value, started, ended, duration), read page by page.

        With `tags` only those that have all of them.
        """
        query = {"sort": sort, "descending": "true" if descending else "false", "state": list(states)}
        query |= {"tag": list(tags)} if tags else {}
        offset = 0
        while limit is None or offset < limit:
            count = PAGE if limit is None else min(PAGE, limit - offset)
            page = self.ask("GET", "/trials", {**query, "offset": offset, "limit": count})
            rows = page["trials"]
            yield from map(_trial, rows)
            offset += len(rows)
            if not rows or offset >= page["total"]:
                return

    def trial(self, trial: str) -> dict[str, Any]:
        """Return one trial, with its `attempts`."""
        return _trial(self.ask("GET", f"/trials/{_part(trial)}"))

    def trial_id(self, name: str) -> str:
        """Return the id of a trial that is given by its id or its number (`5` or `#5`). Raises: NotFound."""
        if not _NUMBER.fullmatch(name):
            return name
        number = int(name.lstrip("#"))
        page = self.ask("GET", "/trials", {"sort": "sequence", "descending": "false", "offset": number, "limit": 1})
        # An experiment that NNI has left may lack a number in between.
        for trial in chain(page["trials"], self.trials()):
            if trial["sequence"] == number:
                return str(trial["id"])
        raise NotFound(f"There is no trial with the number {number}.")

    def add_trial(self, parameters: Any) -> dict[str, Any]:
        """Put a trial with the user's own parameters into the queue."""
        return _trial(self.ask("POST", "/trials", body={"parameters": parameters}))

    def cancel(self, trial: str) -> dict[str, Any]:
        """Stop a waiting or running trial."""
        return _trial(self.ask("DELETE", f"/trials/{_part(trial)}"))

    def interrupt(self, trial: str) -> dict[str, Any]:
        """End the running attempt of a trial as the loss of its machine would, so that it is tried again."""
        return _trial(self.ask("POST", f"/trials/{_part(trial)}/interrupt", body={}))

    def scale(self, trial: str, workers: int) -> dict[str, Any]:
        """Change the number of workers of an elastic trial while it runs."""
        return _trial(self.ask("PUT", f"/trials/{_part(trial)}/workers", body={"workers": workers}))

    def rerun(self, *, ids: Sequence[str] = (), state: str | None = None) -> list[dict[str, Any]]:
        """Run ended trials again: those of `ids`, or all in a state. Return them as they are now."""
        answer = self.ask("POST", "/trials/rerun", body={"state": state} if state else {"ids": list(ids)})
        return [_trial(trial) for trial in answer["trials"]]

    def remarks(self, trial: str) -> dict[str, Any]:
        """Return what people have written about a trial: `tags`, `note`, and the `revision` to name with a change."""
        answer: dict[str, Any] = self.ask("GET", f"/trials/{_part(trial)}/remarks")
        return answer

    def remark(self, trial: str, *, tags: Sequence[str], note: str, revision: int) -> dict[str, Any]:
        """Replace the remarks of this revision. Raises: Conflict if they have been changed meanwhile."""
        body = {"tags": list(tags), "note": note, "revision": revision}
        answer: dict[str, Any] = self.ask("PUT", f"/trials/{_part(trial)}/remarks", body=body)
        return answer

    def metrics(self, trial: str | None = None, *, kind: str | None = None) -> Iterator[dict[str, Any]]:
        """Yield reported values, oldest first: of one trial or of all, of one kind (PERIODICAL, FINAL) or of both."""
        path = "/metrics" if trial is None else f"/trials/{_part(trial)}/metrics"
        after = 0
        while True:
            page = self.ask("GET", path, {"kind": kind, "after": after, "limit": PAGE})
            for metric in page["metrics"]:
                yield {**metric, "value": _numbers(metric["value"])}
            if len(page["metrics"]) < PAGE:
                return
            after = page["next"]

    # Files

    def output(
        self, trial: str, stream: str, offset: int = 0, *, attempt: int | None = None, limit: int = PIECE_BYTES
    ) -> tuple[bytes, int]:
        """Return a piece of a trial's stdout or stderr from byte `offset` (from the end if negative), and its end."""
        query = {"offset": offset, "limit": limit, "attempt": attempt}
        return self.piece(f"/trials/{_part(trial)}/output/{_part(stream)}", query)

    def log(self, name: str, offset: int = 0, *, limit: int = PIECE_BYTES) -> tuple[bytes, int]:
        """Return a piece of the log `name` from byte `offset` (from the end if negative), and its end.

        `name`: `manager` or `tuner`.
        """
        return self.piece(f"/logs/{_part(name)}", {"offset": offset, "limit": limit})

    def files(self, trial: str, *, fetch: bool = True) -> list[dict[str, Any]]:
        """Return the files of a trial: path (relative), size (bytes), modified, here (on the manager's machine).

        `fetch`: those on the machine of the latest attempt are listed, too.
        """
        query = {"fetch": "true" if fetch else "false"}
        found: list[dict[str, Any]] = self.ask("GET", f"/trials/{_part(trial)}/files", query)["files"]
        return found

    def fetch_files(self, trial: str) -> dict[str, Any]:
        """Have all files of the latest attempt copied to the manager's machine, and list what is there then.

        Return `files`, as above, `others`, which are links and the like, and `note`.
        """
        answer: dict[str, Any] = self.ask("POST", f"/trials/{_part(trial)}/files", body={})
        return answer

    def download(self, trial: str, path: str, write: Callable[[bytes], object], *, fetch: bool = True) -> None:
        """Hand one file of a trial, `path` as `files` gives it, to `write` piece by piece.

        `fetch`: it is copied to the manager's machine first, unless it is there.
        """
        query = {"fetch": "true" if fetch else "false"}
        self.stream(f"/trials/{_part(trial)}/files/{_quote(path, '/')}", query, write)

    # The wire


def _part(text: str) -> str:
    """Return one part of a path, escaped.

    A part of dots only would be read as a folder on the way to the manager.
    """
    if text in ("", ".", ".."):
        raise NotFound(f"There is no {text!r}.")
    return _quote(text, "")


def _quote(text: str, safe: str) -> str:
    """Return a text as a part of an address, which is always UTF-8. Raises: NotFound."""
    try:
        return quote(text, safe=safe)
    except UnicodeEncodeError:
        raise NotFound(f"{text!a} is not UTF-8, so nothing here can be asked for by that name.") from None


def _trial(data: dict[str, Any]) -> dict[str, Any]:
    return {**data, "value": _numbers(data.get("value"))}


def _numbers(value: Any) -> Any:
    """Return a metric as it was reported: JSON cannot carry NaN and infinities, so they travel as strings."""
    if isinstance(value, str):
        return NUMBERS.get(value, value)
    if isinstance(value, dict):
        return {key: _numbers(part) for key, part in value.items()}
    return value
