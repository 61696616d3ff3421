"""A job in the stand-in: its state moves as that of a Framework of FrameworkController does."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from platforms.pai.contract_check import exit_specs
from platforms.pai.task import PaiTask, rendered

STOPPED_BY_USER = -210
_STATE = {"AttemptPreparing": "WAITING", "AttemptCreationPending": "WAITING", "AttemptRunning": "RUNNING"}


class PaiJob:
    """`advance` lets happen what has happened since."""

    def __init__(self, content: Mapping[str, Any], user: str, root: Path, joined_by: str) -> None:
        self.content, self.user, self.root = content, user, root
        self.name: str = content["name"]
        self.created = time.time()
        self.sub_state = "AttemptCreationPending"
        self.execution = "START"
        self.code: int | None = None
        self.ended: float | None = None
        self.trigger: PaiTask | None = None
        self.retries = 0
        self.events: list[str] = []
        self.pretended = ""  # what is given as its state
        self._joined_by = joined_by
        self.tasks = self._new_tasks()

    def _new_tasks(self) -> list[PaiTask]:
        return [
            PaiTask(role, index, self.root / f"{self.retries}-{role}-{index}")
            for role, one in self.content["taskRoles"].items()
            for index in range(one.get("instances", 1))
        ]

    @property
    def state(self) -> str:
        if self.pretended:
            return self.pretended
        if self.code is None:
            stopping = self.execution == "STOP" and self.sub_state != "Completed"
            return "STOPPING" if stopping else _STATE[self.sub_state]
        if self.code in (-210, -220):
            return "STOPPED"
        return "SUCCEEDED" if self.code == 0 else "FAILED"

    @property
    def virtual_cluster(self) -> str:
        return str((self.content.get("defaults") or {}).get("virtualCluster") or "default")

    def wants(self, resource: str) -> int:
        roles = self.content["taskRoles"].values()
        return sum(role.get("instances", 1) * role["resourcePerInstance"][resource] for role in roles)

    # ------------------------------------------------------------ what happens

    def start(self) -> None:
        """All tasks at once, as with gang allocation."""
        self.sub_state = "AttemptRunning"
        for uri in (entry["uri"] for entry in self.content["prerequisites"] if entry["type"] == "dockerimage"):
            if uri.startswith("no/such"):
                self.tasks[0].finish(254)
                self._complete(254, self.tasks[0])
                return
        for task in self.tasks:
            role = self.content["taskRoles"][task.role]
            values = {"secrets": self.content.get("secrets") or {}, "parameters": self.content.get("parameters") or {}}
            commands = self._joined_by.join(line.strip() for line in role["commands"])
            task.start(rendered(commands, values), self.environment(task))

    def advance(self) -> None:
        if self.code is None and self.sub_state == "AttemptRunning":
            for task in self.tasks:
                task.look()
            self._judge()

    def _judge(self) -> None:
        """Whether its tasks have ended the job, by the policies of their roles."""
        for role, content in self.content["taskRoles"].items():
            tasks = [task for task in self.tasks if task.role == role]
            policy = content.get("completion") or {}
            failed = [task for task in tasks if task.code not in (None, 0)]
            good = [task for task in tasks if task.code == 0]
            least_failed = policy.get("minFailedInstances") or 1
            least_good = policy.get("minSucceededInstances") or len(tasks)
            if 0 < least_failed <= len(failed):
                self._complete(failed[-1].code or 0, failed[-1])
                return
            if 0 < least_good <= len(good):
                self._complete(0, good[-1])
                return
        if all(task.code is not None for task in self.tasks):
            self._complete(0, self.tasks[-1])

    def stop(self) -> None:
        if self.code is None:
            self.execution = "STOP"
            self.end(STOPPED_BY_USER)

    def end(self, code: int) -> None:
        """The platform ends it, with an exit code of its own."""
        for task in self.tasks:
            task.kill(code)
        self._complete(code, None)

    def start_again(self) -> None:
        """A retry of PAI's own, within the job."""
        for task in self.tasks:
            task.kill(-1001)
        self.retries += 1
        self.tasks = self._new_tasks()
        self.sub_state = "AttemptPreparing"

    def _complete(self, code: int, trigger: PaiTask | None) -> None:
        for task in self.tasks:
            task.kill(-220)
        self.code, self.trigger, self.ended = code, trigger, time.time()
        self.sub_state = "Completed"

    # ------------------------------------------------------------ what a container finds

    def environment(self, task: PaiTask) -> dict[str, str]:
        """Of one task: what the REST server and the runtime set."""
        roles = self.content["taskRoles"]
        found = {
            "PAI_JOB_NAME": f"{self.user}~{self.name}",
            "PAI_USER_NAME": self.user,
            "PAI_VIRTUAL_CLUSTER": self.virtual_cluster,
            "PAI_TASK_ROLE_COUNT": str(len(roles)),
            "PAI_TASK_ROLE_LIST": ",".join(roles),
            "PAI_TASK_ROLE_INSTANCES": ",".join(f"{one.role}:{one.index}" for one in self.tasks),
            "PAI_CURRENT_TASK_ROLE_NAME": task.role,
            "PAI_CURRENT_TASK_ROLE_CURRENT_TASK_INDEX": str(task.index),
            "PAI_TASK_INDEX": str(task.index),
            "PAI_CURRENT_CONTAINER_IP": "127.0.0.1",
            "PAI_CURRENT_CONTAINER_PORT": str(task.port("http", 0)),
            "PAI_CONTAINER_HOST_IP": "127.0.0.1",
            "PAI_CONTAINER_SSH_PORT": str(task.port("ssh", 0)),
        }
        for name, role in roles.items():
            tasks = [one for one in self.tasks if one.role == name]
            resources = role["resourcePerInstance"]
            shm = (role.get("extraContainerOptions") or {}).get("shmMB", 512)
            found[f"PAI_TASK_ROLE_TASK_COUNT_{name}"] = str(len(tasks))
            found[f"PAI_RESOURCE_{name}"] = f"{resources['gpu']},{resources['cpu']},{resources['memoryMB']},{shm}"
            found[f"PAI_TASK_ROLE_{name}_HOST_LIST"] = ",".join(f"127.0.0.1:{one.port('http', 0)}" for one in tasks)
            for one in tasks:
                found[f"PAI_HOST_IP_{name}_{one.index}"] = "127.0.0.1"
                for label, number in {"ssh": 1, "http": 1, **(resources.get("ports") or {})}.items():
                    ports = ",".join(str(one.port(label, each)) for each in range(number))
                    found[f"PAI_PORT_LIST_{name}_{one.index}_{label}"] = ports
        return found

    # ------------------------------------------------------------ answers

    def summary(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "username": self.user,
            "state": self.state,
            "subState": self.sub_state,
            "executionType": self.execution,
            "retries": self.retries,
            "retryDetails": {"user": 0, "platform": self.retries, "resource": 0},
            "submissionTime": _ms(self.created),
            "createdTime": _ms(self.created),
            "launchedTime": _ms(self.launched),
            "completedTime": _ms(self.ended),
            "appExitCode": self.code,
            "virtualCluster": self.virtual_cluster,
            "totalTaskNumber": len(self.tasks),
        }

    @property
    def launched(self) -> float | None:
        return min((task.started for task in self.tasks if task.started is not None), default=None)

    def detail(self) -> dict[str, Any]:
        spec = None
        shown = self.code
        messages = None
        if self.code is not None:
            shown = self.code if self.code in exit_specs() else (255 if self.code > 0 else -8000)
            spec = exit_specs()[shown]
        if shown is not None and shown > 0:
            messages = {"runtime": {"exitCode": shown, "originUserExitCode": self.code}}
        summary = {key: value for key, value in self.summary().items() if key not in ("name", "totalTaskNumber")}
        status = {
            **summary,
            "attemptId": self.retries,
            "appCreatedTime": _ms(self.created),
            "appLaunchedTime": _ms(self.launched),
            "appCompletedTime": _ms(self.ended),
            "appExitCode": shown,
            "appExitSpec": spec,
            "appExitMessages": messages,
            "appExitDiagnostics": None if self.code is None else "pod is terminated",
            "appExitTriggerTaskRoleName": self.trigger.role if self.trigger else None,
            "appExitTriggerTaskIndex": self.trigger.index if self.trigger else None,
        }
        return {"name": self.name, "jobStatus": status, "taskRoles": self._roles()}

    def _roles(self) -> dict[str, Any]:
        roles: dict[str, Any] = {}
        for task in self.tasks:
            entry = roles.setdefault(task.role, {"taskRoleStatus": {"name": task.role}, "taskStatuses": []})
            entry["taskStatuses"].append(
                {
                    "taskIndex": task.index,
                    "taskState": "WAITING" if task.started is None else "RUNNING",
                    "containerIp": "127.0.0.1",
                    "containerNodeName": "node-1" if task.started else None,
                    "containerExitCode": task.code,
                    "attemptId": task.attempt,
                    "retries": 0,
                }
            )
        return roles


def _ms(seconds: float | None) -> int | None:
    return None if seconds is None else int(seconds * 1000)
