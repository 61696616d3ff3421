"""The volumes of one pod, as folders of this machine, and the words in which paths of containers stand for them."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import TYPE_CHECKING, Any

from platforms.kube.client import MAPS, SECRETS

if TYPE_CHECKING:
    from platforms.kube.node import Node

_SHARED = (("persistentVolumeClaim", "claimName"), ("nfs", ""), ("azureFile", "shareName"))


class Volumes:
    """`folder` is the pod's own; what several pods share lies in the node's `storage`."""

    def __init__(self, node: Node, spec: Any, folder: Path) -> None:
        self._node = node
        self._volumes = {volume["name"]: volume for volume in spec.get("volumes") or []}
        self._folder = folder
        self._filled: dict[str, Any] = {}
        """What each volume was filled from: as long as the node knows no newer object, nothing is to be done."""

    def mounted(self) -> bool:
        """Bring all of them up to date; False if what one of them is made of is not there yet."""
        return all(self._mount(volume) for volume in self._volumes.values())

    def refresh(self) -> None:
        """Mounted Secrets and ConfigMaps follow theirs."""
        for volume in self._volumes.values():
            if {"secret", "configMap"} & set(volume):
                self._mount(volume)

    def places(self, container: Any) -> dict[str, str]:
        """The folder that a container finds at each of its paths."""
        found = {}
        for mount in container.get("volumeMounts") or []:
            place = self._place(self._volumes[mount["name"]]) / mount.get("subPath", "")
            place.mkdir(mode=0o700, parents=True, exist_ok=True)
            found[mount["mountPath"]] = str(place)
        return found

    def _mount(self, volume: Any) -> bool:
        place = self._place(volume)
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        if "configMap" in volume:
            found = self._node.get(MAPS, volume["configMap"]["name"])
            if self._is_new(volume, found):
                _fill(place, {key: text.encode() for key, text in (found.get("data") or {}).items()}, 0o755)
            return found is not None
        if "secret" in volume:
            found = self._node.get(SECRETS, volume["secret"]["secretName"])
            if self._is_new(volume, found):
                data = {key: base64.b64decode(value) for key, value in (found.get("data") or {}).items()}
                _fill(place, data, 0o600)
            return found is not None
        return True

    def _is_new(self, volume: Any, found: Any | None) -> bool:
        """Whether a volume was filled from another object, which is kept as its last one then."""
        known, self._filled[volume["name"]] = self._filled.get(volume["name"]), found
        return found is not None and found is not known

    def _place(self, volume: Any) -> Path:
        for kind, name in _SHARED:
            if kind in volume:
                return self._node.folder / "storage" / str(volume[kind].get(name) or "nfs")
        return self._folder / "volumes" / str(volume["name"])


def translated(text: str, places: dict[str, str]) -> str:
    """A word with the folders of volumes in place of the paths in the container."""
    for path, local in places.items():
        if text == path or text.startswith(f"{path}/"):
            return local + text[len(path) :]
    return text


def _fill(folder: Path, files: dict[str, bytes], mode: int) -> None:
    for name, data in files.items():
        target = folder / name
        if target.exists() and target.read_bytes() == data:
            continue
        draft = folder / f".{name}.new"
        draft.touch(mode=0o600)
        draft.write_bytes(data)
        draft.chmod(mode)
        draft.replace(target)
