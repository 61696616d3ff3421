"""The SSH service on hosts of namespaces. Needs root.

Starting a trial; 300 MB of code, against tar | ssh; and no-op trials on two hosts, against a plain script under
`xargs -P` over connections that are open already (OpenSSH's ControlMaster).
"""

from __future__ import annotations

import contextlib
import os
import random
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.curves import Curve
from benchmarks.experiments import experiment
from benchmarks.table import Result
from benchmarks.trials import PLAIN, TRIAL
from nnilite import codedir
from nnilite.testing import ServiceBench, eventually

TESTS = Path(__file__).parents[1] / "tests"
FILES = 2000
SIZES = (20, 200, FILES)
BYTES = 150_000
TRIALS = 300
AT_ONCE = 8
LAUNCHES = 15
FAR_S = 0.02  # there and back


def measure() -> list[Result]:
    sys.path.insert(0, str(TESTS))
    from platforms.hosts.hosts import Network, missing

    if missing():
        print(f"remote: {missing()}", file=sys.stderr)
        return []
    network = Network()
    try:
        network.open()
        host = network.host()
        with tempfile.TemporaryDirectory() as folder, far(host.address) as port:
            results = launches(Path(folder), network, [(host.address, 22, 0.0), ("127.0.0.1", port, FAR_S)])
            results += uploads(Path(folder), network, host, [(host.address, 22, 0.0), ("127.0.0.1", port, FAR_S)])
            return [*results, trials(Path(folder), network, [host.address, network.host().address])]
    finally:
        network.close()


def curve() -> Curve | None:
    sys.path.insert(0, str(TESTS))
    from platforms.hosts.hosts import Network, missing

    if missing():
        return None
    points = []
    network = Network()
    try:
        network.open()
        host = network.host()
        for files in SIZES:
            host.run("rm -rf ~tester/nnilite")
            with tempfile.TemporaryDirectory() as folder:
                fill(Path(folder) / "code", files)
                archive = codedir.pack(Path(folder) / "code", Path(folder) / "cache").archive
                points.append((files, upload(Path(folder), network, archive, host.address, 22)))
    finally:
        network.close()
    return Curve("sending code to a host, connection included", "files of 150 kB", "seconds", points)


