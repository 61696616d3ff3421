"""Parts of the Kubernetes service without any cluster: what threads that meet, and faults in them, must not break."""

from __future__ import annotations

import errno
import json
import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("kubernetes")

from nnilite._keeper import build
from nnilite.codedir import pack
from nnilite.errors import ConfigError, NoCapacity, ServiceError
from nnilite.service import Job, JobState
from nnilite.services import callback_address
from nnilite.services.first_seen import FirstSeen
from nnilite.testing import eventually, fake_context
from nnilite.testing.listener import Handler, Listener
from nnilite_kubernetes import KubernetesConfig, KubernetesService
from nnilite_kubernetes._api import JOBS, PODS, ApiError, Watch, connect
from nnilite_kubernetes._checks import check_rights
from nnilite_kubernetes._informer import Informer
from nnilite_kubernetes._judge import Judge
from nnilite_kubernetes._known import KnownJobs
from nnilite_kubernetes._manifest import ATTEMPT, ROLE, TRIAL, Role
from nnilite_kubernetes._memory import ClusterMemory
from nnilite_kubernetes._plain_job import PlainJob
from nnilite_kubernetes._role_records import RoleRecords
from nnilite_kubernetes._startup import Startup
from nnilite_kubernetes._status import Facts, rank
from nnilite_kubernetes._submitter import Submitter
from nnilite_kubernetes._waits import ClusterPatience
from platforms.kube.kubeconfig import write_kubeconfig
from silent_disk import failing_at

_ROLE = Role("worker", "trial", KubernetesConfig(), reports=False)


def pod(phase="Running", version="1", name="pod"):
    ended = {"terminated": {"exitCode": 9 * (phase == "Failed"), "startedAt": "2024-01-01T00:00:00Z"}}
    state = {"running": {"startedAt": "2024-01-01T00:00:00Z"}} if phase == "Running" else ended
    labels = {TRIAL: "T", ATTEMPT: "0", ROLE: "worker"}
    return {
        "metadata": {"name": name, "uid": name, "resourceVersion": version, "labels": labels},
        "status": {"phase": phase, "containerStatuses": [{"name": "trial", "state": state}]},
    }


class Log:
    """A log of which the second half comes when it is let go."""

    def __init__(self, *lines: bytes) -> None:
        self.text = lines
        self.half, self.go_on = threading.Event(), threading.Event()

    def stop(self) -> None:
        self.go_on.set()

    def lines(self, longest: float) -> Iterator[bytes]:
        yield self.text[0]
        self.half.set()
        assert self.go_on.wait(60)
        yield from self.text[1:]


class Logs:
    def __init__(self, **logs: Log) -> None:
        self.logs = logs

    def log_stream(self, namespace, name, container, most_bytes, follow):
        return self.logs["last" if follow else "early"]


def test_a_log_that_somebody_is_reading_when_its_pod_ends_is_whole(tmp_path):
    early, last = Log(b"one", b"two"), Log(b"one", b"two", b"three")
    records = RoleRecords(Logs(early=early, last=last), "default", tmp_path)
    with ThreadPoolExecutor() as threads:
        looking = threads.submit(records.refresh, pod(), _ROLE)
        assert early.half.wait(60)
        records.record(pod("Succeeded"), _ROLE)
        assert last.half.wait(60)
        early.go_on.set()
        looking.result(60)
        last.go_on.set()
        records.settle([pod()], 60)
    records.close()
    (entry,) = json.loads((tmp_path / "trials/T/0/roles.json").read_text())
    assert (tmp_path / "trials/T/0/roles/worker-0.log").read_text() == "one\ntwo\nthree\n"
    assert entry["read"]
    assert [path.name for path in (tmp_path / "trials/T/0/roles").iterdir()] == ["worker-0.log"]


def test_the_last_log_of_a_pod_is_asked_for_again_when_the_server_is_in_trouble(tmp_path, monkeypatch):
    class Troubled(Logs):
        tries = 0

        def log_stream(self, *place, **how):
            self.tries += 1
            if self.tries == 1:
                raise ApiError("the node does not answer", 500)
            return super().log_stream(*place, **how)

    monkeypatch.setattr("nnilite_kubernetes._role_records._PAUSES_S", (0.01,))
    last = Log(b"one", b"two")
    last.go_on.set()
    records = RoleRecords(Troubled(last=last), "default", tmp_path)
    records.record(pod("Succeeded"), _ROLE)
    records.settle([pod()], 60)
    records.close()
    assert (tmp_path / "trials/T/0/roles/worker-0.log").read_text() == "one\ntwo\n"


