"""What the master keeps, and what it refuses: pools, workspaces, experiments, their trials and containers."""

from __future__ import annotations

import itertools
import threading
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from platforms.determined import expconf
from platforms.determined.container import Containers, now, variables

TERMINAL = ("STATE_COMPLETED", "STATE_CANCELED", "STATE_ERROR")
_numbers = itertools.count(1)
_SUBSTATES = ("STATE_QUEUED", "STATE_PULLING", "STATE_STARTING", "STATE_RUNNING")
MISSING_IMAGE = "example.org/no-such-image:1"


class MasterRefusal(Exception):
    """What the master answers instead."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass
class DeterminedExperiment:
    """With its only trial."""

    number: int
    config: dict[str, Any]
    text: str
    files: list[dict[str, Any]]
    project: int
    state: str = "STATE_PAUSED"
    archived: bool = False
    runs: int = 0
    restarts: int = 0
    started: str = field(default_factory=now)
    ended: str = ""
    allocations: list[dict[str, Any]] = field(default_factory=list)
    log: list[dict[str, Any]] = field(default_factory=list)
    checkpoints: list[dict[str, Any]] = field(default_factory=list)
    preemption: threading.Event = field(default_factory=threading.Event)
    acknowledged: int = 0
    container: Containers | None = None

    @property
    def trial(self) -> int:
        return self.number + 1000

    @property
    def task(self) -> str:
        return f"{self.number}.{self.trial}"

    @property
    def slots(self) -> int:
        return int((self.config.get("resources") or {}).get("slots_per_trial", 1))

    @property
    def pool(self) -> str:
        return str((self.config.get("resources") or {}).get("resource_pool") or "default")


class DeterminedCluster:
    """One lock for all; containers tell of themselves from threads of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.lock = threading.RLock()
        self.address = ""
        self.token = "a session's token"
        self.session = "the token of a container"
        self.password = "a password; of the stand-in"
        self.logins = 0
        self.pools = {"default": 64, "gpu": 2}
        self.slots_of_agent = 64
        self.holds = False
        self.workspaces = {"Uncategorized": {"Uncategorized": 1}, "Research": {"nni": 7}}
        self.default_storage: dict[str, Any] = {"type": "directory", "container_path": str(folder / "checkpoints")}
        self.experiments: dict[int, DeterminedExperiment] = {}

    # ------------------------------------------------------------ experiments

    def create(self, body: dict[str, Any]) -> DeterminedExperiment:
        """Raises: MasterRefusal."""
        try:
            config = yaml.load(body["config"], Loader=yaml.CSafeLoader)
        except yaml.YAMLError as error:
            raise MasterRefusal(400, f"yaml: {error}") from error
        faults = expconf.complaints(config)
        completed = self._completed(config) if not faults else {}
        faults = faults or expconf.complaints(completed, complete=True)
        if faults:
            raise MasterRefusal(400, f"invalid experiment configuration: {'; '.join(faults)}")
        project = self._project(config)
        made = DeterminedExperiment(
            next(_numbers), completed, body["config"], body.get("modelDefinition") or [], project
        )
        if made.pool not in self.pools:
            raise MasterRefusal(404, f"resource pool {made.pool} not found")
        if made.slots > self.pools[made.pool]:
            raise MasterRefusal(400, f"request unfulfillable: {made.slots} slots in {made.pool}")
        if not body.get("validateOnly"):
            if not made.files:
                raise MasterRefusal(400, "no model definition")
            with self.lock:
                self.experiments[made.number] = made
                if body.get("activate"):
                    made.state = "STATE_QUEUED"
            self.schedule()
        return made

    def _completed(self, config: dict[str, Any]) -> dict[str, Any]:
        """With the cluster's defaults, which the master fills in."""
        environment = {"image": "determinedai/environments", **(config.get("environment") or {})}
        return {
            "checkpoint_storage": self.default_storage,
            "reproducibility": {"experiment_seed": 1},
            "hyperparameters": {},
            **config,
            "environment": environment,
        }

    def _project(self, config: dict[str, Any]) -> int:
        workspace, project = config.get("workspace") or "Uncategorized", config.get("project") or "Uncategorized"
        if workspace not in self.workspaces:
            raise MasterRefusal(404, f"workspace {workspace!r} not found")
        if project not in self.workspaces[workspace]:
            raise MasterRefusal(404, f"project {project!r} not found")
        return self.workspaces[workspace][project]

    def find(self, number: int) -> DeterminedExperiment:
        """Raises: MasterRefusal."""
        found = self.experiments.get(number)
        if found is None:
            raise MasterRefusal(404, f"experiment {number} not found")
        return found

    def of_task(self, task: str) -> DeterminedExperiment:
        return self.find(int(task.partition(".")[0])) if task.partition(".")[0].isdecimal() else self.find(-1)

    def named(self, name: str) -> DeterminedExperiment:
        return next(one for one in self.experiments.values() if one.config["name"] == name)

    # ------------------------------------------------------------ running

    def schedule(self) -> None:
        """All slots of a trial, or none."""
        with self.lock:
            if self.holds:
                return
            for one in sorted(self.experiments.values(), key=lambda each: each.number):
                busy = sum(each.slots for each in self.experiments.values() if each.container and each.pool == one.pool)
                if one.state == "STATE_QUEUED" and busy + one.slots <= self.pools[one.pool]:
                    self._start(one)

    def _start(self, one: DeterminedExperiment) -> None:
        one.runs += 1
        allocation = {
            "taskId": one.task,
            "allocationId": f"{one.task}.{one.runs}",
            "state": "STATE_PULLING",
            "slots": one.slots,
            "startTime": now(),
        }
        one.allocations.append(allocation)
        if one.config["environment"]["image"] == MISSING_IMAGE:
            one.container = None
            self._terminated(one, f"image pull failed: {MISSING_IMAGE}: manifest unknown", None)
            one.state, one.ended = "STATE_ERROR", now()
            return
        one.preemption = threading.Event()
        folder = self.folder / "containers" / f"{one.number}-{one.runs}"
        count = max(1, -(-one.slots // self.slots_of_agent))
        one.container = Containers(
            folder, count, lambda line: self._told(one, line), lambda code: self._ended(one, code)
        )
        environment = variables(self.address, one, allocation["allocationId"], self.session)
        one.container.start(one.config["entrypoint"], one.files, environment)
        one.state, allocation["state"] = "STATE_RUNNING", "STATE_RUNNING"

    def _told(self, one: DeterminedExperiment, line: dict[str, Any]) -> None:
        with self.lock:
            one.log.append({**line, "taskId": one.task, "allocationId": one.allocations[-1]["allocationId"]})

    def _terminated(self, one: DeterminedExperiment, reason: str, code: int | None) -> None:
        allocation = one.allocations[-1]
        allocation.update(state="STATE_TERMINATED", endTime=now(), exitReason=reason)
        if code is not None:
            allocation["statusCode"] = code

    def _ended(self, one: DeterminedExperiment, code: int) -> None:
        with self.lock:
            one.container = None
            shown = code if code >= 0 else 128 - code
            reason = f"container failed with non-zero exit code:  (exit code {shown})" if code else ""
            self._terminated(one, reason, shown)
            if one.state in ("STATE_STOPPING_CANCELED", "STATE_STOPPING_KILLED"):
                one.state = "STATE_CANCELED"
            elif code:
                one.restarts += 1
                over = one.restarts > one.config.get("max_restarts", 5)
                one.state = "STATE_ERROR" if over else "STATE_QUEUED"
            elif one.state != "STATE_PAUSED":
                one.state = "STATE_QUEUED" if one.preemption.is_set() else "STATE_COMPLETED"
            if one.state in TERMINAL:
                one.ended = now()
        self.schedule()

    # ------------------------------------------------------------ what people and the scheduler do

    def preempt(self, one: DeterminedExperiment) -> None:
        """The scheduler needs the slots."""
        one.preemption.set()

    def lose_node(self, one: DeterminedExperiment, number: int) -> None:
        """The machine of one container is shut down: its processes are told, and its container ends."""
        if one.container is not None:
            one.container.all[number].terminate()

    def lose(self, one: DeterminedExperiment) -> None:
        """The container dies with its machine."""
        if one.container is not None:
            one.container.kill()

    def pause(self, one: DeterminedExperiment) -> None:
        with self.lock:
            one.state = "STATE_PAUSED"
            one.preemption.set()

    def activate(self, one: DeterminedExperiment) -> None:
        with self.lock:
            if one.state in TERMINAL:
                raise MasterRefusal(400, f"experiment {one.number} is in a terminal state")
            if one.container is None:
                one.state = "STATE_QUEUED"
        self.schedule()

    def cancel(self, one: DeterminedExperiment, kill: bool) -> None:
        with self.lock:
            if one.state in TERMINAL:
                raise MasterRefusal(
                    400, f"cannot cancel experiment {one.number}: it is in the terminal state {one.state}"
                )
            container = one.container
            if container is None:
                one.state, one.ended = "STATE_CANCELED", now()
            else:
                one.state = "STATE_STOPPING_KILLED" if kill else "STATE_STOPPING_CANCELED"
        if container is not None and kill:
            container.kill()
        elif container is not None:
            one.preemption.set()
        self.schedule()

    def delete(self, one: DeterminedExperiment) -> None:
        with self.lock:
            if one.state not in TERMINAL:
                raise MasterRefusal(400, f"cannot delete experiment {one.number} in state {one.state}")
            del self.experiments[one.number]

    def checkpoint(self, one: DeterminedExperiment) -> str:
        """What Determined's own library would save and report; its folder's name."""
        name = str(uuid.uuid4())
        folder = Path(self.default_storage["container_path"]) / name
        folder.mkdir(parents=True)
        (folder / "weights").write_text("of Determined")
        self.report_checkpoint(one, name)
        return name

    @staticmethod
    def report_checkpoint(one: DeterminedExperiment, name: str) -> None:
        """Report what lies in the storage under this name."""
        one.checkpoints.append(
            {
                "uuid": name,
                "taskId": one.task,
                "reportTime": now(),
                "resources": {"weights": "13"},
                "metadata": {},
                "training": {"trialId": one.trial, "experimentId": one.number},
                "state": "STATE_COMPLETED",
            }
        )

    def close(self) -> None:
        for one in list(self.experiments.values()):
            if one.state not in TERMINAL:
                one.config["max_restarts"] = 0
                try:
                    self.cancel(one, kill=True)
                except MasterRefusal:  # it has ended meanwhile
                    continue
