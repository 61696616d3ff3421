"""Resource Manager and run history of one workspace: what they keep, and what they refuse."""

from __future__ import annotations

import re
import threading
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from platforms.aml.azurite import ACCOUNT, Azurite
from platforms.aml.node import Blobs, JobRun
from platforms.aml.refusal import AzureRefusal

SUBSCRIPTION = "0a1b2c3d-0000-0000-0000-000000000003"
GROUP, NAME = "nni-group", "nni-workspace"
REGION_HOST = "westeurope.api.azureml.ms"
CONTAINER = "azureml-blobstore-1"
_TYPE = "Microsoft.MachineLearningServices/workspaces"
WORKSPACE = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/{GROUP}/providers/{_TYPE}/{NAME}"
MISSING_IMAGE = "example.org/no-such-image:1"
ENDED = ("Completed", "Failed", "Canceled")
_SIZES = f"/subscriptions/{SUBSCRIPTION}/providers/Microsoft.MachineLearningServices/locations/westeurope/vmSizes"
_HISTORY = f"/history/v1.0{WORKSPACE}"
_PAGE = 4
_CHANGEABLE = ("tags", "displayName", "description", "isArchived", "properties")

Found = tuple[int, dict[str, str], Any]


def now() -> str:
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


_CREATED = now()  # always the same, so that an answer that says nothing new need not be checked again


@dataclass
class StandInJob:
    """A job, with what the run history knows of it."""

    name: str
    properties: dict[str, Any]
    status: str = "NotStarted"
    created: str = field(default_factory=now)
    started: str | None = None
    ended: str | None = None
    error: dict[str, Any] | None = None
    warnings: list[dict[str, Any]] = field(default_factory=list)
    starts: int = 0
    run: JobRun | None = None
    held: bool = False  # it stays in the queue

    @property
    def nodes(self) -> int:
        return int((self.properties.get("resources") or {}).get("instanceCount") or 1)

    @property
    def target(self) -> str:
        return str(self.properties.get("computeId") or "/serverless").rpartition("/")[2]