def test_what_is_known_of_other_pods_is_not_overwritten_while_the_disk_does_not_tell(tmp_path, monkeypatch):
    read = Path.read_bytes

    def refuse(path: Path) -> bytes:
        if path.name == "roles.json":
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return read(path)

    records = RoleRecords(Logs(), "default", tmp_path)
    records.record(pod(name="first"), _ROLE, gone=True)
    with monkeypatch.context() as disk:
        disk.setattr(Path, "read_bytes", refuse)
        records.record(pod(name="second"), _ROLE, gone=True)
    records.record(pod(name="third"), _ROLE, gone=True)
    records.close()
    entries = json.loads((tmp_path / "trials/T/0/roles.json").read_text())
    assert [entry["pod"] for entry in entries] == ["first", "third"]


async def test_the_check_says_that_pods_could_not_reach_the_manager(tmp_path, monkeypatch):
    for step in ("check_operator", "check_quotas"):
        monkeypatch.setattr(Startup, step, lambda self: None)
    cluster = SimpleNamespace(host="https://nobody.invalid", close=lambda: None)
    monkeypatch.setattr(KubernetesService, "_connect", lambda self: cluster)
    monkeypatch.setattr(callback_address, "_address_towards", lambda host, port: "nobody.invalid")
    service = KubernetesService("kubernetes", KubernetesConfig(), fake_context(tmp_path))
    with pytest.raises(ConfigError, match=r"nniManagerIp: trials would connect to the manager at nobody\.invalid"):
        await service.check()


def test_rights_are_asked_for_side_by_side_and_all_missing_ones_named():
    both = threading.Barrier(2)

    def allowed(namespace, verb, resource, part):
        if resource is JOBS and verb in ("create", "get"):
            both.wait(20)
        return verb != "patch"

    kind = PlainJob(KubernetesConfig())
    missing = "may not patch jobs.batch; patch secrets in the namespace here"
    with pytest.raises(ConfigError, match=missing):
        check_rights(SimpleNamespace(allowed=allowed), "here", kind, sends_code=False)


def test_a_shorter_log_does_not_take_the_place_of_one_that_may_be_there(tmp_path, monkeypatch):
    early, last = Log(b"one", b"two"), Log(b"one")
    early.go_on.set()
    last.go_on.set()
    records = RoleRecords(Logs(early=early, last=last), "default", tmp_path)
    records.refresh(pod(), _ROLE)
    path = tmp_path / "trials/T/0/roles/worker-0.log"
    with monkeypatch.context() as disk:
        disk.setattr(os, "stat", failing_at(path))
        records.record(pod("Succeeded"), _ROLE)
        records.settle([pod()], 60)
    records.close()
    assert path.read_text() == "one\ntwo\n"


_CHIEF = Role("chief", "trial", KubernetesConfig())


def taken(content, **more):
    content["metadata"]["deletionTimestamp"] = "2024-01-01T00:00:09Z"
    content["status"].update(more)
    return content


_PREEMPTED = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}


@pytest.mark.parametrize(
    ("seen", "code"),
    [
        ([(pod("Failed"), _ROLE), (taken(pod(name="chief")), _CHIEF)], 9),
        ([(taken(pod(name="chief")), _CHIEF), (pod("Failed"), _ROLE)], None),
        ([(pod("Failed"), _ROLE), (taken(pod("Failed", name="x"), conditions=[_PREEMPTED]), _ROLE)], None),
        ([(pod("Succeeded"), _ROLE)], None),
    ],
    ids=["before it was deleted", "after the chief was deleted", "beside one that was preempted", "none"],
)
def test_a_failure_is_the_trials_own_unless_a_pod_was_taken_away_before(tmp_path, seen, code):
    records = RoleRecords(Logs(), "default", tmp_path)
    for content, role in seen:
        records.record(content, role, gone=True)
    records.close()
    found = RoleRecords(Logs(), "default", tmp_path).failure(pod())
    assert (found and found.exit_code) == code


