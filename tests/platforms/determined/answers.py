"""What the master tells, as its interface spells it."""

from __future__ import annotations

from typing import Any

from platforms.determined.cluster import TERMINAL, DeterminedCluster, DeterminedExperiment
from platforms.determined.container import now


def page(items: list[Any], query: dict[str, list[str]]) -> tuple[list[Any], dict[str, int]]:
    offset, limit = int((query.get("offset") or ["0"])[0]), int((query.get("limit") or ["0"])[0]) or 100
    shown = items[offset:] if limit < 0 else items[offset : offset + limit]
    end = offset + len(shown)
    return shown, {"offset": offset, "limit": limit, "startIndex": offset, "endIndex": end, "total": len(items)}


def experiment(cluster: DeterminedCluster, one: DeterminedExperiment) -> dict[str, Any]:
    config = one.config
    return {
        "id": one.number,
        "name": config["name"],
        "description": config.get("description") or "",
        "labels": config.get("labels") or [],
        "startTime": one.started,
        **({"endTime": one.ended} if one.ended else {}),
        "state": one.state,
        "archived": one.archived,
        "numTrials": 1 if one.runs else 0,
        "trialIds": [one.trial] if one.runs else [],
        "username": "determined",
        "userId": 2,
        "jobId": f"job-{one.number}",
        "resourcePool": one.pool,
        "searcherType": config["searcher"]["name"],
        "projectId": one.project,
        "projectOwnerId": 1,
        "originalConfig": one.text,
        "config": config,
        "notes": "",
    }


def trial(one: DeterminedExperiment) -> dict[str, Any]:
    return {
        "id": one.trial,
        "experimentId": one.number,
        "startTime": one.started,
        **({"endTime": one.ended} if one.ended else {}),
        "state": one.state,
        "restarts": one.restarts,
        "hparams": {},
        "totalBatchesProcessed": 0,
        "taskId": one.task,
        "taskIds": [one.task],
    }


def task(one: DeterminedExperiment) -> dict[str, Any]:
    return {
        "taskId": one.task,
        "taskType": "TASK_TYPE_TRIAL",
        "allocations": [dict(each) for each in one.allocations],
        "startTime": one.started,
    }


def queue(cluster: DeterminedCluster) -> list[dict[str, Any]]:
    waiting = [one for one in cluster.experiments.values() if one.state not in (*TERMINAL, "STATE_PAUSED")]
    return [
        {
            "summary": {
                "state": "STATE_SCHEDULED" if one.container else "STATE_QUEUED",
                "jobsAhead": sum(1 for each in waiting[:place] if each.container is None),
            },
            "type": "TYPE_EXPERIMENT",
            "submissionTime": one.started,
            "username": "determined",
            "resourcePool": one.pool,
            "isPreemptible": True,
            "entityId": str(one.number),
            "jobId": f"job-{one.number}",
            "requestedSlots": one.slots,
            "allocatedSlots": one.slots if one.container else 0,
            "name": one.config["name"],
            "workspaceId": 1,
        }
        for place, one in enumerate(waiting)
    ]


def pool(name: str, slots: int) -> dict[str, Any]:
    words = ("description", "location", "imageId", "instanceType", "masterUrl", "masterCertName", "startupScript")
    more = (
        "containerStartupScript",
        "agentDockerNetwork",
        "agentDockerRuntime",
        "agentDockerImage",
        "agentFluentImage",
    )
    numbers = ("slotsUsed", "auxContainersRunning", "minAgents", "maxAgents", "auxContainerCapacityPerAgent")
    return {
        **dict.fromkeys((*words, *more, "clusterName"), ""),
        **dict.fromkeys((*numbers, "maxIdleAgentPeriod", "maxAgentStartingPeriod"), 0),
        "name": name,
        "type": "RESOURCE_POOL_TYPE_STATIC",
        "numAgents": 1,
        "slotsAvailable": slots,
        "slotType": "TYPE_CPU" if name == "default" else "TYPE_CUDA",
        "auxContainerCapacity": 100,
        "defaultComputePool": name == "default",
        "defaultAuxPool": name == "default",
        "preemptible": False,
        "schedulerType": "SCHEDULER_TYPE_PRIORITY",
        "schedulerFittingPolicy": "FITTING_POLICY_BEST",
        "details": {},
        "resourceManagerMetadata": {},
    }


def workspace(number: int, name: str) -> dict[str, Any]:
    return {
        "id": number,
        "name": name,
        "archived": False,
        "username": "admin",
        "userId": 1,
        "immutable": False,
        "numProjects": 1,
        "numExperiments": 0,
        "pinned": False,
        "state": "WORKSPACE_STATE_UNSPECIFIED",
        "errorMessage": "",
    }


def user() -> dict[str, Any]:
    return {"id": 2, "username": "determined", "admin": False, "active": True, "modifiedAt": now()}


def about() -> dict[str, Any]:
    return {
        "version": "0.38.1",
        "masterId": "stand-in",
        "clusterId": "stand-in",
        "clusterName": "",
        "strictJobQueueControl": False,
        "hasCustomLogo": False,
    }
