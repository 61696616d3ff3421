"""A cluster to try things on, until it is interrupted: `PYTHONPATH=tests python -m platforms.kube FOLDER [--apart]`.

A real kube-apiserver with all operators' definitions, and controllers and a node of ours in every namespace. It prints
the path of its kubeconfig, for KUBECONFIG, kubectl, or NNILITE_TEST_KUBECONFIG. With --apart its pods see nothing of
this machine's /tmp (so FOLDER must be elsewhere) and have no network, as if they were on another machine.
"""

from __future__ import annotations

import signal
import sys
import threading
from pathlib import Path

from platforms.kube.apiserver import KubeApiserver, missing
from platforms.kube.client import Api
from platforms.kube.cluster import Machinery
from platforms.kube.controllers import Operators
from platforms.kube.operators import install
from platforms.kube.other_operators import install_adaptdl, install_frameworkcontroller
from platforms.kube.trainer import install_trainer

_TURN_S = 0.2


def main(folder: Path, over: threading.Event, apart: bool = False) -> None:
    installed = [install(), install_frameworkcontroller(), install_adaptdl(), install_trainer()]
    crds = {key: file for each in installed for key, file in each.crds.items()}
    operators = Operators(tuple(kind for each in installed for kind in each.controllers), crds)
    server = KubeApiserver(folder / "apiserver")
    running: dict[str, Machinery] = {}
    try:
        server.start()
        server.define(list(crds.values()))
        print(server.kubeconfig, flush=True)  # noqa: T201
        api = Api(server.kubeconfig)
        while not over.wait(_TURN_S):
            names = namespaces(api)
            for name in names - running.keys():
                running[name] = Machinery(api, name, folder / "nodes" / name, operators, apart)
                running[name].start()
            for name in running.keys() - names:
                running.pop(name).close()
    finally:
        for each in running.values():
            each.close()
        server.stop()


def namespaces(api: Api) -> set[str]:
    """Those for trials, that nobody has deleted."""
    found = [each["metadata"] for each in api.cluster.call("GET", "/api/v1/namespaces")["items"]]
    mine = [each for each in found if not each["name"].startswith("kube-") and not each.get("deletionTimestamp")]
    return {each["name"] for each in mine}


if __name__ == "__main__":
    words = [word for word in sys.argv[1:] if word != "--apart"]
    if missing() or len(words) != 1:
        sys.exit(missing() or __doc__)
    interrupted = threading.Event()  # an exception could be lost: in a finalizer, say
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: interrupted.set())
    main(Path(words[0]), interrupted, "--apart" in sys.argv)