class Watched:
    """A server that tells of pods one after the other, in watches of one event."""

    def __init__(self) -> None:
        self.number = 0

    def select(self, resource, namespace, **query):
        return {"items": [], "metadata": {"resourceVersion": "1"}}

    def watch(self, *place):
        self.number += 1
        return Stoppable([("ADDED", pod(version=str(self.number), name=f"pod-{self.number}"))])


class Stoppable(list):
    def stop(self) -> None:
        self.clear()


def test_a_fault_of_ours_in_what_a_watch_tells_does_not_end_the_watch(caplog):
    heard = []

    def changed(content, gone):
        heard.append(content["metadata"]["name"])
        if len(heard) == 1:
            raise KeyError("a fault of this program")

    informer = Informer(Watched(), PODS, "default", "", changed)
    informer.start()
    eventually(lambda: "pod-2" in heard)
    informer.close()
    assert "a fault of this program" in caplog.text


@pytest.mark.parametrize("too_old", [False, True], ids=["ended", "too old"])
def test_watches_that_end_at_once_are_begun_with_pauses(too_old):
    class Hasty(Watched):
        def watch(self, *place):
            begun.append(time.monotonic())
            if too_old:
                raise ApiError("the version is too old", 410)
            return Stoppable([])

    begun: list[float] = []
    informer = Informer(Hasty(), PODS, "default", "", lambda content, gone: None)
    start = time.monotonic()
    informer.start()
    eventually(lambda: len(begun) > 4)
    informer.close()
    assert begun[4] - start > 0.75


def test_a_pod_that_has_taken_the_name_of_another_while_nobody_watched_does_not_hide_its_end():
    """Operators give the next pod the name of the one before it, so the name is there when all are listed again."""
    first, second = pod(name="worker-0"), pod(name="worker-0")
    second["metadata"]["uid"] = "another"
    lists = [[first], [second]]

    class Relisted(Watched):
        def select(self, resource, namespace, **query):
            return {"items": lists.pop(0), "metadata": {"resourceVersion": "1"}}

    heard = []
    informer = Informer(Relisted(), PODS, "default", "", lambda content, gone: heard.append((content, gone)))
    informer._list()
    informer._list()
    assert heard == [(first, False), (first, True), (second, False)]


def test_an_object_that_the_watch_has_seen_go_does_not_come_back_by_a_late_answer():
    class Empty(Watched):
        def select(self, resource, namespace, **query):
            return {"items": [], "metadata": {"resourceVersion": "10"}}

    informer = Informer(Empty(), PODS, "default", "", lambda content, gone: None)
    informer._list()
    for version, known in (("9", False), ("11", True), ("none", True)):
        made = pod(name=f"of-{version}")
        made["metadata"]["resourceVersion"] = version
        informer.put(made)
        assert (informer.get(f"of-{version}") is not None) is known


class Silent(Handler):
    """A server that never answers. `owner`: released for each request."""

    def do_GET(self):
        self.owner.release()
        self.connection.recv(1)  # until the client has gone


@pytest.fixture
def silent(tmp_path):
    """Such a server, and how to wait until it has been asked."""
    asked = threading.Semaphore(0)
    server = Listener(Silent, asked)
    server.start()
    kubeconfig = write_kubeconfig(tmp_path / "kubeconfig", {"server": server.url}, {"token": "any"})
    yield connect(str(kubeconfig), None), asked
    server.stop()


def test_closing_wakes_those_who_wait_for_the_head_of_an_answer(silent):
    cluster, asked = silent
    with ThreadPoolExecutor() as threads:
        waiting = [threads.submit(cluster.log_stream, "default", "pod", "trial", 100, follow=True) for _ in range(2)]
        waiting.append(threads.submit(cluster.call, "GET", "/version"))
        assert all(asked.acquire(timeout=60) for _ in waiting)
        cluster.close()
        assert all(isinstance(each.exception(5), ApiError) for each in waiting)
    with pytest.raises(ApiError):  # somebody who did not hear of it
        cluster.call("GET", "/version")


def test_a_log_that_does_not_come_holds_nobody_up_who_wants_only_what_is_there(silent, monkeypatch):
    cluster, _ = silent
    monkeypatch.setattr("nnilite_kubernetes._api._TIMEOUT_S", 0.2)
    with pytest.raises(ApiError, match="timed out"):
        cluster.log_stream("default", "pod", "trial", 100, follow=False)
    cluster.close()


