"""One node: takes pods that have none, runs their containers as processes here, and serves their logs as kubelets do.

It is the scheduler too: a pod stays without a node while its nodeSelector asks for labels that the Node object lacks.
"""

from __future__ import annotations

import contextlib
import functools
import secrets
import ssl
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from nnilite.testing.listener import Handler, Listener
from nnilite_kubernetes._api import ApiError
from nnilite_kubernetes._informer import Informer
from platforms.kube.client import MAPS, PODS, SECRETS, SERVICES, Api, Key
from platforms.kube.pod import Run
from platforms.kube.streams import followed, send_pieces, serve_exec

_NODES = "/api/v1/nodes"
_LABELS = {"disk": "ssd"}


class Node:
    """Serves one namespace from `start` to `close`."""

    def __init__(self, api: Api, namespace: str, folder: Path, apart: bool = False) -> None:
        self.api = api
        self.apart = apart  # its pods see neither the files of this machine's /tmp nor its network
        self.namespace = namespace
        self.rotates_at = 0  # bytes of a container's log, as containerLogMaxSize of the kubelet; 0: never
        self.folder = folder
        self.name = f"node-{secrets.token_hex(4)}"
        self.closed = False
        self.runs: dict[str, Run] = {}
        self.logs: dict[tuple[str, str], list[tuple[str, bytes]]] = {}  # lines with their times, by pod and container
        self._informers: dict[Key, Informer] = {}
        self._kubelet = Listener(_Kubelet, self)
        self._changed = threading.Event()
        self._thread = threading.Thread(target=self._loop, name=self.name, daemon=True)

    def start(self) -> None:
        self.folder.mkdir(mode=0o700, parents=True)
        self._kubelet.tls = _certificate()
        self._kubelet.start()
        metadata = {"name": self.name, "labels": {**_LABELS, "kubernetes.io/hostname": self.name}}
        self.api.cluster.call("POST", _NODES, {"apiVersion": "v1", "kind": "Node", "metadata": metadata})
        status = {
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": self._kubelet.port}},
        }
        self.api.cluster.call("PATCH", f"{_NODES}/{self.name}/status", {"status": status}, kind="merge")
        for key in (PODS, SECRETS, MAPS, SERVICES):
            self._informers[key] = self.api.follow(key, self.namespace, self._changed.set)
        self._thread.start()

    def close(self) -> None:
        """Kill what runs. Nothing more is told to the cluster."""
        self.closed = True
        self._changed.set()
        self._thread.join(5)
        for run in list(self.runs.values()):
            run.kill()
            run.thread.join(5)
        with contextlib.suppress(ApiError):
            self.api.cluster.call("DELETE", f"{_NODES}/{self.name}")
        self._kubelet.stop()

    def _loop(self) -> None:
        while not self.closed:
            self._changed.clear()
            for pod in self._informers[PODS].all():
                uid = pod["metadata"]["uid"]
                if uid not in self.runs and not pod["spec"].get("nodeName"):
                    self.runs[uid] = run = Run(self, pod)
                    run.thread.start()
            self._changed.wait(1)

    def get(self, key: Key, name: str) -> Any | None:
        """A pod, Secret or ConfigMap, as far as the cluster has told."""
        return self._informers[key].get(name)

    def services(self) -> list[Any]:
        """The services of the namespace."""
        return self._informers[SERVICES].all()

    def lacks(self, pod: Any) -> str:
        """Why a pod cannot be here; "" if it can."""
        wanted = pod["spec"].get("nodeSelector") or {}
        mine = self.api.cluster.call("GET", f"{_NODES}/{self.name}")["metadata"]["labels"]
        if wanted.items() <= mine.items():
            return ""
        return "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector."

    def run_of(self, name: str) -> Run:
        """The run of the newest pod of that name."""
        return [run for run in self.runs.values() if run.name == name][-1]

    def log_of(self, name: str, container: str, follow: bool) -> Iterator[tuple[str, bytes]] | None:
        """The lines of a log with their times; None if the container has not been started."""
        runs = [run for run in self.runs.values() if run.name == name]
        lines = self.logs.get((runs[-1].uid, container)) if runs else None
        if lines is None:
            return None
        over = lambda: not follow or self.closed or runs[-1].printed_all(container)  # noqa: E731
        return followed(lines, over, self._rotated(lines))

    def _rotated(self, lines: list[tuple[str, bytes]]) -> int:
        """How many lines are in files that were rotated away, of which a new reader gets nothing.

        Source: ReadLogs in pkg/kubelet/kuberuntime/logs: it opens the file of now, and follows a rotation to the next.
        """
        gone, size = 0, 0
        for number, (_, line) in enumerate(lines[:-1] if self.rotates_at else []):
            size += len(line)
            if size >= self.rotates_at:
                gone, size = number + 1, 0
        return gone


class _Kubelet(Handler):
    owner: Node

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        _, kind, _, pod, container = map(unquote, parts.path.split("/"))
        if kind == "exec":
            command = [value for name, value in parse_qsl(parts.query) if name == "command"]
            serve_exec(self, lambda: self.owner.run_of(pod).execute(container, command))
            return
        assert kind == "containerLogs"
        query = dict(parse_qsl(parts.query))
        lines = self.owner.log_of(pod, container, query.get("follow") == "true")
        if lines is None:
            self.send(400, "text/plain", f'container "{container}" in pod "{pod}" is waiting to start'.encode())
            return
        since, stamped = query.get("sinceTime", "").rstrip("Z"), query.get("timestamps") == "true"
        texts = ((f"{time} ".encode() if stamped else b"") + line + b"\n" for time, line in lines if time >= since)
        send_pieces(self, texts)


@functools.cache
def _certificate() -> ssl.SSLContext:
    """What kubelets show by default: a certificate that nobody else has signed. One for this process."""
    with tempfile.TemporaryDirectory() as folder:
        key, certificate = f"{folder}/kubelet.key", f"{folder}/kubelet.crt"
        kind = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", "/CN=kubelet"]
        command = ["openssl", "req", "-x509", "-days", "2", *kind, "-keyout", key, "-out", certificate]
        subprocess.run(command, check=True, capture_output=True, timeout=60)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
    return context