class StandInWorkspace:
    """One lock for all; jobs tell of themselves from threads of their own."""

    def __init__(self, folder: Path, azurite: Azurite) -> None:
        self.lock = threading.RLock()
        self.folder = folder
        self.blobs = Blobs(azurite, CONTAINER)
        self.jobs: dict[str, StandInJob] = {}
        self.containers = {CONTAINER}  # for uploads, and for logs
        self.codes: dict[str, dict[str, Any]] = {}
        self.environments: dict[str, dict[str, Any]] = {"pytorch:3": {"image": "pytorch"}}
        self.uploads = 0
        self.computes = {
            "cpu-cluster": _cluster("cpu-cluster", 64),
            "spot-cluster": _cluster("spot-cluster", 2, "LowPriority"),
            "box": _instance("box", "Running"),
            "stopped-box": _instance("stopped-box", "Stopped"),
        }
        self.paused = False  # nothing leaves the queue

    def close(self) -> None:
        with self.lock:
            self.paused = True
            running = [job.run for job in self.jobs.values() if job.run is not None]
        for run in running:
            run.kill()
        for run in running:
            run.join()
        self.blobs.close()

    # ------------------------------------------------------------ requests

    def answer(self, method: str, path: str, query: Mapping[str, str], body: Any) -> Found:
        """Raises: AzureRefusal."""
        if path.startswith(_HISTORY):
            return self._history(method, path[len(_HISTORY) :], body)
        if (method, path) == ("GET", _SIZES):
            return 200, {}, {"value": [_size("Standard_NC6", 1), _size("Standard_DS3_v2", 0)]}
        self._check_place(path)
        for known, pattern, answer in self._routes():
            match = re.fullmatch(pattern, path[len(WORKSPACE) :])
            if known == method and match:
                with self.lock:
                    return answer(query, body, *match.groups())
        raise AzureRefusal(404, "NotFound", f"no such resource: {method} {path}")

    def _check_place(self, path: str) -> None:
        parts = path.split("/")
        if parts[2] != SUBSCRIPTION:
            raise AzureRefusal(404, "SubscriptionNotFound", f"The subscription '{parts[2]}' could not be found.")
        if parts[4] != GROUP:
            raise AzureRefusal(404, "ResourceGroupNotFound", f"Resource group '{parts[4]}' could not be found.")
        if not path.startswith(WORKSPACE):
            told = f"The Resource '{_TYPE}/{parts[8]}' under resource group '{GROUP}' was not found."
            raise AzureRefusal(404, "ResourceNotFound", told)

    def _routes(self) -> list[tuple[str, str, Callable[..., Found]]]:
        version = r"/([^/]+)/versions/([^/]+)"
        return [
            ("GET", "", self._workspace),
            ("GET", r"/codes/[^/]+/versions", self._find_code),
            ("GET", f"/codes{version}", self._code),
            ("PUT", f"/codes{version}", self._put_code),
            ("POST", f"/codes{version}/startPendingUpload", self._start_upload),
            ("GET", f"/environments{version}", self._environment),
            ("PUT", f"/environments{version}", self._put_environment),
            ("GET", r"/computes/([^/]+)", self._compute),
            ("GET", r"/datastores", self._datastores),
            ("GET", r"/datastores/([^/]+)", self._datastore),
            ("POST", r"/datastores/([^/]+)/listSecrets", self._secrets),
            ("GET", r"/jobs", self._list),
            ("GET", r"/jobs/([^/]+)", self._job),
            ("PUT", r"/jobs/([^/]+)", self._put_job),
            ("POST", r"/jobs/([^/]+)/cancel", self._cancel),
        ]

    def discovery(self) -> dict[str, str]:
        names = (
            "api",
            "experimentation",
            "history",
            "hyperdrive",
            "labeling",
            "modelmanagement",
            "pipelines",
            "studio",
        )
        return dict.fromkeys(names, f"https://{REGION_HOST}")

    def _workspace(self, query: Mapping[str, str], body: Any) -> Found:
        storage = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/{GROUP}/providers/Microsoft.Storage/storageAccounts"
        properties = {
            "friendlyName": NAME,
            "storageAccount": f"{storage}/{ACCOUNT}",
            "discoveryUrl": f"https://{REGION_HOST}/discovery",
            "provisioningState": "Succeeded",
            "workspaceId": str(uuid.UUID(int=5)),
            "tenantId": str(uuid.UUID(int=6)),
            "publicNetworkAccess": "Enabled",
        }
        found = {"id": WORKSPACE, "name": NAME, "type": _TYPE, "location": "westeurope", "tags": {}}
        return 200, {}, {**found, "properties": properties, "identity": {"type": "SystemAssigned"}}

    # ------------------------------------------------------------ code, environments, computes, datastores

    def _find_code(self, query: Mapping[str, str], body: Any) -> Found:
        wanted = query.get("hash")
        found = [one for one in self.codes.values() if one["properties"]["properties"].get("hash_sha256") == wanted]
        return 200, {}, {"value": found}

    def _code(self, query: Mapping[str, str], body: Any, name: str, version: str) -> Found:
        return 200, {}, self._known(self.codes, f"{name}:{version}", "code")

    @staticmethod
    def _known(kept: Mapping[str, Any], name: str, what: str) -> Any:
        if name not in kept:
            raise AzureRefusal(404, "UserError", f"Not found {what} with name and version: {name}.")
        return kept[name]

    def _put_code(self, query: Mapping[str, str], body: Any, name: str, version: str) -> Found:
        made = _resource(f"{WORKSPACE}/codes/{name}/versions/{version}", version, f"{_TYPE}/codes/versions", body)
        self.codes[f"{name}:{version}"] = made
        return 201, {}, made

    def _start_upload(self, query: Mapping[str, str], body: Any, name: str, version: str) -> Found:
        self.uploads += 1
        container = str(uuid.uuid4())
        self.containers.add(container)
        url = self.blobs.new_container(container)
        reference = {"blobUri": url.partition("?")[0], "credential": {"credentialType": "SAS", "sasUri": url}}
        upload = {"pendingUploadId": str(uuid.uuid4()), "pendingUploadType": body["pendingUploadType"]}
        return 200, {}, {**upload, "blobReferenceForConsumption": reference}

    def _environment(self, query: Mapping[str, str], body: Any, name: str, version: str) -> Found:
        properties = self._known(self.environments, f"{name}:{version}", "environment")
        return 200, {}, self._environment_resource(name, version, properties)

    @staticmethod
    def _environment_resource(name: str, version: str, properties: Any) -> Any:
        place = f"{WORKSPACE}/environments/{name}/versions/{version}"
        return _resource(place, version, f"{_TYPE}/environments/versions", {"properties": properties})

    def _put_environment(self, query: Mapping[str, str], body: Any, name: str, version: str) -> Found:
        self.environments[f"{name}:{version}"] = body["properties"]
        return 201, {}, self._environment_resource(name, version, body["properties"])

    def _compute(self, query: Mapping[str, str], body: Any, name: str) -> Found:
        if name not in self.computes:
            raise AzureRefusal(404, "ResourceNotFound", f"Compute with name {name} was not found.")
        return 200, {}, self.computes[name]

    def _datastores(self, query: Mapping[str, str], body: Any) -> Found:
        return 200, {}, {"value": [_datastore("workspaceblobstore")]}

    def _datastore(self, query: Mapping[str, str], body: Any, name: str) -> Found:
        return 200, {}, _datastore(name)

    def _secrets(self, query: Mapping[str, str], body: Any, name: str) -> Found:
        return 200, {}, {"secretsType": "AccountKey", "key": self.blobs.key}

    # ------------------------------------------------------------ jobs

    def _list(self, query: Mapping[str, str], body: Any) -> Found:
        tag, skip = query.get("tag"), int(query.get("$skip") or 0)
        jobs = [job for job in self.jobs.values() if tag is None or tag in (job.properties.get("tags") or {})]
        page: dict[str, Any] = {"value": [self._shown(job) for job in jobs[skip : skip + _PAGE]]}
        if len(jobs) > skip + _PAGE:
            again = "&".join(f"{name}={value}" for name, value in query.items() if name != "$skip")
            page["nextLink"] = f"https://management.azure.com{WORKSPACE}/jobs?{again}&$skip={skip + _PAGE}"
        return 200, {}, page

    def find(self, name: str) -> StandInJob:
        """Raises: AzureRefusal."""
        if name.lower() not in self.jobs:
            raise AzureRefusal(404, "UserError", f"Run {name} was not found")
        return self.jobs[name.lower()]

    def of(self, job: str) -> StandInJob:
        """By the name that the manager has for it."""
        return next(one for one in self.jobs.values() if one.properties["displayName"] == job)

    def _job(self, query: Mapping[str, str], body: Any, name: str) -> Found:
        return 200, {}, self._shown(self.find(name))

    def _shown(self, job: StandInJob) -> Any:
        default = {
            "uri": f"azureml://datastores/workspaceartifactstore/{_artifacts(job)}",
            "jobOutputType": "uri_folder",
        }
        outputs = {**(job.properties.get("outputs") or {}), "default": {**default, "mode": "ReadWriteMount"}}
        studio = f"https://ml.azure.com/runs/{job.name}?wsid={WORKSPACE}"
        services = {"Studio": {"jobServiceType": "Studio", "endpoint": studio}}
        properties = {**job.properties, "status": job.status, "services": services, "outputs": outputs}
        return _resource(f"{WORKSPACE}/jobs/{job.name}", job.name, f"{_TYPE}/jobs", {"properties": properties})

    def _put_job(self, query: Mapping[str, str], body: Any, name: str) -> Found:
        given, old = body["properties"], self.jobs.get(name.lower())
        if old is not None:
            # "For update case, the Tags in the definition passed in will replace Tags in the existing job."
            fixed = [
                {key: value for key, value in one.items() if key not in _CHANGEABLE} for one in (given, old.properties)
            ]
            if old.name != name or fixed[0] != fixed[1]:
                raise AzureRefusal(409, "UserError", f"A job with this name already exists: {name}")
            old.properties.update({key: given[key] for key in _CHANGEABLE if key in given})
            return 200, {}, self._shown(old)
        self._check_job(given)
        job = StandInJob(name, given)
        self.jobs[name.lower()] = job
        if self.environments[_asset(given["environmentId"])].get("image") == MISSING_IMAGE:
            told = f"Image build failed. Failed to pull Docker image {MISSING_IMAGE}: manifest unknown"
            self._end(job, "Failed", "UserError", told)
        else:
            job.status = "Queued"
            self.schedule()
        return 201, {}, self._shown(job)

    def _check_job(self, given: Mapping[str, Any]) -> None:
        target = str(given.get("computeId") or "").rpartition("/")[2]
        if target and target not in self.computes:
            raise AzureRefusal(400, "UserError", f"Unknown compute target '{target}'.")
        if _asset(given["environmentId"]) not in self.environments:
            raise AzureRefusal(400, "UserError", f"Environment {given['environmentId']} could not be found")
        if _asset(given["codeId"]) not in self.codes:
            raise AzureRefusal(400, "UserError", f"Code {given['codeId']} could not be found")

    def _cancel(self, query: Mapping[str, str], body: Any, name: str) -> Found:
        job = self.find(name)
        if job.status not in ENDED:
            if job.run is None:
                self._end(job, "Canceled")
            else:
                job.status = "CancelRequested"
                job.run.terminate()
        location = f"https://management.azure.com{WORKSPACE}/mfeOperations/{uuid.uuid4()}"
        return 202, {"Location": location, "Retry-After": "1"}, None

    # ------------------------------------------------------------ running

    def schedule(self) -> None:
        """All nodes of a job, or none."""
        with self.lock:
            for job in self.jobs.values():
                target = self.computes.get(job.target)
                most = (
                    target["properties"]["properties"].get("scaleSettings", {}).get("maxNodeCount", 1) if target else 9
                )
                busy = sum(one.nodes for one in self.jobs.values() if one.run is not None and one.target == job.target)
                if job.status == "Queued" and not self.paused and not job.held and busy + job.nodes <= most:
                    job.starts += 1
                    place = self.folder / "nodes" / f"{job.name}.{job.starts}"
                    job.run = JobRun(self, job, place, self.codes[_asset(job.properties["codeId"])])
                    job.status = "Preparing"
                    job.run.start()

    def running(self, job: StandInJob) -> None:
        """Its processes have been started."""
        with self.lock:
            if job.status == "Preparing":
                job.status, job.started = "Running", job.started or now()

    def finalizing(self, job: StandInJob) -> None:
        with self.lock:
            if job.status == "Running":
                job.status = "Finalizing"

    def done(self, job: StandInJob, code: int, taken_away: bool) -> None:
        """All its processes have ended."""
        with self.lock:
            job.run = None
            if job.status == "CancelRequested":
                self._end(job, "Canceled")
            elif taken_away:
                job.status = "Queued"
                job.warnings = [{"source": "compute", "message": "The low priority node was preempted."}]
            elif code:
                told = f"Execution failed. User process 'sh' exited with status code {code}. Please check log file."
                self._end(job, "Failed", "UserError", told)
            else:
                self._end(job, "Completed")
        self.schedule()

    @staticmethod
    def _end(job: StandInJob, status: str, code: str = "", message: str = "") -> None:
        job.status, job.ended = status, now()
        job.error = {"error": {"code": code, "message": message}} if message else None

    def preempt(self, job: StandInJob, hold: bool = True) -> None:
        """Take the nodes of a job away, and put it in the queue again; `hold`: where it stays."""
        with self.lock:
            job.held, run = hold, job.run
        if run is not None:
            run.kill(taken_away=True)

    def forget(self, job: StandInJob) -> None:
        """End it, and keep nothing of it."""
        with self.lock:
            del self.jobs[job.name.lower()]
            run = job.run
        if run is not None:
            run.kill()
            run.join()

    # ------------------------------------------------------------ run history

    def _history(self, method: str, path: str, body: Any) -> Found:
        match = re.fullmatch(r"/runs/([^/]+)/details", path)
        if method == "GET" and match:
            with self.lock:
                return 200, {}, self._details(self.find(match.group(1)))
        if method == "POST" and path == "/rundata":
            job = self.find(body["runId"])
            meta = {"runId": job.name, "status": job.status, "dataContainerId": f"dcid.{job.name}", "outputs": {}}
            return 200, {}, {"runMetadata": meta, "runDefinition": None, "jobSpecification": None}
        raise AzureRefusal(404, "NotFound", f"no such resource: {method} {path}")

    def _details(self, job: StandInJob) -> Any:
        logs = self.blobs.urls(f"{_artifacts(job)}/user_logs/")
        return {
            "runId": job.name,
            "status": job.status,
            "target": job.target,
            "startTimeUtc": job.started,
            "endTimeUtc": job.ended,
            "error": job.error,
            "warnings": job.warnings,
            "runType": "azureml.scriptrun",
            "displayName": job.properties.get("displayName"),
            "properties": {},
            "runDefinition": {},
            "logFiles": {f"user_logs/{name.rpartition('/')[2]}": url for name, url in logs.items()},
            "inputs": {},
            "outputs": {},
        }