class SlowCluster:
    """A server that takes long to create what is asked for."""

    host = "https://127.0.0.1"

    def __init__(self) -> None:
        self.created, self.answer = threading.Semaphore(0), threading.Event()

    def create(self, resource, namespace, body):
        self.created.release()
        assert self.answer.wait(60)
        return {**body, "metadata": {**body["metadata"], "uid": "u"}}

    def patch(self, *place):
        pass


def test_a_submit_that_goes_on_after_its_time_is_not_joined_by_others(tmp_path):
    """The engine asks again after its time limit, while the thread is still sending: all threads would be taken."""
    build(tmp_path / "keeper.pyz")
    context = fake_context(tmp_path, package=lambda: pack(tmp_path, tmp_path / "packed"))
    cluster, submitter = SlowCluster(), Submitter("k", PlainJob(KubernetesConfig()), KubernetesConfig(), context)
    job = Job("nni-e-T-0", "e", "T", 0, 0, {"report": "stdout"})
    with ThreadPoolExecutor() as threads:
        first = threads.submit(submitter.submit, cluster, job)
        assert cluster.created.acquire(timeout=60)
        with pytest.raises(ServiceError, match="still being sent") as refused:
            submitter.submit(cluster, job)
        assert not isinstance(refused.value, NoCapacity)  # that would say that the cluster does not have the job
        cluster.answer.set()
        assert first.result(5)["kind"] == JOBS.kind
    assert submitter.submit(cluster, job)["kind"] == JOBS.kind


def test_a_watch_that_is_late_brings_nothing_of_a_removed_job_back_to_mind():
    """One watch tells of objects, another of pods, and neither waits for the other."""
    known = KnownJobs(None, PlainJob(KubernetesConfig()), "default", "")
    known.memory("job", "uid").canceled = True
    known.forget("job", "uid", gone=True)
    assert known.memory("job", "uid").removed
    assert not known._memories


class Ahead:
    """The objects of a cluster whose pods are gone already, which their watch has not told of."""

    cluster, namespace = None, "default"

    def __init__(self) -> None:
        self.kind = PlainJob(KubernetesConfig())
        [role] = self.kind.roles(Job("nni-e-T-0", "e", "T", 0, 0, {}))
        self.pod = pod()
        self.pod["metadata"]["labels"][ROLE] = role.name
        failed = {"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded", "message": "it has failed"}
        self.content = {"metadata": {"name": "job", "uid": "uid"}, "status": {"conditions": [failed]}}
        self.seen = Facts(self.content, [self.pod], (role,))

    def memory(self, name, uid):
        return ClusterMemory()

    def object(self, name):
        return self.content

    def facts(self, content):
        return self.seen

    def list_pods_now(self, name):
        return []


def test_a_pod_that_was_deleted_before_its_watch_said_so_is_the_reason(tmp_path):
    judge = Judge(Ahead(), KubernetesConfig(), RoleRecords(None, "default", tmp_path), lambda: None, ClusterPatience())
    found = judge.status("job", "uid")
    assert (found.state, found.reason) == (
        JobState.LOST,
        "its pod pod was deleted, not by this experiment (BackoffLimitExceeded: it has failed)",
    )


