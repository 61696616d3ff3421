"""A real kube-apiserver on a real etcd, on loopback. `scripts/kube-apiserver` builds it, and gets etcd from Debian."""

from __future__ import annotations

import contextlib
import subprocess
from pathlib import Path
from typing import Any

from nnilite.errors import ConfigError
from nnilite.testing import eventually
from nnilite.testing.ports import free_ports
from nnilite_kubernetes._api import ApiError
from platforms.kube.client import Api
from platforms.kube.kubeconfig import write_kubeconfig
from platforms.kube.schemas import crd_of

SCRIPT = Path(__file__).resolve().parents[3] / "scripts" / "kube-apiserver"
_TOKEN = "the-token-of-the-administrator"
# It took 70 s on two processors with a load of 27; one that cannot start ends at once.
_READY_S = 200.0


def missing() -> str:
    """Why there is none on this machine; "" if there is one."""
    found = subprocess.run([SCRIPT, "--where"], capture_output=True, text=True, timeout=60, check=False)
    return found.stdout.strip() if found.returncode else ""


class KubeApiserver:
    """Runs from `start` to `stop`, with all that it keeps in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.kubeconfig = folder / "kubeconfig"
        self._port, self._etcd_port, self._peer_port = free_ports(3)
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        self.folder.mkdir(mode=0o700, parents=True)
        (self.folder / "tokens.csv").write_text(f'{_TOKEN},admin,1,"system:masters"\n')
        subprocess.run(
            ["openssl", "genrsa", "-out", str(self.folder / "accounts.key"), "2048"],
            check=True,
            capture_output=True,
            timeout=60,
        )
        self._run("etcd", self._etcd())
        self.serve()
        cluster = {"server": f"https://127.0.0.1:{self._port}", "certificate-authority": "certs/apiserver.crt"}
        write_kubeconfig(self.kubeconfig, cluster, {"token": _TOKEN})
        self._await_ready()

    def stop(self) -> None:
        for process in reversed(self._processes):
            process.kill()
            process.wait(60)

    def serve(self) -> None:
        """Start the API server alone."""
        where = subprocess.run([SCRIPT, "--where"], capture_output=True, text=True, timeout=60, check=True)
        self._run("apiserver", [where.stdout.strip(), *self._options()])

    def halt(self) -> None:
        """The API server is gone, without a word to those who watch."""
        process = self._processes.pop()
        process.kill()
        process.wait(60)

    def resume(self) -> None:
        self.serve()
        self._await_ready()

    def define(self, files: list[str]) -> None:
        """Have the kinds of these definitions served, in these versions and no others."""
        api = Api(self.kubeconfig)
        root = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        for file in files:
            wanted = _understood(crd_of(file))
            name, versions = wanted["metadata"]["name"], [entry["name"] for entry in wanted["spec"]["versions"]]
            known = _get(api, f"{root}/{name}")
            if known is not None and [entry["name"] for entry in known["spec"]["versions"]] != versions:
                _let_go(api, known["spec"])
                api.cluster.call("DELETE", f"{root}/{name}")
                eventually(lambda name=name: _get(api, f"{root}/{name}") is None)
                known = None
            if known is None:
                api.cluster.call("POST", root, wanted)
        for file in files:
            spec = crd_of(file)["spec"]
            version, plural = spec["versions"][0]["name"], spec["names"]["plural"]
            eventually(lambda s=spec, v=version, p=plural: p in api.cluster.served(s["group"], v))
        api.close()

    def _etcd(self) -> list[str]:
        client, peer = (f"http://127.0.0.1:{port}" for port in (self._etcd_port, self._peer_port))
        places = [f"--listen-client-urls={client}", f"--advertise-client-urls={client}", f"--listen-peer-urls={peer}"]
        cluster = [f"--initial-advertise-peer-urls={peer}", f"--initial-cluster=default={peer}"]
        return ["etcd", "--unsafe-no-fsync", f"--data-dir={self.folder / 'etcd'}", *places, *cluster]

    def _options(self) -> list[str]:
        options = {
            "etcd-servers": f"http://127.0.0.1:{self._etcd_port}",
            "bind-address": "127.0.0.1",
            "advertise-address": "127.0.0.1",
            "secure-port": self._port,
            "insecure-port": 0,
            "cert-dir": self.folder / "certs",
            "token-auth-file": self.folder / "tokens.csv",
            "service-account-key-file": self.folder / "accounts.key",
            "service-account-signing-key-file": self.folder / "accounts.key",
            "service-account-issuer": "https://kubernetes.default.svc",
            "service-cluster-ip-range": "10.0.0.0/24",
            "authorization-mode": "RBAC",
            "disable-admission-plugins": "ServiceAccount",  # a controller would have to make the accounts
            "kubelet-preferred-address-types": "InternalIP",
            "enable-priority-and-fairness": "false",
        }
        return [f"--{name}={value}" for name, value in options.items()]

    def _run(self, name: str, command: list[str]) -> None:
        with (self.folder / f"{name}.log").open("ab") as log:
            whole = ["setpriv", "--pdeathsig", "KILL", "--", *command]
            self._processes.append(subprocess.Popen(whole, stdout=log, stderr=log, stdin=subprocess.DEVNULL))

    def _await_ready(self) -> None:
        with contextlib.suppress(TimeoutError):
            eventually(lambda: self._ready() or self._processes[-1].poll() is not None, _READY_S)
        if not self._ready():
            raise RuntimeError((self.folder / "apiserver.log").read_text()[-2000:])

    def _ready(self) -> bool:
        try:
            api = Api(self.kubeconfig)
        except ConfigError:
            return False  # the certificate is not there yet
        try:
            return api.cluster._exchange("GET", "/readyz", None, "json") == b"ok"
        except ApiError:
            return False
        finally:
            api.close()


def _let_go(api: Api, spec: Any) -> None:
    """Let objects of earlier tests be deleted: nobody is left to do what they wait for."""
    path = f"/apis/{spec['group']}/{spec['versions'][0]['name']}"
    for each in api.cluster.call("GET", f"{path}/{spec['names']['plural']}")["items"]:
        metadata = each["metadata"]
        space = f"/namespaces/{metadata['namespace']}" if "namespace" in metadata else ""
        place = f"{path}{space}/{spec['names']['plural']}/{metadata['name']}"
        api.cluster.call("PATCH", place, {"metadata": {"finalizers": None}}, kind="merge")


def _understood(schema: Any) -> Any:
    """Return a definition without empty default values: this server takes them for null. Another text stands there.

    Nor has it descriptions, which the server would merge into its own document of all kinds: that takes seconds.
    """
    if isinstance(schema, list):
        return [_understood(entry) for entry in schema]
    if not isinstance(schema, dict):
        return schema
    known = {key: value for key, value in schema.items() if (key, type(value)) != ("description", str)}
    return {key: "-" if (key, value) == ("default", "") else _understood(value) for key, value in known.items()}


def _get(api: Api, path: str) -> Any | None:
    try:
        return api.cluster.call("GET", path)
    except ApiError as error:
        if error.status == 404:
            return None
        raise