@contextlib.contextmanager
def far(address: str) -> Iterator[int]:
    command = [sys.executable, str(TESTS / "platforms/delay_proxy.py"), address, "22", str(FAR_S / 2)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield int(process.stdout.readline() if process.stdout else 0)
        finally:
            process.kill()


def config(folder: Path, network: Any, address: str, port: int) -> Any:
    from nnilite_remote import MachineConfig, RemoteConfig

    (folder / "ssh").touch()
    machine = MachineConfig(address, port=port, user="tester", ssh_key_file=network.key)
    return RemoteConfig([machine], known_hosts_file=folder / "known", ssh_config_file=folder / "ssh")


def launches(folder: Path, network: Any, ways: list[tuple[str, int, float]]) -> list[Result]:
    from nnilite_remote import RemoteService

    results = []
    for address, port, delay_s in ways:
        settings = config(folder, network, address, port)
        with ServiceBench(folder / str(port), lambda c, s=settings: RemoteService("remote", s, c)) as bench:
            times = [launch(bench) for _ in range(LAUNCHES)]
        median_s, budget_s = statistics.median(times), 3 * delay_s + 0.15
        name = f"starting a trial on a connected host, {delay_s * 1000:.0f} ms away"
        base = f"3 round trips: {3 * delay_s * 1000:.0f} ms"
        limit = f"{budget_s * 1000:.0f} ms"
        results.append(Result(name, f"{median_s * 1000:.0f} ms", base, "", limit, median_s <= budget_s))
    return results


def trials(folder: Path, network: Any, addresses: list[str]) -> Result:
    """The wall time of a no-op Python trial on two hosts."""
    os.environ["NNILITE_HOME"] = str(folder / "home")
    code = folder / "trial"
    code.mkdir()
    (code / "trial.py").write_text(TRIAL)
    before_s = by_control_master(folder, network, addresses)
    machines = [{"host": one, "user": "tester", "sshKeyFile": str(network.key)} for one in addresses]
    (folder / "ssh").touch()
    files = {"knownHostsFile": str(folder / "known"), "sshConfigFile": str(folder / "ssh")}
    service = {"platform": "remote", "machineList": machines, **files}
    with experiment(code, "python3 trial.py", TRIALS, AT_ONCE, service) as (entry, client):
        while client.profile()["state"] not in ("DONE", "ERROR"):
            time.sleep(0.1)
    with contextlib.closing(sqlite3.connect(entry.directory / "nnilite.sqlite")) as db:
        rows = db.execute("SELECT started, ended, state FROM trials").fetchall()
    if any(state != "SUCCEEDED" for *_, state in rows):
        raise SystemExit(f"trials failed: {rows[:3]}")
    ours_s = (max(ended for _, ended, _ in rows) - min(started for started, _, _ in rows)) / TRIALS
    plain_s = min(before_s, by_control_master(folder, network, addresses))
    name = f"no-op Python trial, two hosts, concurrency {AT_ONCE}: wall"
    base = f"plain script over ControlMaster: {plain_s * 1000:.1f} ms"
    speed = plain_s / ours_s
    return Result(name, f"{ours_s * 1000:.1f} ms", base, f"{speed:.2f}", "0.8", speed >= 0.8)


def by_control_master(folder: Path, network: Any, addresses: list[str]) -> float:
    """Seconds of a plain script on one host after the other, over one connection for each host."""
    options = {
        "User": "tester",
        "IdentityFile": network.key,
        "StrictHostKeyChecking": "no",
        "UserKnownHostsFile": "/dev/null",
        "LogLevel": "ERROR",
        "ControlMaster": "auto",
        "ControlPersist": "30",
        "ControlPath": folder / "%h.sock",
    }
    settings, lines = folder / "control", folder / "lines"
    settings.write_text("".join(f"{key} {value}\n" for key, value in options.items()))
    for address in addresses:
        subprocess.run(["ssh", "-F", settings, address, "cat > plain.py"], input=PLAIN, text=True, check=True)
    calls = (f"{addresses[number % len(addresses)]} python3 plain.py 0.{number}" for number in range(TRIALS))
    lines.write_text("\n".join(calls))
    began = time.perf_counter()
    subprocess.run(["xargs", "-a", lines, "-P", str(AT_ONCE), "-L", "1", "ssh", "-F", settings], check=True)
    seconds = time.perf_counter() - began
    for address in addresses:
        subprocess.run(["ssh", "-F", settings, "-O", "exit", address], check=True, stderr=subprocess.DEVNULL)
    return seconds / TRIALS


def launch(bench: ServiceBench) -> float:
    """Seconds from the submission to the start of the command, by one clock."""
    job = bench.job("true")
    began = time.time()
    bench.submit(job)
    eventually(lambda: bench.received(job.name).exits)
    return float(bench.received(job.name).started[0]["time"]) - began


def uploads(folder: Path, network: Any, host: Any, ways: list[tuple[str, int, float]]) -> list[Result]:
    code = folder / "code"
    fill(code, FILES)
    began = time.perf_counter()
    archive = codedir.pack(code, folder / "cache").archive
    pack_s = time.perf_counter() - began
    results = []
    for address, port, delay_s in ways:
        host.run("rm -rf ~tester/nnilite ~tester/bare; mkdir ~tester/bare; chown tester ~tester/bare")
        bare_s = tar_ssh(code, network, address, port)
        ours_s = upload(folder, network, archive, address, port)
        name = f"sending 300 MB in 2,000 files, {delay_s * 1000:.0f} ms away"
        base = f"tar over ssh: {bare_s:.1f} s"
        packed = f"{ours_s:.1f} s + {pack_s:.1f} s to pack once"
        results.append(Result(name, packed, base, f"{ours_s / bare_s:.2f}", "1.5", ours_s <= 1.5 * bare_s))
    return results


def fill(code: Path, files: int) -> None:
    luck = random.Random(0)
    for number in range(files):
        place = code / f"folder{number % 40}" / f"file{number}.bin"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(luck.randbytes(BYTES))


def tar_ssh(code: Path, network: Any, address: str, port: int) -> float:
    options = ["StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null", "LogLevel=ERROR"]
    ssh = ["ssh", "-p", str(port), "-i", str(network.key), *(word for option in options for word in ("-o", option))]
    began = time.perf_counter()
    with subprocess.Popen(["tar", "-C", str(code), "-cf", "-", "."], stdout=subprocess.PIPE) as tar:
        subprocess.run([*ssh, f"tester@{address}", "tar -xf - -C bare"], stdin=tar.stdout, check=True)
    return time.perf_counter() - began


def upload(folder: Path, network: Any, archive: Path, address: str, port: int) -> float:
    from nnilite.ssh.connect import connect
    from nnilite.ssh.route import RouteMap
    from nnilite_remote._agent_link import AgentStream
    from nnilite_remote._agent_link import upload as send

    settings = config(folder, network, address, port)
    began = time.perf_counter()
    connection = connect(RouteMap(settings).hops(settings.machine_list[0]), settings.host_key_policy)
    stream = AgentStream(connection.transport, None)
    send(stream, {"directory": "nnilite", "name": archive.name}, archive, lambda part: None)
    seconds = time.perf_counter() - began
    stream.close()
    connection.close()
    return seconds