class Judged(Ahead):
    """A job with one pod, which is watched by a clock that a test can set."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.told = ClusterMemory(seen=FirstSeen(lambda: self.now))
        self.content["status"] = {}
        self.deleted: list[str] = []
        self.cluster = self

    def memory(self, name, uid):
        return self.told

    def delete(self, resource, namespace, name, uid="", policy=""):
        self.deleted.append(name)


def judge(known, tmp_path):
    config = KubernetesConfig(schedule_limit=900)
    roles = RoleRecords(None, "default", tmp_path)
    return Judge(known, config, roles, lambda: None, ClusterPatience()).status("job", "uid")


# The cluster's clock is years behind the manager's, or ahead of it.
@pytest.mark.parametrize("year", [2001, 2099])
def test_no_job_that_waits_is_given_up_because_of_a_clock(tmp_path, year):
    known = Judged()
    known.pod["metadata"]["creationTimestamp"] = f"{year}-01-01T00:00:00Z"
    waits = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no node is free"}
    known.pod["status"] = {"phase": "Pending", "conditions": [waits]}
    states = []
    for known.now in (0.0, 899.0, 901.0):
        states.append(judge(known, tmp_path).state)
    assert states == [JobState.WAITING, JobState.WAITING, JobState.FAILED]
    assert known.deleted == ["job"]


@pytest.mark.parametrize("year", [2001, 2099])
def test_no_pod_that_is_being_ended_counts_as_lost_because_of_a_clock(tmp_path, year):
    """Its trial would run a second time, elsewhere, before this one has ended."""
    known = Judged()
    known.pod["metadata"] |= {"deletionTimestamp": f"{year}-01-01T00:00:00Z", "deletionGracePeriodSeconds": 600}
    states = []
    for known.now in (0.0, 659.0, 661.0):
        states.append(judge(known, tmp_path).state)
    assert states == [JobState.RUNNING, JobState.RUNNING, JobState.LOST]


@pytest.mark.parametrize("mark", ["\u00b2", "9" * 5000, "-1", "x"])
def test_a_rank_that_a_stranger_has_written_is_no_number(mark):
    """The pod of anybody in the namespace, with the labels of the experiment, kept it from starting."""
    one = pod()
    one["metadata"]["annotations"] = {"adaptdl/rank": mark}
    assert rank(one) == 0


def test_an_object_that_makes_no_sense_keeps_no_later_one_out(caplog):
    class Two(Watched):
        def select(self, resource, namespace, **query):
            return {"items": [pod(name="odd"), pod(name="good")], "metadata": {"resourceVersion": "1"}}

    def changed(content, gone):
        if content["metadata"]["name"] == "odd":
            raise ValueError("a fault of this program")
        heard.append(content["metadata"]["name"])

    heard: list[str] = []
    Informer(Two(), PODS, "default", "", changed)._list()
    assert heard == ["good"]
    assert "a fault of this program" in caplog.text


class Pieces:
    """An answer in these pieces, which then stays open until it is shut down."""

    def __init__(self, *pieces: bytes) -> None:
        self.pieces = pieces
        self.shut = threading.Event()

    def stream(self, size, decode_content):
        yield from self.pieces
        assert self.shut.wait(60)

    def shutdown(self):
        self.shut.set()

    def close(self):
        pass


def test_a_watch_that_does_not_end_is_ended_and_all_is_listed_again(monkeypatch):
    monkeypatch.setattr("nnilite_kubernetes._api._SILENCE_S", 0.1)
    watch = iter(Watch(Pieces(b'{"type": "ADDED", "object": {}}\n', b'{"half')))
    assert next(watch) == ("ADDED", {})
    with pytest.raises(ApiError, match="did not end in time") as refusal:
        next(watch)
    assert refusal.value.status == 410


@pytest.mark.parametrize("line", [b"[]", b"{}", b'{"type": "ERROR", "object": []}', b"[" * 100_000, b"x"])
def test_an_event_of_another_shape_is_an_error_of_the_watch(line):
    with pytest.raises(ApiError, match="the watch broke off in"):
        next(iter(Watch(Pieces(line + b"\n"))))


def test_an_event_without_an_end_is_not_kept(monkeypatch):
    monkeypatch.setattr("nnilite_kubernetes._api._LONGEST_EVENT_BYTES", 1000)
    with pytest.raises(ApiError, match="the watch broke off in"):
        next(iter(Watch(Pieces(*[b"x" * 100] * 20))))


def test_of_events_and_workloads_that_others_make_up_only_some_are_read(tmp_path):
    class Flooded:
        def select(self, resource, namespace, *, limit="1000000", **query):
            names = range(min(int(limit), 1_000_000))
            read.append(len(names))
            return {"items": [{"reason": "Failed", "message": str(name)} for name in names]}

    read = []
    known = SimpleNamespace(cluster=Flooded(), namespace="default")
    judge = Judge(known, KubernetesConfig(), RoleRecords(None, "default", tmp_path), lambda: None, ClusterPatience())
    assert judge._find_warning(["involvedObject.uid=u"]).startswith("Failed: ")
    assert judge._kueue.reason("u") == "it waits in its queue"
    assert max(read) <= 500