def _artifacts(job: StandInJob) -> str:
    return f"ExperimentRun/dcid.{job.name}"


def _asset(place: str) -> str:
    """NAME:VERSION of the id of an asset."""
    parts = place.split("/")
    return f"{parts[-3]}:{parts[-1]}"


def _resource(place: str, name: str, kind: str, body: Any) -> Any:
    system = {"createdAt": _CREATED, "createdBy": "tester", "createdByType": "User", "lastModifiedAt": _CREATED}
    return {"id": place, "name": name, "type": kind, "properties": body["properties"], "systemData": system}


def _compute(name: str, kind: str, properties: Any) -> Any:
    inner = {"computeType": kind, "provisioningState": "Succeeded", "properties": properties}
    place = {"id": f"{WORKSPACE}/computes/{name}", "name": name, "type": f"{_TYPE}/computes", "location": "westeurope"}
    return {**place, "properties": inner}


def _cluster(name: str, most: int, priority: str = "Dedicated") -> Any:
    scale = {"maxNodeCount": most, "minNodeCount": 0, "nodeIdleTimeBeforeScaleDown": "PT120S"}
    counts = {"allocationState": "Steady", "currentNodeCount": 0, "targetNodeCount": 0}
    return _compute(
        name, "AmlCompute", {"vmSize": "STANDARD_NC6", "vmPriority": priority, "scaleSettings": scale, **counts}
    )


def _size(name: str, gpus: int) -> Any:
    return {"name": name, "gpus": gpus, "vCPUs": 6, "memoryGB": 56.0, "supportedComputeTypes": ["AmlCompute"]}


def _instance(name: str, state: str) -> Any:
    return _compute(name, "ComputeInstance", {"vmSize": "STANDARD_DS3_V2", "state": state})


def _datastore(name: str) -> Any:
    properties = {
        "isDefault": True,
        "credentials": {"credentialsType": "AccountKey"},
        "datastoreType": "AzureBlob",
        "accountName": ACCOUNT,
        "containerName": CONTAINER,
        "endpoint": "core.windows.net",
        "protocol": "https",
    }
    return _resource(f"{WORKSPACE}/datastores/{name}", name, f"{_TYPE}/datastores", {"properties": properties})
