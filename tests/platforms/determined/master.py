"""The master's HTTP server. What its interface does not know fails the test, and is not answered quietly by a 404."""

from __future__ import annotations

import hashlib
import json
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from nnilite.testing.listener import PromptServer
from platforms.determined import answers, contract
from platforms.determined.cluster import DeterminedCluster, DeterminedExperiment, MasterRefusal

SALT = "GubPEmmotfiK9TMD6Zdw"
Query = dict[str, list[str]]


@dataclass
class Misbehavior:
    """How the next calls are answered instead: `times` of those whose method and path contain `what`."""

    what: str
    times: int
    status: int = 0  # 0: the connection is cut
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b'{"error": {"code": 14, "reason": "Unavailable", "error": "the database is away"}}'
    after: bool = False  # only after it has been done
    delay_s: float = 0.0


class Master:
    """Use as a context manager: in the end nothing outside of the interface may have come."""

    def __init__(self, folder: Path) -> None:
        self.cluster = DeterminedCluster(folder)
        self.faults: list[str] = []
        self.seen: list[str] = []
        self.misbehavior: list[Misbehavior] = []
        self._server = PromptServer(("127.0.0.1", 0), self._handler())
        self.cluster.address = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Master:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self.cluster.close()
        self._server.shutdown()
        self._server.server_close()
        assert not self.faults, self.faults

    @property
    def address(self) -> str:
        return self.cluster.address

    def misbehave(self, what: str, times: int, **how: Any) -> None:
        self.misbehavior.append(Misbehavior(what, times, **how))

    def _due(self, line: str, after: bool) -> Misbehavior | None:
        with self.cluster.lock:
            for one in self.misbehavior:
                if one.times and one.what in line and one.after == after:
                    one.times -= 1
                    return one
        return None

    # ------------------------------------------------------------ one request

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        master = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: object) -> None:
                pass

            def handle_one_request(self) -> None:
                try:
                    super().handle_one_request()
                except ConnectionError:
                    self.close_connection = True

            def answer(self) -> None:
                master._serve(self)

            do_GET = do_POST = do_PATCH = do_DELETE = do_PUT = answer

        return Handler

    def _serve(self, handler: Any) -> None:
        length = int(handler.headers.get("Content-Length") or 0)
        raw = handler.rfile.read(length)
        if len(raw) < length:
            raise ConnectionResetError("the client was killed in the middle of its request")
        line = f"{handler.command} {handler.path}"
        self.seen.append(line)
        due = self._due(line, after=False)
        if due is None:
            status, headers, body = self._done(handler, raw)
            due = self._due(line, after=True)
        if due is not None:
            threading.Event().wait(due.delay_s)  # the platform is slow; no test waits here
            if due.status == 0:
                handler.close_connection = True
                return
            status, headers, body = due.status, due.headers, due.body
        handler.send_response(status)
        for name, value in {"Content-Type": "application/json", **headers}.items():
            handler.send_header(name, value)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    def _done(self, handler: Any, raw: bytes) -> tuple[int, dict[str, str], bytes]:
        url = urlsplit(handler.path)
        query = parse_qs(url.query, keep_blank_values=True)
        found = contract.operation(handler.command, url.path)
        if found is None:
            return self._fault(f"there is no {handler.command} {url.path}")
        operation, parts = found
        try:
            body = json.loads(raw) if raw else None
        except ValueError:
            return self._fault(f"no JSON to {url.path}")
        faults = contract.request_faults(operation, query, body)
        if faults:
            return self._fault(f"{handler.command} {url.path}: {faults[:5]}")
        name = operation["operationId"]
        try:
            self._admit(name, handler.headers.get("Authorization") or "")
            result = getattr(self, f"_{name}")([unquote(part) for part in parts], query, body or {})
        except MasterRefusal as error:
            told = {"error": {"code": error.status, "reason": "Refused", "error": str(error)}}
            return error.status, {}, json.dumps(told).encode()
        return self._answer(name, operation, result)

    def _fault(self, text: str) -> tuple[int, dict[str, str], bytes]:
        self.faults.append(text)
        return 400, {}, json.dumps({"error": {"code": 3, "reason": "InvalidArgument", "error": text}}).encode()

    def _answer(self, name: str, operation: Any, result: Any) -> tuple[int, dict[str, str], bytes]:
        for each in result if name == "TaskLogs" else [result]:
            faults = contract.answer_faults(operation, each)
            if faults:
                self.faults.append(f"our own answer to {name}: {faults[:5]}")
        if name == "TaskLogs":
            return 200, {}, b"".join(json.dumps({"result": each}).encode() + b"\n" for each in result)
        return 200, {}, json.dumps(result).encode()

    def _admit(self, name: str, authorization: str) -> None:
        known = {f"Bearer {self.cluster.token}", f"Bearer {self.cluster.session}"}
        if name not in ("Login", "GetMaster") and authorization not in known:
            raise MasterRefusal(401, "unauthenticated: invalid credentials")

    # ------------------------------------------------------------ what the interface has, by its own names

    def _Login(self, parts: list[str], query: Query, body: Any) -> Any:
        given = self.cluster.password
        if body.get("isHashed"):  # as Determined's own client sends it
            given = hashlib.sha512((SALT + given).encode()).hexdigest()
        if body["password"] != given:
            raise MasterRefusal(401, "invalid credentials")
        self.cluster.logins += 1
        return {"token": self.cluster.token, "user": answers.user()}

    def _CurrentUser(self, parts: list[str], query: Query, body: Any) -> Any:
        return {"user": answers.user()}

    def _GetMaster(self, parts: list[str], query: Query, body: Any) -> Any:
        return answers.about()

    def _GetResourcePools(self, parts: list[str], query: Query, body: Any) -> Any:
        return {"resourcePools": [answers.pool(name, slots) for name, slots in self.cluster.pools.items()]}

    def _GetWorkspaces(self, parts: list[str], query: Query, body: Any) -> Any:
        wanted = query.get("nameCaseSensitive")
        names = [name for name in self.cluster.workspaces if wanted in (None, [name])]
        shown, pagination = answers.page(names, query)
        return {"workspaces": [answers.workspace(1, name) for name in shown], "pagination": pagination}

    def _CreateExperiment(self, parts: list[str], query: Query, body: Any) -> Any:
        made = self.cluster.create(body)
        return {"experiment": answers.experiment(self.cluster, made), "config": made.config}

    def _GetExperiments(self, parts: list[str], query: Query, body: Any) -> Any:
        with self.cluster.lock:
            wanted = set(query.get("labels") or [])
            found = [one for one in self.cluster.experiments.values() if wanted <= set(one.config.get("labels") or [])]
            shown, pagination = answers.page(found, query)
            return {
                "experiments": [answers.experiment(self.cluster, one) for one in shown],
                "pagination": pagination,
            }

    def _GetExperiment(self, parts: list[str], query: Query, body: Any) -> Any:
        one = self._experiment(parts)
        return {"experiment": answers.experiment(self.cluster, one), "config": one.config}

    def _experiment(self, parts: list[str]) -> DeterminedExperiment:
        return self.cluster.find(int(parts[0]))

    def _GetExperimentTrials(self, parts: list[str], query: Query, body: Any) -> Any:
        one = self._experiment(parts)
        shown, pagination = answers.page([answers.trial(one)] if one.runs else [], query)
        return {"trials": shown, "pagination": pagination}

    def _GetTrial(self, parts: list[str], query: Query, body: Any) -> Any:
        return {"trial": answers.trial(self.cluster.find(int(parts[0]) - 1000))}

    def _GetTrialCheckpoints(self, parts: list[str], query: Query, body: Any) -> Any:
        shown, pagination = answers.page(self.cluster.find(int(parts[0]) - 1000).checkpoints, query)
        return {"checkpoints": shown, "pagination": pagination}

    def _GetTask(self, parts: list[str], query: Query, body: Any) -> Any:
        return {"task": answers.task(self.cluster.of_task(parts[0]))}

    def _TaskLogs(self, parts: list[str], query: Query, body: Any) -> Any:
        with self.cluster.lock:
            lines = list(self.cluster.of_task(parts[0]).log)
        after, text = query.get("timestampAfter", [""])[0], query.get("searchText", [""])[0]
        # The master may give lines of that very time again.
        return [line for line in lines if line["timestamp"] >= after and text in line["log"]]

    def _GetJobs(self, parts: list[str], query: Query, body: Any) -> Any:
        with self.cluster.lock:
            shown, pagination = answers.page(answers.queue(self.cluster), query)
        return {"jobs": shown, "pagination": pagination}

    def _CancelExperiment(self, parts: list[str], query: Query, body: Any) -> Any:
        self.cluster.cancel(self._experiment(parts), kill=False)
        return {}

    def _KillExperiment(self, parts: list[str], query: Query, body: Any) -> Any:
        self.cluster.cancel(self._experiment(parts), kill=True)
        return {}

    def _PauseExperiment(self, parts: list[str], query: Query, body: Any) -> Any:
        self.cluster.pause(self._experiment(parts))
        return {}

    def _ActivateExperiment(self, parts: list[str], query: Query, body: Any) -> Any:
        self.cluster.activate(self._experiment(parts))
        return {}

    def _ArchiveExperiment(self, parts: list[str], query: Query, body: Any) -> Any:
        one = self._experiment(parts)
        if one.archived or one.state not in ("STATE_COMPLETED", "STATE_CANCELED", "STATE_ERROR"):
            raise MasterRefusal(400, f"experiment {one.number} cannot be archived in state {one.state}")
        one.archived = True
        return {}

    def _PatchExperiment(self, parts: list[str], query: Query, body: Any) -> Any:
        one = self._experiment(parts)
        one.config["labels"] = body["labels"]
        return {"experiment": answers.experiment(self.cluster, one)}

    def _DeleteExperiment(self, parts: list[str], query: Query, body: Any) -> Any:
        self.cluster.delete(self._experiment(parts))
        return {}

    def _AllocationPreemptionSignal(self, parts: list[str], query: Query, body: Any) -> Any:
        one = self.cluster.of_task(parts[0])
        return {"preempt": one.preemption.wait(float(query.get("timeoutSeconds", ["60"])[0]))}

    def _AckAllocationPreemptionSignal(self, parts: list[str], query: Query, body: Any) -> Any:
        self.cluster.of_task(parts[0]).acknowledged += 1
        return {}
