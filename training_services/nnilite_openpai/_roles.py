"""Represent the task roles of a trial, wherever they were written: in the section, in the user's job, or nowhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nnilite.records import Json
from nnilite_openpai._config import OpenPaiConfig, PaiRoleConfig, RoleCompletion
from nnilite_openpai._template import rendered

ONLY_ROLE = "taskrole"
"""The role of trials with one role, under NNI's name."""
_IMAGE = "image"


@dataclass(frozen=True)
class PaiRole:
    """One task role. `body` is what protocol v2 says of it, but for its commands."""

    name: str
    reports: bool
    command: str
    """The user's command; "" for the trial command."""
    body: Mapping[str, Json]
    sku: str | None = None

    @property
    def instances(self) -> int:
        return int(self.body.get("instances", 1))

    def total(self, resource: str) -> int:
        """Return how much cpu, memoryMB or gpu all tasks of the role take."""
        return self.instances * int(self.body["resourcePerInstance"].get(resource) or 0)


def reporting_role(config: OpenPaiConfig) -> str:
    """Return the role that reports for the trial: the one with the configured name, else the first."""
    if config.reporting_role:
        return config.reporting_role
    if config.template is not None:
        return str(next(iter(config.template["taskRoles"])))
    return config.task_roles[0].name if config.task_roles else ONLY_ROLE


def make_roles(config: OpenPaiConfig, gpus: int | None) -> Sequence[PaiRole]:
    """Return the roles of one trial; `gpus` is the number that the experiment asks for."""
    template, speaker = config.template, reporting_role(config)
    if template is not None:
        return [
            _make_from_template(name, role, template, name == speaker) for name, role in template["taskRoles"].items()
        ]
    given = config.task_roles or [PaiRoleConfig(name=ONLY_ROLE)]
    images = name_images(config)
    return [_make_from_section(role, config, gpus, role.name == speaker, images) for role in given]


def name_images(config: OpenPaiConfig) -> Mapping[str, str]:
    """Return the names of the images of the section's roles in `prerequisites`."""
    used = dict.fromkeys(role.docker_image or config.docker_image for role in config.task_roles)
    return {uri: f"{_IMAGE}_{number}" for number, uri in enumerate(used or {config.docker_image: None})}


def _make_from_template(name: str, role: Mapping[str, Any], template: Mapping[str, Any], reports: bool) -> PaiRole:
    body = {key: value for key, value in role.items() if key != "commands"}
    return PaiRole(name, reports, rendered("\n".join(role["commands"]), template), {**body, "taskRetryCount": 0})


def _make_from_section(
    role: PaiRoleConfig, config: OpenPaiConfig, gpus: int | None, reports: bool, images: Mapping[str, str]
) -> PaiRole:
    completion = role.completion
    if completion is None:
        # The trial ends with its reporting role; otherwise a parameter server, for example, would run forever.
        completion = RoleCompletion(min_succeeded_instances=role.instances if reports else -1)
    succeeded = completion.min_succeeded_instances
    resources: dict[str, Json] = {
        "gpu": role.gpu_number if role.gpu_number is not None else gpus or 0,
        "cpu": role.cpu_number or config.trial_cpu_number,
        "memoryMB": role.memory_size or config.trial_memory_size,
    }
    if role.ports:
        resources["ports"] = dict(role.ports)
    body: dict[str, Json] = {
        "instances": role.instances,
        "completion": {
            "minFailedInstances": completion.min_failed_instances,
            "minSucceededInstances": role.instances if succeeded is None else succeeded,
        },
        "taskRetryCount": 0,
        "dockerImage": images[role.docker_image or config.docker_image],
        "resourcePerInstance": resources,
    }
    shm = role.shm_size or config.shm_size
    if shm:
        body["extraContainerOptions"] = {"shmMB": shm}
    return PaiRole(role.name, reports, role.command, body, role.gpu_type or config.gpu_type)
