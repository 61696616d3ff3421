"""Read a job of protocol v2 that the user has written: `openpaiConfig`, or the file `openpaiConfigFile`.

A task runs a keeper, so the user's commands travel to it in the job's secrets, where PAI does not replace `<%
$parameters.x %>`; that is done here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nnilite.errors import ConfigError, Place
from nnilite.yaml_files import load_yaml

_REFERENCE = re.compile(r"<%\s*\$(\w+)\.?([^%]*?)\s*%>")
_SHAPES: Mapping[str, type] = {
    "prerequisites": list,
    **dict.fromkeys(("secrets", "parameters", "defaults", "extras", "extras.hivedScheduler"), dict),
    "extras.storages": list,
}
_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")


def read_template(path: Path) -> Mapping[str, Any]:
    """Return the job in a file. Raises: ConfigError."""
    found = load_yaml(path)
    if not isinstance(found, Mapping):
        raise ConfigError("is not a job of PAI's protocol v2", Place(file=str(path)))
    return found


def check_template(template: Any, place: Place) -> None:
    """Check that trials can be made of a job. Raises: ConfigError with the first error."""
    wrong = _fault(template)
    if wrong:
        raise ConfigError(wrong, place)


def _fault(template: Any) -> str:
    if not isinstance(template, Mapping):
        return "must be a job of PAI's protocol v2"
    if str(template.get("protocolVersion")) != "2":
        if "taskRoles" in template and isinstance(template["taskRoles"], list):
            return "is a job of PAI before 1.0; convert it with `nnictl config convert --from openpai`"
        return "must have protocolVersion: 2"
    roles = template.get("taskRoles")
    if not isinstance(roles, Mapping) or not roles:
        return "must have taskRoles, with a name each"
    wrong = _find_fault_of_shape(template)
    if wrong:
        return wrong
    images = [
        entry.get("name")
        for entry in template.get("prerequisites") or []
        if isinstance(entry, Mapping) and entry.get("type") == "dockerimage"
    ]
    return next(filter(None, (_find_fault_of_role(name, role, template, images) for name, role in roles.items())), "")


def _find_fault_of_shape(template: Mapping[str, Any]) -> str:
    for name, kind in _SHAPES.items():
        content: Any = template
        for part in name.split("."):
            content = content.get(part) or {}
        if content and not isinstance(content, kind):
            return f"must have {name} as a {'list' if kind is list else 'mapping'}, not {content!r:.40}"
    storages = (template.get("extras") or {}).get("storages") or []
    if not all(isinstance(entry, Mapping) for entry in storages):
        return "must have mappings in extras.storages"
    return ""


def _find_fault_of_role(name: Any, role: Any, template: Mapping[str, Any], images: Sequence[Any]) -> str:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        return f"the name of a task role must have letters and digits only, not {name!r}"
    if not isinstance(role, Mapping):
        return f"the task role {name} must be a mapping"
    commands = role.get("commands")
    if not isinstance(commands, list) or not commands or not all(isinstance(word, str) for word in commands):
        return f"the task role {name} must have commands, a list of lines"
    resources = role.get("resourcePerInstance")
    if not isinstance(resources, Mapping) or not {"cpu", "memoryMB", "gpu"} <= set(resources):
        return f"the task role {name} must have resourcePerInstance with cpu, memoryMB and gpu"
    numbers = {"instances": role.get("instances", 1), **{key: resources[key] for key in ("cpu", "memoryMB", "gpu")}}
    odd = next((key for key, number in numbers.items() if not _is_whole(number)), "")
    if odd:
        return f"the task role {name} must have a whole number as {odd}, not {numbers[odd]!r:.40}"
    if role.get("dockerImage") not in images:
        return f"the task role {name} must have a dockerImage that is in prerequisites"
    try:
        rendered("\n".join(commands), template)
    except LookupError as error:
        return f"the commands of {name} cannot use {error.args[0]}, only $parameters and $secrets of this job"
    return ""


def _is_whole(value: Any) -> bool:
    try:
        int(value or 0)
    except (TypeError, ValueError, OverflowError):
        return False
    return True


def rendered(command: str, template: Mapping[str, Any]) -> str:
    """Replace the references in a command, as PAI would. Raises: LookupError with the reference that has no value.

    >>> rendered("train <% $parameters.lr %>", {"parameters": {"lr": 0.1}})
    'train 0.1'
    """

    def value(match: re.Match[str]) -> str:
        group, name = match.groups()
        values = template.get(group)
        if group not in ("parameters", "secrets") or not isinstance(values, Mapping) or name not in values:
            raise LookupError(match.group(0))
        return str(values[name])

    return _REFERENCE.sub(value, command)
