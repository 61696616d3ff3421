"""The code's way to hosts: once, whole, and on from where it broke off."""

from __future__ import annotations

import contextlib
import hashlib
import random
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from nnilite.testing import ServiceBench, eventually
from nnilite.testing.probes import python
from nnilite_remote import RemoteService
from nnilite_remote._machine_session import MachineSession
from platforms.stored_code import CodeStorage

pytestmark = [pytest.mark.real, pytest.mark.timeout(120)]

READ = """
import hashlib, nnilite
nnilite.report_final_result(hashlib.sha256(open("big.bin", "rb").read()).hexdigest())
"""
CACHE = "nnilite/cache"


def fill(folder: Path, megabytes: int) -> str:
    """Put a file of noise into the code directory; its digest."""
    data = random.Random(megabytes).randbytes(megabytes << 20)
    (folder / "big.bin").write_bytes(data)
    return hashlib.sha256(data).hexdigest()


@pytest.fixture
def prepared(tmp_path, setting, hosts):
    """Surroundings that are not open yet."""
    made = []

    def make(*machines, **more):
        config = setting.config(*(machines or (setting.machine(hosts[0]),)), **more)
        bench = ServiceBench(tmp_path / str(len(made)), lambda context: RemoteService("remote", config, context))
        made.append(bench)
        return bench

    return make


@pytest.fixture
def opened():
    """Opens benches until the end of the test."""
    with contextlib.ExitStack() as stack:
        yield stack.enter_context


def cached(host, pattern: str = "*") -> list[str]:
    return sorted(host.run(f"cd '{host.home}/{CACHE}' 2>/dev/null && ls -d {pattern} 2>/dev/null || true").split())


def test_an_upload_that_breaks_off_goes_on_where_it_was(prepared, opened, hosts, caplog):
    caplog.set_level("INFO", "nnilite_remote")
    bench = prepared()
    digest = fill(bench.code, 40)
    hosts[0].throttle(100)
    opening = threading.Thread(target=opened, args=(bench,))
    opening.start()
    part = f"find '{hosts[0].home}/{CACHE}' -name '*.tar.gz.*.part' -size +8M 2>/dev/null || true"
    eventually(lambda: hosts[0].run(part))
    hosts[0].kill_sessions()
    opening.join(60)
    hosts[0].throttle(0)
    assert bench.finish(bench.run(python(READ))).values == [digest]
    # A filter that hides secrets may have put the words of a record together already.
    said = "\n".join(record.getMessage() for record in caplog.records)
    assert int(re.findall(r"resuming the upload of .* at (\d+) of", said)[0]) >= 8
    assert cached(hosts[0], "*.part") == []


def test_unchanged_code_is_not_sent_again(prepared, opened, hosts, monkeypatch):
    first = prepared()
    digest = fill(first.code, 1)
    with first:
        assert first.finish(first.run(python(READ))).values == [digest]
    before = hosts[0].run(f"ls -i --time-style=full-iso '{hosts[0].home}/{CACHE}'/*.tar.gz")
    monkeypatch.setattr("nnilite_remote._machine_session.upload", None)  # would fail
    second = prepared()
    fill(second.code, 1)
    opened(second)
    assert second.finish(second.run(python(READ))).values == [digest]
    assert hosts[0].run(f"ls -i --time-style=full-iso '{hosts[0].home}/{CACHE}'/*.tar.gz") == before


def test_two_experiments_may_send_the_same_code_at_once(prepared, opened, hosts):
    benches = [prepared(), prepared()]
    digests = [fill(bench.code, 20) for bench in benches]
    hosts[0].throttle(150)
    openings = [threading.Thread(target=opened, args=(bench,)) for bench in benches]
    for opening in openings:
        opening.start()
    for opening in openings:
        opening.join(60)
    hosts[0].throttle(0)
    assert [bench.finish(bench.run(python(READ))).values[0] for bench in benches] == digests
    assert len(cached(hosts[0], "*.tar.gz*")) == 1


def test_a_package_that_was_removed_there_is_sent_again(prepared, opened, hosts):
    bench = prepared()
    digest = fill(bench.code, 1)
    opened(bench)
    hosts[0].run(f"rm '{hosts[0].home}/{CACHE}'/*.tar.gz")
    job = bench.job(python(READ))
    assert "is being sent again" in str(bench.refusal(bench.service.submit(job)))
    eventually(lambda: bench.refusal(_submit(bench, job)) is None)
    assert bench.finish(job.name).values == [digest]


