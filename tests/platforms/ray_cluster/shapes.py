"""What the stand-in's answers have in common with those of the real one: their shape.

`answers` asks the same of both. A shape has the names of fields and the types of their values, and of texts the words
that the service depends on.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable
from typing import Any

import requests

from nnilite.testing import eventually

_WORDS = (
    "already exists",
    "does not exist",
    "non-terminal state",
    "must be a number",
    "Traceback",
    "Running entrypoint",
)
_PACKAGE = "_ray_pkg_of_shapes.zip"

Ask = Callable[..., requests.Response]


def shape(value: Any) -> Any:
    """The shape of JSON."""
    if isinstance(value, dict):
        return {name: shape(one) for name, one in value.items()}
    if isinstance(value, list):
        return [shape(value[0])] if value else []
    return None if value is None else type(value).__name__


def _shown(answer: requests.Response) -> Any:
    """Status, kind and shape of an answer."""
    kind = answer.headers.get("Content-Type", "").partition(";")[0] if answer.content else ""
    if kind == "application/json":
        return answer.status_code, shape(answer.json())
    return answer.status_code, [word for word in _WORDS if word in answer.text and word != "must be a number"]


def answers(ask: Ask, url: str) -> dict[str, Any]:
    """What is answered to the calls of the service, by names."""
    found: dict[str, Any] = {"anonymous": (requests.get(f"{url}/api/jobs/", timeout=30).status_code, "")}
    wrong = requests.get(f"{url}/api/jobs/", headers={"Authorization": "Bearer wrong"}, timeout=30)
    found["wrong token"] = wrong.status_code
    found["version"] = _shown(ask("/api/version"))
    found["no package"] = _shown(ask(f"/api/packages/gcs/{_PACKAGE}"))
    found["upload"] = _shown(ask(f"/api/packages/gcs/{_PACKAGE}", "PUT", data=_archive()))
    found["package"] = _shown(ask(f"/api/packages/gcs/{_PACKAGE}"))
    found["too large"] = ask("/api/packages/gcs/_ray_pkg_big.zip", "PUT", data=b"0" * (100 * 1024**2 + 1)).status_code
    found["no job"] = _shown(ask("/api/jobs/nobody"))
    found["wrong job"] = _shown(ask("/api/jobs/", "POST", json={"entrypoint": "true", "entrypoint_num_cpus": "many"}))
    found.update(_of_a_job(ask, "shape-0", "exit 0", "SUCCEEDED"))
    found.update(_of_a_job(ask, "shape-3", "exit 3", "FAILED"))
    found.update(_of_waiting(ask))
    found["nothing to stop"] = _shown(ask("/api/jobs/nobody/stop", "POST"))
    found["usage"] = sorted(_usage(ask))
    return found


def _of_a_job(ask: Ask, name: str, command: str, state: str) -> dict[str, Any]:
    """The answers in the life of a job."""
    found = {"submit": _shown(ask("/api/jobs/", "POST", json=_request(name, command, entrypoint_num_cpus=0.1)))}
    found["submit again"] = _shown(ask("/api/jobs/", "POST", json=_request(name, command)))
    eventually(lambda: ask(f"/api/jobs/{name}").json()["status"] == state, 60)
    found["job"] = _shown(ask(f"/api/jobs/{name}"))
    listed = [job for job in ask("/api/jobs/").json() if job["submission_id"] == name]
    found["listed"] = shape(listed)
    log = ask(f"/api/jobs/{name}/logs").json()
    found["log"] = (shape(log), [line.partition(" for")[0] for line in log["logs"].splitlines()[1:]])
    found["stop"] = ask(f"/api/jobs/{name}/stop", "POST").json()
    found["delete"] = ask(f"/api/jobs/{name}", "DELETE").json()
    found["deleted"] = _shown(ask(f"/api/jobs/{name}", "DELETE"))
    return {f"{name}: {what}": value for what, value in found.items()}


def _of_waiting(ask: Ask) -> dict[str, Any]:
    """Of a job that waits for what is not there."""
    name = "shape-waits"
    ask("/api/jobs/", "POST", json=_request(name, "true", entrypoint_num_gpus=4))
    job = ask(f"/api/jobs/{name}").json()
    found = {"job": (shape(job), job["status"], job["message"]), "log": sorted(ask(f"/api/jobs/{name}/logs").json())}
    found["delete"] = _shown(ask(f"/api/jobs/{name}", "DELETE"))
    found["stop"] = ask(f"/api/jobs/{name}/stop", "POST").json()
    found["stopped"] = ask(f"/api/jobs/{name}").json()["status"]
    return {f"waiting: {what}": value for what, value in found.items()}


def _usage(ask: Ask) -> set[str]:
    """Which of the resources that the service asks for are told of nodes."""
    nodes = ask("/api/cluster_status").json()["data"]["clusterStatus"]["loadMetricsReport"]["usageByNode"]
    pairs = {name: shape(pair) for node in nodes.values() for name, pair in node.items()}
    return {f"{name} {pairs[name]}" for name in ("CPU", "memory") if name in pairs}


def _request(name: str, command: str, **more: Any) -> dict[str, Any]:
    environment = {"working_dir": f"gcs://{_PACKAGE}", "env_vars": {"A": "b"}}
    metadata = {"job_name": name}
    return {"submission_id": name, "entrypoint": command, "runtime_env": environment, "metadata": metadata, **more}


def _archive() -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        archive.writestr("a", "b")
    return data.getvalue()
