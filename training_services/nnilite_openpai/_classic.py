"""Convert job files of OpenPAI before 1.0 (JSON, as its web page and NNI's paiYarn sent them) to a section.

A field that is in no table is misspelt; one without a counterpart becomes a note on what to do instead.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from nnilite.conversion import Conversion
from nnilite.errors import ConfigError, Place
from nnilite.records import Json
from nnilite_openpai._roles import ONLY_ROLE

_FOLDERS = {
    "codeDir": "trialCodeDirectory names the code on the manager's machine",
    "dataDir": "copy the data to a storage of the cluster, and name that by storageConfigName",
    "outputDir": "trials write to $NNI_OUTPUT_DIR, which is kept if storageConfigName names a storage",
}
_SPEAKERS = ("chief", "master", "worker")
"""The names of roles that end with the training, as parameter servers do not, best first."""
_VARIABLES = r"\b(PAI_(?:TASK_ROLE_TASK_COUNT|TASK_ROLE|RESOURCE|HOST_IP|PORT_LIST)_)"
"""Those with the name of a role, which follows."""
_JOB = (
    "jobName",
    "image",
    "authFile",
    *_FOLDERS,
    "virtualCluster",
    "gpuType",
    "retryCount",
    "taskRoles",
    "killAllOnCompletedTaskNumber",
    "extras",
    "jobEnvs",
)
_ROLE = (
    "name",
    "taskNumber",
    "cpuNumber",
    "memoryMB",
    "shmMB",
    "gpuNumber",
    "portList",
    "command",
    "minFailedTaskCount",
    "minSucceededTaskCount",
)


def convert(document: Mapping[str, Any]) -> Conversion:
    """Convert a job. Raises: ConfigError for a file that is not such a job, or cannot become trials."""
    if "protocolVersion" in document:
        raise ConfigError(
            "is a job of protocol v2, which needs no conversion: set openpaiConfigFile to the file",
            Place(field="protocolVersion"),
        )
    _check_fields(document, _JOB, "")
    roles = document.get("taskRoles")
    if not isinstance(roles, list) or not roles:
        raise ConfigError("must be a list of task roles", Place(field="taskRoles"))
    if not isinstance(document.get("image"), str):
        raise ConfigError("is missing: the image in which tasks run", Place(field="image"))
    return _ClassicConverter(document).converted(roles)


class _ClassicConverter:
    """One conversion."""

    def __init__(self, old: Mapping[str, Any]) -> None:
        self._old = old
        self._notes: list[str] = []
        self._renamed: dict[str, str] = {}

    def converted(self, roles: list[Any]) -> Conversion:
        service: dict[str, Json] = {
            "platform": "openpai",
            "host": "https://pai.example.com",
            "username": "USER",
            "token": "${env:PAI_TOKEN}",
            "dockerImage": self._old["image"],
        }
        self._notes.append("host, username and token are not part of a job: write yours in their place")
        for name in ("virtualCluster", "gpuType"):
            if self._old.get(name):
                service[name] = self._old[name]
        if self._old.get("authFile"):
            service["registryLogin"] = {"username": "USER", "password": "${env:REGISTRY_PASSWORD}"}
            self._notes.append(
                "authFile: PAI no longer reads it; write its three lines (registry, user and password) to registryLogin"
            )
        ends_all = self._old.get("killAllOnCompletedTaskNumber") == 1
        converted = self._roles(roles, ends_all)
        service["taskRoles"] = list(converted)
        speaker = _choose_speaker(converted)
        self._kill_all(sum(role["instances"] for role in converted), speaker["instances"])
        if len(roles) > 1:
            service["reportingRole"] = speaker["name"]
            self._notes.append(
                f"reportingRole: {speaker['name']} reports for the trial, which ends with it; set another one if needed"
            )
        self._folders()
        config: dict[str, Json] = {"trainingService": service}
        retries = self._convert_retries()
        if retries:
            config["maxTrialRetries"] = retries
        return Conversion(config, tuple(self._notes))

    def _kill_all(self, tasks: int, reporting: int) -> None:
        """Convert the count that ends the job.

        One task that succeeds can end it, all of the reporting role do, and all of the job, but no other number.
        """
        number = self._old.get("killAllOnCompletedTaskNumber") or 0
        if number not in range(2) and number not in (tasks, reporting):
            self._notes.append(
                f"killAllOnCompletedTaskNumber: {number} of all tasks is not possible; minSucceededInstances counts "
                "the tasks of one role"
            )

    def _convert_retries(self) -> int:
        """Convert retryCount to that of the trial; -1 and -2 have been PAI's own rules."""
        count = self._old.get("retryCount") or 0
        if not isinstance(count, int) or isinstance(count, bool):
            raise ConfigError("must be a whole number", Place(field="retryCount"))
        if count < 0:
            self._notes.append(f"retryCount: {count} has no meaning here; trials that the platform lost are retried")
        return max(0, count)

    def _folders(self) -> None:
        for name, cure in _FOLDERS.items():
            if self._old.get(name):
                self._notes.append(f"{name}: HDFS no longer exists; {cure}")
        for name in ("extras", "jobEnvs"):
            if self._old.get(name):
                self._notes.append(f"{name} was left out: PAI after 1.0 has no such field")

    def _roles(self, roles: list[Any], ends_all: bool) -> list[dict[str, Any]]:
        """Convert the roles, and the names of roles in the variables that their commands read."""
        found: list[dict[str, Any]] = []
        for number, role in enumerate(roles):
            found.append(self._role(number, role, ends_all, [one["name"] for one in found]))
        for role in found:
            role["command"] = self._rewrite_names(role["command"], role["name"])
        return found

    def _rewrite_names(self, command: str, role: str) -> str:
        if not self._renamed:
            return command
        # The longest first: `ps` may be renamed, too, and `ps_server` begins so.
        names = "|".join(map(re.escape, sorted(self._renamed, key=len, reverse=True)))
        if "PAI_CURRENT_TASK_ROLE_NAME" in command or "PAI_TASK_ROLE_LIST" in command:
            self._notes.append(f"the command of {role} reads names of roles from a variable, which has the new names")
        return re.sub(rf"{_VARIABLES}({names})(?=_|\b)", lambda found: found[1] + self._renamed[found[2]], command)

    def _role(self, number: int, role: Any, ends_all: bool, taken: Sequence[str]) -> dict[str, Any]:
        place = f"taskRoles.{number}"
        if not isinstance(role, Mapping):
            raise ConfigError("must be a mapping", Place(field=place))
        _check_fields(role, _ROLE, f"{place}.")
        name = self._name(str(role.get("name") or ""), place, taken)
        new: dict[str, Any] = {"name": name, "instances": _count(role, "taskNumber", place)}
        if not isinstance(role.get("command"), str) or not role["command"].strip():
            raise ConfigError("is missing: what runs in a task", Place(field=f"{place}.command"))
        new["command"] = role["command"]
        if role.get("cpuNumber"):
            new["cpuNumber"] = _count(role, "cpuNumber", place)
        if role.get("memoryMB"):
            new["memorySize"] = f"{_count(role, 'memoryMB', place)}mb"
        new["gpuNumber"] = _count(role, "gpuNumber", place, 0)
        if role.get("shmMB"):
            new["shmSize"] = f"{_count(role, 'shmMB', place)}mb"
        if role.get("portList"):
            new["ports"] = self._ports(role["portList"], place)
        completion = _convert_completion(role, ends_all)
        if completion:
            new["completion"] = completion
        self._check_own_variables(role["command"], name)
        return new

    def _name(self, old: str, place: str, taken: Sequence[str]) -> str:
        """Return a role's name, as variables have it without any change. One without a name gets that of NNI."""
        new = re.sub(r"[^a-z0-9]", "", (old or ONLY_ROLE).lower())
        if not new or not new[0].isalpha():
            raise ConfigError("must begin with a letter", Place(field=f"{place}.name"))
        while new in taken:
            new += "2"
        if old and new != old:
            self._renamed[old] = new
            self._notes.append(
                f"the task role {old} was renamed to {new}, since names have small letters and digits; so were its "
                f"variables in the commands, such as PAI_TASK_ROLE_{new}_HOST_LIST. Rename them in your scripts"
            )
        return new

    def _ports(self, old: Any, place: str) -> dict[str, Json]:
        if not isinstance(old, list) or not all(isinstance(port, Mapping) and port.get("label") for port in old):
            raise ConfigError("must be a list of ports with a label each", Place(field=f"{place}.portList"))
        if any(port.get("beginAt") for port in old):
            self._notes.append("beginAt of portList was left out: PAI after 1.0 chooses the numbers of ports")
        return {str(port["label"]): _count(port, "portNumber", f"{place}.portList") for port in old}

    def _check_own_variables(self, command: str, role: str) -> None:
        for name in sorted(set(re.findall(r"PAI_(?:DEFAULT_FS_URI|CODE_DIR|DATA_DIR|OUTPUT_DIR|USERNAME)\b", command))):
            self._notes.append(f"the command of {role} reads ${name}, which PAI after 1.0 does not set")


