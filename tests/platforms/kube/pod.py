"""One pod on a node: its containers are processes of this machine.

Where a container would have a volume at a path, its process gets that volume's folder in place of the path, in its
arguments and variables; the same goes for the file of the termination message. Images of a registry under `.invalid`
cannot be pulled.

Whoever ends a pod (a deletion, a node that runs out of memory or is shut down), the order is a kubelet's: its
containers get SIGTERM first, and SIGKILL after the pod's grace; then their ends are told; and only then that the pod
has failed and why, or that it is gone. The reason comes a moment after the end: that order is the hardest to judge.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from nnilite_kubernetes._api import ApiError
from platforms.kube.client import PODS, now
from platforms.kube.names import resolve
from platforms.kube.volumes import Volumes, translated
from waiting import pause

if TYPE_CHECKING:
    from platforms.kube.node import Node

_TURN_S = 0.03
_RETRY_S = 0.2
_REASON_LATER_S = 0.5  # so much later than the end of its containers the reason of a pod's end is told
_QUICKEST_S = 0.5  # the first process of a container would ignore a signal that it does not handle yet
_IMAGES = {  # what images do by themselves
    "frameworkcontroller/frameworkbarrier": ["/bin/sh", "-c", 'echo export FB_X_IPS=127.0.0.1 > "$0"/injector.sh'],
}


# Such pods see neither the files of tests nor any network. They share the Python of this machine, as it were an image.
_APART = ["unshare", "--mount", "--net", "--", "sh", "-c", 'mount -t tmpfs none /tmp && exec "$@"', "sh"]


class Run:
    """A pod, from its creation to its deletion."""

    def __init__(self, node: Node, pod: Any) -> None:
        self.node = node
        self.uid, self.name = pod["metadata"]["uid"], pod["metadata"]["name"]
        self.folder = node.folder / self.uid
        self.thread = threading.Thread(target=self._run, name=self.name, daemon=True)
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._copiers: list[threading.Thread] = []
        self._pod = pod
        self._volumes = Volumes(node, pod["spec"], self.folder)
        self.frozen = False  # as if its node did not answer: nothing is ended, and nothing is told
        self._ended_by_node: tuple[str, str] | None = None  # reason and message

    def kill(self) -> None:
        """All that runs in it, whatever sessions it has made, as the end of a container does."""
        for process in list(self._processes.values()):  # the pod's own thread may start another one
            inner = _descendants(process.pid)
            _signal(process, signal.SIGKILL)
            for each in inner:
                with contextlib.suppress(psutil.NoSuchProcess):
                    each.kill()

    def printed_all(self, container: str) -> bool:
        """Whether a container has ended and its log is whole."""
        number = list(self._processes).index(container)
        return self._processes[container].poll() is not None and not self._copiers[number].is_alive()

    def execute(self, container: str, command: list[str]) -> subprocess.Popen[bytes]:
        """Another process in a container that runs."""
        [own] = [each for each in self._pod["spec"]["containers"] if each["name"] == container]
        places, pipe = self._find_places(own), subprocess.PIPE
        words = [translated(word, places) for word in command]
        if self.node.apart:
            words = ["nsenter", "-t", str(self._processes[container].pid), "-m", "-n", "--", *words]
        return subprocess.Popen(words, cwd=self.folder, stdin=pipe, stdout=pipe, stderr=pipe)

    def end(self, reason: str, message: str) -> None:
        """As a node does that runs out of something (Evicted) or is shut down (Terminated): the pod stays, failed."""
        self._ended_by_node = (reason, message)

    def signal(self, container: str) -> None:
        """Send SIGTERM to the first process of a container, which is nothing that the cluster would hear of."""
        _signal(self._processes[container], signal.SIGTERM, group=False)

    def _run(self) -> None:
        try:
            if self._await_node() and self._await_images() and self._await_volumes() and self._run_init():
                self._run_main()
            while not self._over():
                pause(_TURN_S, "the next look at the pod")
        finally:
            if not self.node.closed:
                self._leave()
            shutil.rmtree(self.folder, ignore_errors=True)

    def _leave(self) -> None:
        """Let the pod's object go, however long the server may be away."""
        place = (PODS, self.node.namespace, self.name, self.uid)
        self._retry(lambda: self.node.api.delete(*place, gracePeriodSeconds=0))

    def _get_current(self) -> Any | None:
        """The pod's object; None if it is gone."""
        found = self.node.get(PODS, self.name)
        if found is None or found["metadata"]["uid"] != self.uid:
            return None
        self._pod = found
        return found

    def _over(self) -> bool:
        """Whether the pod is to end."""
        if self.frozen:
            return self.node.closed
        pod = self._get_current()
        return pod is None or bool(pod["metadata"].get("deletionTimestamp")) or self.node.closed

    def _retry(self, call: Any) -> None:
        """Make a request until the server answers."""
        while not self.node.closed:
            try:
                call()
                return
            except ApiError as error:
                if not error.passing:
                    raise
                pause(_RETRY_S, "the next try, as a kubelet has it")

    def _tell(self, **status: Any) -> None:
        place = (PODS, self.node.namespace, self.name, {"metadata": {"uid": self.uid}, "status": status}, "status")
        if self._get_current() is not None:
            self._retry(lambda: self.node.api.patch(*place))

    # what it waits for

    def _await_node(self) -> bool:
        told = ""
        while not self._over():
            try:
                lack = self.node.lacks(self._pod)
            except ApiError:
                pause(_RETRY_S, "the next try, as a kubelet has it")
                continue
            if not lack:
                return self._bind()
            if lack != told:
                told = lack
                entry = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": lack}
                self._tell(conditions=[entry])
            pause(_RETRY_S, "the next try, as a kubelet has it")
        return False

    def _bind(self) -> bool:
        # Another pod may have the name by now, and would be bound without anybody who runs it.
        binding = {"metadata": {"name": self.name, "uid": self.uid}, "target": {"kind": "Node", "name": self.node.name}}
        path = f"/api/v1/namespaces/{self.node.namespace}/pods/{self.name}/binding"
        call = self.node.api.cluster.call
        try:
            self._retry(lambda: call("POST", path, {"apiVersion": "v1", "kind": "Binding", **binding}))
        except ApiError as error:
            if error.status in (403, 404, 409):  # deleted meanwhile, or its namespace
                return False
            raise
        return not self._over()

    def _await_images(self) -> bool:
        bad = [c for c in self._pod["spec"]["containers"] if c["image"].partition("/")[0].endswith(".invalid")]
        if not bad:
            return True
        waiting = {"reason": "ImagePullBackOff", "message": "Back-off pulling image: not found"}
        self._tell(startTime=now(), containerStatuses=[_status(c, {"waiting": waiting}) for c in bad])
        return False

    def _await_volumes(self) -> bool:
        """Volumes from Secrets and ConfigMaps appear when those do."""
        while not self._over():
            if self._volumes.mounted():
                return True
            pause(_TURN_S, "the next look at the pod")
        return False

    # containers

    def _run_init(self) -> bool:
        for container in self._pod["spec"].get("initContainers") or []:
            self._start(container)
            self._wait([container["name"]])
            if self._processes[container["name"]].returncode != 0:
                self._finish([container], "Failed", part="initContainerStatuses")
                return False
        return True

    def _run_main(self) -> None:
        if self._over():
            return
        containers = self._pod["spec"]["containers"]
        started = now()
        for container in containers:
            self._start(container)
        states = [_status(container, {"running": {"startedAt": started}}) for container in containers]
        self._tell(phase="Running", containerStatuses=states, startTime=started, podIP="127.0.0.1")
        names = [container["name"] for container in containers]
        self._wait(names)
        good = all(self._processes[name].returncode == 0 for name in names)
        self._finish(containers, "Succeeded" if good else "Failed", started)

    def _start(self, container: Any) -> None:
        places = self._find_places(container)
        built_in = _IMAGES.get(container["image"], ["/bin/sleep", "1000"])  # also what operators run by default
        command = [*(container.get("command") or built_in), *(container.get("args") or [])]
        environment = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "HOME": str(self.folder)}
        environment["HOSTNAME"] = self.name
        for entry in container.get("env") or []:
            environment[entry["name"]] = translated(self._value(entry), places)
        self.folder.mkdir(mode=0o700, exist_ok=True)
        words = [*(translated(word, places) for word in command), *_arguments(container, places)]
        process = subprocess.Popen(
            [*_APART, *words] if self.node.apart else words,
            env=environment,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self._processes[container["name"]] = process
        lines = self.node.logs.setdefault((self.uid, container["name"]), [])
        self._copiers.append(threading.Thread(target=_copy, args=(process, lines), daemon=True))
        self._copiers[-1].start()

    def _find_places(self, container: Any) -> dict[str, str]:
        message = container.get("terminationMessagePath") or "/dev/termination-log"
        return {message: str(self._find_message_file(container["name"])), **self._volumes.places(container)}

    def _value(self, entry: Any) -> str:
        """What a variable is set to."""
        if "valueFrom" not in entry:
            return resolve(str(entry.get("value", "")), self._pod, self.node.services())
        path = entry["valueFrom"]["fieldRef"]["fieldPath"]
        if path == "spec.nodeName":
            return self.node.name
        part, bracket, name = path.removeprefix("metadata.").partition("['")
        found = self._pod["metadata"].get(part) or {}
        return str(found.get(name.removesuffix("']"), "") if bracket else found)

    def _find_message_file(self, container: str) -> Path:
        return self.folder / f"{container}.message"

    def _wait(self, names: list[str]) -> None:
        """Wait until containers have ended, and end them when the pod is to end."""
        kill_at, earliest = None, time.monotonic() + _QUICKEST_S
        while any(self._processes[name].poll() is None for name in names):
            pause(_TURN_S, "the next look at the pod")
            ending = self._over() or self._ended_by_node is not None
            if kill_at is None and ending and time.monotonic() > earliest:
                kill_at = time.monotonic() + self._compute_grace_s()
                for name in names:
                    _signal(self._processes[name], signal.SIGTERM, group=False)
            elif kill_at is not None and (time.monotonic() > kill_at or self.node.closed):
                self.kill()
            self._volumes.refresh()

    def _compute_grace_s(self) -> float:
        asked = self._pod["metadata"].get("deletionGracePeriodSeconds")
        return float(self._pod["spec"].get("terminationGracePeriodSeconds", 30) if asked is None else asked)

    def _finish(self, containers: list[Any], phase: str, started: str = "", part: str = "containerStatuses") -> None:
        states = []
        for container in containers:
            process = self._processes[container["name"]]
            _signal(process, signal.SIGKILL)
            code = process.wait(60)
            ended = {"exitCode": 128 - code if code < 0 else code, "finishedAt": now(), "startedAt": started or now()}
            message = self._find_message_file(container["name"])
            text = message.read_text()[:4096] if message.exists() else ""
            state = {"terminated": {**ended, "reason": "Completed" if code == 0 else "Error", "message": text}}
            states.append(_status(container, state))
        for copier in self._copiers:
            copier.join(2)  # the log is whole when the end is told
        if self._ended_by_node is None:
            self._tell(phase=phase, **{part: states})
            return
        self._tell(**{part: states})
        pause(_REASON_LATER_S, "the reason comes later than the end")
        reason, message = self._ended_by_node
        self._tell(phase="Failed", reason=reason, message=message)


def _status(container: Any, state: Any) -> dict[str, Any]:
    """What a pod's status says of a container."""
    digest = hashlib.sha256(container["image"].encode()).hexdigest()
    known = {"name": container["name"], "image": container["image"], "restartCount": 0}
    known["imageID"] = "" if "waiting" in state else f"docker-pullable://{container['image']}@sha256:{digest}"
    return {**known, "ready": "running" in state, "state": state}


def _arguments(container: Any, places: dict[str, str]) -> list[str]:
    """For what images do by themselves: where their volume is."""
    mounts = container.get("volumeMounts") or []
    return [places[mounts[0]["mountPath"]]] if container["image"] in _IMAGES and "command" not in container else []


def _signal(process: subprocess.Popen[bytes], number: int, group: bool = True) -> None:
    try:
        (os.killpg if group else os.kill)(process.pid, number)
    except ProcessLookupError:
        pass


def _descendants(pid: int) -> list[psutil.Process]:
    try:
        return list(psutil.Process(pid).children(recursive=True))
    except psutil.NoSuchProcess:
        return []


def _copy(process: subprocess.Popen[bytes], lines: list[tuple[str, bytes]]) -> None:
    assert process.stdout is not None
    with process.stdout as stream:
        for line in stream:
            whole, part = divmod(time.time_ns(), 10**9)
            stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(whole))
            lines.append((f"{stamp}.{part:09d}Z", line.rstrip(b"\n")))