async def _submit(bench, job):
    bench.handles[job.name] = await bench.service.submit(job)


def test_a_damaged_package_runs_nothing(prepared, opened, hosts):
    bench = prepared()
    fill(bench.code, 1)
    opened(bench)
    hosts[0].run(f"cd '{hosts[0].home}/{CACHE}' && truncate -s 500000 *.tar.gz")
    [exited] = bench.finish(bench.run("true")).exits
    assert exited["code"] is None
    assert "damaged" in exited["message"]


def test_old_packages_are_removed_and_young_ones_stay(prepared, opened, hosts):
    folder = f"'{hosts[0].home}/{CACHE}'"
    hosts[0].run(
        f"mkdir -p {folder} && cd {folder} && touch -d '8 days ago' old.tar.gz && touch young.tar.gz", "tester"
    )
    opened(prepared())
    assert cached(hosts[0], "young* old*") == ["young.tar.gz"]


def test_without_a_cache_nothing_stays(prepared, hosts):
    bench = prepared(keep_packages="no")
    with bench:
        bench.finish(bench.run("true"))
        bench.call(bench.service.remove(next(iter(bench.handles.values()))))
    eventually(lambda: hosts[0].run(f"ls -A '{hosts[0].home}' | grep -c nnilite || true").strip() == "0")


@pytest.fixture
def far(hosts):
    """A port of this machine behind which, 20 ms there and back, is the sshd of the first host."""
    proxy = Path(__file__).parents[1] / "delay_proxy.py"
    command = [sys.executable, str(proxy), hosts[0].address, "22", "0.01"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    yield int(process.stdout.readline())
    process.kill()
    process.wait(60)
    process.stdout.close()


def test_a_far_host_works_and_many_files_cost_no_round_trips(far, prepared, opened, hosts, setting):
    machine = setting.machine(hosts[0], address="127.0.0.1", port=far)
    bench = prepared(machine)
    for number in range(500):
        (bench.code / f"file{number}.txt").write_text(str(number))
    opened(bench)
    program = "import os, nnilite; nnilite.report_final_result(len(os.listdir('.')))"
    assert bench.finish(bench.run(python(program))).values == [500]


@pytest.fixture
def storage(tmp_path, hosts):
    """A shared storage that the first host has mounted."""
    storage = CodeStorage(tmp_path / "nfs", "/srv/nni")
    hosts[0].share(storage.folder, "/srv/nni")
    yield storage
    hosts[0].run("umount -l /srv/nni")


@pytest.fixture
def sent(monkeypatch):
    """The names of the files that machines are sent."""
    names: list[str] = []
    send = MachineSession.upload

    async def upload(session, name, *more):
        names.append(name)
        await send(session, name, *more)

    monkeypatch.setattr(MachineSession, "upload", upload)
    return names


@pytest.fixture
def with_storage(storage, tmp_path, setting, hosts):
    """Surroundings with that storage, not open yet, and the digest of their file."""
    config = setting.config(setting.machine(hosts[0]))
    bench = storage.bench(tmp_path / "bench", lambda context: RemoteService("remote", config, context))
    return bench, fill(bench.code, 1)


def test_a_host_takes_the_code_from_the_shared_storage(with_storage, sent, hosts, opened):
    bench, digest = with_storage
    opened(bench)
    assert bench.finish(bench.run(python(READ))).values == [digest]
    assert [name.split("-")[0] for name in sent] == ["keeper"]
    hosts[0].run(f"rm '{hosts[0].home}/{CACHE}'/*.tar.gz")
    job = bench.job(python(READ))
    assert "is being sent again" in str(bench.refusal(bench.service.submit(job)))
    eventually(lambda: bench.refusal(_submit(bench, job)) is None)
    assert bench.finish(job.name).values == [digest]
    assert not any(name.endswith(".tar.gz") for name in sent)


@pytest.mark.parametrize(
    ("harm", "says"), [("cut", "is damaged"), ("hide", "mount the storage there"), ("hang", "it is not a regular file")]
)
def test_a_host_that_cannot_take_the_code_from_there_is_sent_it(
    harm, says, storage, with_storage, sent, hosts, opened, caplog
):
    storage.harm = getattr(storage, harm)
    bench, digest = with_storage
    opened(bench)
    assert bench.finish(bench.run(python(READ))).values == [digest]
    assert len([name for name in sent if name.endswith(".tar.gz")]) == 1
    said = "\n".join(record.getMessage() for record in caplog.records)
    assert " from this machine: " in said
    assert says in said
    assert cached(hosts[0], "*.part") == []