def _choose_speaker(roles: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the role that most likely ends with the training, and reports its result."""
    by_name = [role for name in _SPEAKERS for role in roles if role["name"].rstrip("0123456789") == name]
    with_gpus = [role for role in roles if role["gpuNumber"]]
    return next(iter(by_name or with_gpus), roles[-1])


def _convert_completion(role: Mapping[str, Any], ends_all: bool) -> dict[str, Json]:
    """Convert the counts. Before PAI 1.0, null and 0 mean that a count is not set; -1 that it never ends the job."""
    found: dict[str, Json] = {}
    if role.get("minFailedTaskCount"):
        found["minFailedInstances"] = role["minFailedTaskCount"]
    if role.get("minSucceededTaskCount"):
        found["minSucceededInstances"] = role["minSucceededTaskCount"]
    elif ends_all:
        found["minSucceededInstances"] = 1
    return found


def _count(entry: Mapping[str, Any], name: str, place: str, default: int = 1) -> int:
    value = entry.get(name, default)
    least = 0 if name == "gpuNumber" else 1
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ConfigError(f"must be a whole number of at least {least}, not {value!r}", Place(field=f"{place}.{name}"))
    return value


def _check_fields(entry: Mapping[Any, Any], known: tuple[str, ...], place: str) -> None:
    for key in entry:
        if key not in known:
            raise ConfigError(
                f"is not a field of a job of PAI before 1.0; the fields are {', '.join(known)}",
                Place(field=f"{place}{key}"),
            )
