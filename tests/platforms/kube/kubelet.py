"""Runs the containers of pods as processes of this machine, tells their states and keeps their logs.

Where a container would have a volume at a path, its process gets that volume's folder in place of the path, in its
arguments and variables; the same goes for the file of the termination message.
"""

from __future__ import annotations

import base64
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from platforms.kube.server import Refusal
from platforms.kube.store import Store, now

PODS = ("", "v1", "pods")
SECRETS = ("", "v1", "secrets")
MAPS = ("", "v1", "configmaps")
_TURN_S = 0.03
_QUICKEST_S = 0.5  # the first process of a container would ignore a signal that it does not handle yet
IMAGES = {  # what images do by themselves
    "frameworkcontroller/frameworkbarrier": ["/bin/sh", "-c", 'echo export FB_X_IPS=127.0.0.1 > "$0"/injector.sh'],
}


class Kubelet:
    """One node. `bad_images` cannot be pulled; pods wait for a node while `full` says why there is none."""

    def __init__(self, store: Store, folder: Path) -> None:
        self.bad_images: set[str] = set()
        self.full = ""
        self.store = store
        self.folder = folder
        self.closed = False
        self._known: set[str] = set()
        self.logs: dict[tuple[str, str], list[tuple[str, bytes]]] = {}
        self.runs: dict[str, _Run] = {}
        self._thread = threading.Thread(target=self._loop, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self.closed = True
        self._thread.join(5)
        for run in list(self.runs.values()):
            run.kill()
            run.thread.join(5)

    def _loop(self) -> None:
        while not self.closed:
            for pod in self.store.all(PODS):
                uid = pod["metadata"]["uid"]
                if uid not in self._known:
                    self._known.add(uid)
                    self.runs[uid] = run = _Run(self, pod)
                    run.thread.start()
            with self.store.changed:
                self.store.changed.wait(0.2)

    def read_log(self, namespace: str, name: str, query: dict[str, str]) -> bytes:
        pod = self.store.get(PODS, namespace, name)
        if pod is None:
            raise Refusal(404, "NotFound", f'pods "{name}" not found')
        lines = self.logs.get((pod["metadata"]["uid"], query["container"]))
        if lines is None:
            raise Refusal(400, "BadRequest", f'container "{query["container"]}" is waiting to start')
        since = query.get("sinceTime", "").rstrip("Z")
        return b"".join(f"{time} ".encode() + line + b"\n" for time, line in list(lines) if time >= since)

    def run_of(self, name: str) -> _Run:
        """The run of the newest pod of that name."""
        return [run for run in self.runs.values() if run.name == name][-1]


class _Run:
    """One pod, from its creation to its deletion."""

    def __init__(self, kubelet: Kubelet, pod: Any) -> None:
        metadata = pod["metadata"]
        self.kubelet, self.uid = kubelet, metadata["uid"]
        self.place = (PODS, metadata["namespace"], metadata["name"])
        self.name = metadata["name"]
        self.folder = kubelet.folder / self.uid
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.thread = threading.Thread(target=self._run, daemon=True)

    def pod(self) -> Any | None:
        found = self.kubelet.store.get(*self.place)
        return found if found is not None and found["metadata"]["uid"] == self.uid else None

    def kill(self) -> None:
        for process in self.processes.values():
            _signal(process, signal.SIGKILL)

    def _run(self) -> None:
        try:
            if self._await_node() and self._await_images() and self._await_volumes() and self._run_init():
                self._run_main()
            while not self._over():
                time.sleep(_TURN_S)
        finally:
            pod = self.pod()
            if pod is not None and not self.kubelet.closed:
                self.kubelet.store.remove(*self.place)
                self.kubelet.store.collect()
            shutil.rmtree(self.folder, ignore_errors=True)

    def _over(self) -> bool:
        pod = self.pod()
        return pod is None or bool(pod["metadata"].get("deletionTimestamp")) or self.kubelet.closed

    def _await_node(self) -> bool:
        while self.kubelet.full:
            self._condition("False", "Unschedulable", self.kubelet.full)
            if self._over():
                return False
            time.sleep(_TURN_S)
        self._condition("True", "", "")
        self._change(lambda pod: pod["spec"].update(nodeName="node-1"))
        return not self._over()

    def _condition(self, status: str, reason: str, message: str) -> None:
        entry = {"type": "PodScheduled", "status": status, "reason": reason, "message": message}
        self._status(phase="Pending", conditions=[entry])

    def _await_images(self) -> bool:
        pod = self.pod()
        while pod is not None and not self._over():
            bad = [c for c in pod["spec"]["containers"] if c["image"] in self.kubelet.bad_images]
            if not bad:
                return True
            waiting = {"reason": "ImagePullBackOff", "message": "Back-off pulling image: not found"}
            states = [{"name": c["name"], "image": c["image"], "state": {"waiting": waiting}} for c in bad]
            self._status(startTime=pod["metadata"]["creationTimestamp"], containerStatuses=states)
            time.sleep(_TURN_S)
        return False

    def _await_volumes(self) -> bool:
        """Volumes from Secrets appear when those do."""
        while not self._over():
            pod = self.pod()
            if pod is None:
                return False
            if all(self._mount(volume, pod) for volume in pod["spec"].get("volumes") or []):
                return True
            time.sleep(_TURN_S)
        return False

    def _mount(self, volume: Any, pod: Any) -> bool:
        place = self._volume(volume)
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        if "configMap" in volume:
            return self._mount_map(volume, place)
        if "secret" not in volume:
            return True
        found = self.kubelet.store.get(SECRETS, self.place[1], volume["secret"]["secretName"])
        for key, value in ((found or {}).get("data") or {}).items():
            draft = place / f".{key}.new"
            draft.touch(mode=0o600)
            draft.write_bytes(base64.b64decode(value))
            draft.replace(place / key)
        return found is not None

    def _mount_map(self, volume: Any, place: Path) -> bool:
        found = self.kubelet.store.get(MAPS, self.place[1], volume["configMap"]["name"])
        for key, text in ((found or {}).get("data") or {}).items():
            draft = place / f".{key}.new"
            draft.write_text(text)
            draft.chmod(0o755)
            draft.replace(place / key)
        return found is not None

    def _volume(self, volume: Any) -> Path:
        for kind in ("persistentVolumeClaim", "nfs"):
            if kind in volume:
                return self.kubelet.folder / "storage" / str(volume[kind].get("claimName") or "nfs")
        return self.folder / "volumes" / volume["name"]

    # containers

    def _run_init(self) -> bool:
        pod = self.pod()
        for container in (pod or {"spec": {}})["spec"].get("initContainers") or []:
            self._start(pod, container)
            self._wait([container["name"]])
            if self.processes[container["name"]].returncode != 0:
                self._finish([container], "Failed")
                return False
        return pod is not None

    def _run_main(self) -> None:
        pod = self.pod()
        if pod is None or self._over():
            return
        containers = pod["spec"]["containers"]
        started = now()
        for container in containers:
            self._start(pod, container)
        states = [
            {"name": c["name"], "image": c["image"], "state": {"running": {"startedAt": started}}} for c in containers
        ]
        self._status(phase="Running", containerStatuses=states, startTime=started, podIP="127.0.0.1")
        names = [container["name"] for container in containers]
        self._wait(names)
        good = all(self.processes[name].returncode == 0 for name in names)
        self._finish(containers, "Succeeded" if good else "Failed", started)

    def _start(self, pod: Any, container: Any) -> None:
        places = self._places(pod, container)
        built_in = IMAGES.get(container["image"], ["/bin/sleep", "1000"])  # also what operators run by default
        command = [*(container.get("command") or built_in), *(container.get("args") or [])]
        environment = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "HOME": str(self.folder)}
        environment["HOSTNAME"] = self.name
        for entry in container.get("env") or []:
            environment[entry["name"]] = translated(_value(entry, pod), places)
        self.folder.mkdir(mode=0o700, exist_ok=True)
        process = subprocess.Popen(
            [*(translated(word, places) for word in command), *self._arguments(container, places)],
            env=environment,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self.processes[container["name"]] = process
        lines = self.kubelet.logs.setdefault((self.uid, container["name"]), [])
        threading.Thread(target=_copy, args=(process, lines), daemon=True).start()

    @staticmethod
    def _arguments(container: Any, places: dict[str, str]) -> list[str]:
        """For what images do by themselves: where their volume is."""
        mounts = container.get("volumeMounts") or []
        return [places[mounts[0]["mountPath"]]] if container["image"] in IMAGES and "command" not in container else []

    def _places(self, pod: Any, container: Any) -> dict[str, str]:
        volumes = {volume["name"]: volume for volume in pod["spec"].get("volumes") or []}
        found = {
            container.get("terminationMessagePath") or "/dev/termination-log": str(self._message(container["name"]))
        }
        for mount in container.get("volumeMounts") or []:
            place = self._volume(volumes[mount["name"]]) / mount.get("subPath", "")
            place.mkdir(mode=0o700, parents=True, exist_ok=True)
            found[mount["mountPath"]] = str(place)
        return found

    def _message(self, container: str) -> Path:
        return self.folder / f"{container}.message"

    def _wait(self, names: list[str]) -> None:
        kill_at, earliest = None, time.monotonic() + _QUICKEST_S
        while any(self.processes[name].poll() is None for name in names):
            time.sleep(_TURN_S)
            if kill_at is None and self._over() and time.monotonic() > earliest:
                pod = self.pod() or {"spec": {}}
                kill_at = time.monotonic() + float(pod["spec"].get("terminationGracePeriodSeconds") or 30)
                for name in names:
                    _signal(self.processes[name], signal.SIGTERM, group=False)
            elif kill_at is not None and (time.monotonic() > kill_at or self.kubelet.closed):
                self.kill()
            self._refresh()

    def _refresh(self) -> None:
        """Mounted Secrets follow theirs."""
        pod = self.pod()
        for volume in (pod or {"spec": {}})["spec"].get("volumes") or []:
            if {"secret", "configMap"} & set(volume):
                self._mount(volume, pod)

    def _finish(self, containers: list[Any], phase: str, started: str = "") -> None:
        states = []
        for container in containers:
            process = self.processes[container["name"]]
            _signal(process, signal.SIGKILL)
            code = process.wait(10)
            ended = {"exitCode": 128 - code if code < 0 else code, "finishedAt": now(), "startedAt": started or now()}
            message = self._message(container["name"])
            text = message.read_text()[:4096] if message.exists() else ""
            state = {"terminated": {**ended, "reason": "Completed" if code == 0 else "Error", "message": text}}
            states.append({"name": container["name"], "image": container["image"], "state": state})
        self._status(phase=phase, containerStatuses=states)

    def _status(self, **changes: Any) -> None:
        self._change(lambda pod: pod.setdefault("status", {}).update(changes))

    def _change(self, change: Any) -> None:
        if self.pod() is not None:
            self.kubelet.store.update(*self.place, change)


def translated(text: str, places: dict[str, str]) -> str:
    """A word with the folders of volumes in place of the paths in the container."""
    for path, local in places.items():
        if text == path or text.startswith(f"{path}/"):
            return local + text[len(path) :]
    return text


def _value(entry: Any, pod: Any) -> str:
    if "valueFrom" not in entry:
        return str(entry["value"])
    path = entry["valueFrom"]["fieldRef"]["fieldPath"]
    if path.startswith("metadata.labels['"):
        return str((pod["metadata"].get("labels") or {}).get(path[17:-2], ""))
    return str(pod["metadata"][path.removeprefix("metadata.")])


def _signal(process: subprocess.Popen[bytes], number: int, group: bool = True) -> None:
    try:
        (os.killpg if group else os.kill)(process.pid, number)
    except ProcessLookupError:
        pass


def _copy(process: subprocess.Popen[bytes], lines: list[tuple[str, bytes]]) -> None:
    assert process.stdout is not None
    with process.stdout as stream:
        for line in stream:
            whole, part = divmod(time.time_ns(), 10**9)
            stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(whole))
            lines.append((f"{stamp}.{part:09d}Z", line.rstrip(b"\n")))
