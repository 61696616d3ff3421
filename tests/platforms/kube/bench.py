"""A manager's side of a service on a cluster: it also takes what the service reads from the logs of ended pods."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from nnilite.service import ServiceContext, TrainingService
from nnilite.testing import ServiceContract
from nnilite.testing.bench import keeper_zipapp
from nnilite.testing.reading_bench import ReadingBench
from nnilite.testing.receiver import Receiver
from nnilite_kubernetes._manifest import make_object_name
from platforms.contract_cases import ALIKE_IN_A_CLUSTER, KIND_MATTERS
from platforms.kube.cluster import Cluster
from platforms.kube.controllers import Operators

_TOLD = "told: "


@dataclass(frozen=True)
class Platform:
    """A service, its section's class, the fields that it cannot do without, and what clusters need for it."""

    service: type[Any]
    config: type[Any]
    fields: dict[str, Any] = field(default_factory=dict)
    operators: Operators = field(default_factory=Operators)

    def maker(
        self, cluster: Cluster, kubeconfig: Path | None = None, **fields: Any
    ) -> Callable[[ServiceContext], TrainingService]:
        """Makes a service on this cluster."""
        place = {"kubeconfig": kubeconfig or cluster.kubeconfig(), "namespace": cluster.namespace}
        place["nni_manager_ip"] = cluster.callback or "127.0.0.1"  # else they report by their logs
        config = self.config(**{**place, **self.fields, **fields})
        return lambda context: self.service(self.service.__name__.lower(), config, context)


class KubeBench(ReadingBench):
    """As ReadingBench, with the keeper to be fetched.

    Where pods do not reach this machine, trials report by their logs, unless their jobs say otherwise. Where they do
    not see its files, a trial tells its test something by printing it, and the test gives it a sign by a command in its
    pod, as `kubectl exec` would. `linger_s` is for how long keepers wait for a receiver that is away, and `nodes` the
    number of those of distributed trials.
    """

    def __init__(
        self,
        folder: Path,
        make: Callable[[ServiceContext], TrainingService],
        cluster: Cluster,
        linger_s: float = 60.0,
        nodes: int = 0,
    ) -> None:
        super().__init__(folder, make, linger_s=linger_s, with_nodes=bool(nodes))
        self._defaults = {"distributed": {"nodes": nodes}} if nodes else {}
        self.limit_s = cluster.limit_s
        self._cluster = cluster
        if not cluster.callback:
            self.common["report"] = "stdout"
        elif not cluster.here:
            self.receiver = Receiver("0.0.0.0")
            self.common["send_output"] = True

    @property
    def calls_back(self) -> bool:
        return bool(self._cluster.callback)

    def context(self) -> ServiceContext:
        more = {} if self.calls_back else {"callback": "log"}
        return replace(super().context(), defaults={**self._defaults, **more})

    def __enter__(self) -> KubeBench:
        self.receiver.packages["/api/v1/keeper.pyz"] = keeper_zipapp()
        super().__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        try:
            # A test that fails while no service is open leaves its objects to the end of its namespace.
            for handle in self.handles.values() if self._service is not None else ():
                self.call(self.service.remove(handle))
        finally:
            super().__exit__(*error)

    def interpreter(self, program: str) -> str:
        return super().interpreter(program) if self._cluster.here else f"python3 -c {shlex.quote(program)}"

    # how trials and tests meet where pods do not see the files of this machine

    def tell(self, word: str) -> str:
        return super().tell(word) if self._cluster.here else f"echo {_TOLD}{word}"

    def lines(self, name: str = "mark") -> list[str]:
        if self._cluster.here or name != "mark":
            return super().lines(name)
        return [line for job in list(self.receiver.jobs) for line in self._told(job)]

    def _told(self, job: str) -> list[str]:
        """What a trial has printed for us: as its keeper has reported it, else as it stands in its pod's log."""
        if self.calls_back:
            text = self.received(job).output["stdout"]
        elif self._service is not None and job in self.handles:
            text = max(self.report(job).output["stdout"], self._kept(job), key=len)
        else:
            text = b"".join(self._cluster.logs(make_object_name(job)))
        return [line.removeprefix(_TOLD) for line in text.decode().splitlines() if line.startswith(_TOLD)]

    def _kept(self, job: str) -> bytes:
        """The log that the service has kept of a pod that is gone."""
        _, _, trial, attempt = job.split("-")
        folder = self.folder / "experiment" / "trials" / trial / attempt / "roles"
        return b"".join(path.read_bytes() for path in folder.glob("*-0.log"))

    def sign(self, name: str) -> Path:
        return super().sign(name) if self._cluster.here else Path("/tmp", f"{self._experiment}-{name}")

    def give(self, sign: str) -> None:
        if self._cluster.here:
            super().give(sign)
            return
        for pod in self._cluster.running():
            self._cluster.execute(pod, ["touch", str(self.sign(sign))])

    def given(self, sign: str) -> bool:
        if self._cluster.here:
            return super().given(sign)
        look = ["sh", "-c", f"test -e {self.sign(sign)} && echo yes || echo no"]
        return any(self._cluster.execute(pod, look) == b"yes" for pod in self._cluster.running())

    def runs(self, pid: int) -> bool:
        """A container that has ended has no processes."""
        if self._cluster.here:
            return super().runs(pid)
        look = ["sh", "-c", f"kill -0 {pid} && echo yes || echo no"]
        return any(self._cluster.execute(pod, look) == b"yes" for pod in self._cluster.running())


class ClusterContract(ServiceContract):
    """The contract of all services, for one kind of object. `fields` are those of its section.

    The whole of it runs every day for plain Jobs, whose `every_case` is true, and for all on a cluster that is given.
    """

    every_case = "NNILITE_TEST_KUBECONFIG" in os.environ
    matters = KIND_MATTERS - ALIKE_IN_A_CLUSTER
    pushes = True
    has_logs = False  # what trials print comes with their events
    fields: dict[str, Any] = {}

    @pytest.fixture
    def make_service(self, cluster, platform):
        return platform.maker(cluster, **self.fields)

    @pytest.fixture
    def bench(self, request, tmp_path, make_service, cluster):
        request.instance.same_machine = bool(cluster.here)
        with KubeBench(tmp_path, make_service, cluster, linger_s=1 if self.ends_alone else 60) as bench:
            yield bench
