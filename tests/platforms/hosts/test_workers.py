"""What a host must have and must not have: Python, shells, ways back to the manager, what stays there."""

from __future__ import annotations

import base64
import json
import os
import socketserver
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from crowds import AGAIN_A_S, CALLERS, CROWD, KINDS, SECONDS, burden
from nnilite._keeper.local_link import call_with_short_name
from nnilite.errors import ConfigError, ServiceError
from nnilite.service import JobState
from nnilite.services.callback_address import callback_socket
from nnilite.testing import Receiver, eventually

pytestmark = [pytest.mark.real, pytest.mark.timeout(90)]

PYTHONS = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"


def test_python_3_8_is_enough(hosts, setting, bench_of):
    found = hosts[0].run(f"ls -d {PYTHONS}/3.8.* 2>/dev/null | head -1 || true").strip()
    if not found:
        pytest.skip("there is no Python 3.8 on this machine")
    bench = bench_of(setting.config(setting.machine(hosts[0], python_path=f"{found}/bin")))
    program = "import sys, nnilite; nnilite.report_final_result(sys.version.split()[0])"
    version = bench.finish(bench.run(f"python3 -c '{program}'")).values[0]
    assert version.startswith("3.8.")
    assert bench.service.hosts()[0].details["python"] == version


def test_a_host_tells_how_much_of_it_is_in_use(hosts, setting, bench_of):
    bench = bench_of(setting.config(setting.machine(hosts[0])))
    eventually(lambda: "memoryTotal" in bench.service.hosts()[0].details)
    details = bench.service.hosts()[0].details
    assert 0 < details["memoryUsed"] < details["memoryTotal"]


def test_a_host_without_python_is_told_clearly(hosts, setting, bench_of):
    config = setting.config(setting.machine(hosts[0], python_path="/etc/no 'python' $here"))
    with pytest.raises(ConfigError, match=r"has no Python 3\.8 or later under pythonPath"):
        bench_of(config)


def test_a_python_that_is_too_old_is_named(hosts, setting, bench_of):
    python = "#!/bin/sh\\ncase $1 in -V) echo Python 3.6.9;; *) exit 1;; esac"
    hosts[0].run(f"mkdir -p -m 755 /opt/old; printf '{python}' > /opt/old/python3; chmod 755 /opt/old/python3")
    with pytest.raises(ConfigError, match=r"only /opt/old/python3 is Python 3\.6\.9"):
        bench_of(setting.config(setting.machine(hosts[0], python_path="/opt/old")))


def test_a_profile_that_prints_is_no_harm(hosts, setting, bench_of):
    profile = Path(f"/proc/{hosts[0].init}/root{hosts[0].home}/.bashrc")
    profile.write_text("echo Welcome; echo '{\"id\": 1}'; echo no newline at the end -n\n")
    bench = bench_of(setting.config(setting.machine(hosts[0])))
    assert bench.finish(bench.run("exit 3")).exits[0]["code"] == 3


def test_nothing_is_installed_and_all_is_private(hosts, setting, bench_of):
    bench = bench_of(setting.config(setting.machine(hosts[1])))
    name = bench.run("sleep 30")
    bench.wait(name, JobState.RUNNING)
    home = f"'{hosts[1].home}'"
    assert (
        hosts[1].run(
            f"find {home} -newer /run/sshd.pid -not -path '*/nnilite*' -not -name '.bash*' -type f -mmin -1 || true"
        )
        == ""
    )
    assert hosts[1].run(f"stat -c %a {home}/nnilite").strip() == "700"
    token = bench.received(name).token
    assert token not in hosts[1].run("ps axww -o args; cat /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n' || true")


class SocketServer(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True

    def server_bind(self) -> None:
        call_with_short_name(self.server_address, self.socket.bind)


class ManagerSocket(socketserver.StreamRequestHandler):
    """The manager's own socket, whose answers are those of the test's receiver."""

    def handle(self) -> None:
        for line in self.rfile:
            request = json.loads(line)
            body = json.dumps({"events": request["events"]}).encode()
            self.server.jobs.append(request["job"])
            status, answer, _ = self.server.receiver.post(request["job"], "", f"Bearer {request['token']}", body)
            self.wfile.write(json.dumps({"status": status, **answer}).encode() + b"\n")


def test_reports_come_by_the_agents_connection_to_the_managers_socket(hosts, setting, bench_of):
    bench = bench_of(setting.config(setting.machine(hosts[0])))
    place = str(callback_socket(bench.context()))
    with SocketServer(place, ManagerSocket) as server:
        server.receiver, server.jobs = bench.receiver, []
        threading.Thread(target=server.serve_forever, daemon=True).start()
        names = [bench.run(f"echo final {number} >> $NNILITE_METRICS; echo out") for number in range(4)]
        assert [bench.finish(name).values for name in names] == [[number] for number in range(4)]
        requests = [bench.received(name).requests for name in names]
        assert requests == [server.jobs.count(name) for name in names], "some came through the tunnel"
        server.shutdown()


def test_the_tunnel_lets_keepers_through_and_nobody_else(hosts, setting, bench_of):
    bench = bench_of(setting.config(setting.machine(hosts[0])))
    address = hosts[0].run(f"cd {hosts[0].home}/nnilite; cat $(ls -d */callback-* | grep -v sock)")
    ask = "python3 -c \"import urllib.request as u; print(u.urlopen('{}{}', timeout=5).status)\" 2>&1 || true"
    for path in ("/api/v1/experiment", "/", "/api/v1/callback/../experiment"):
        assert "403" in hosts[0].run(ask.format(address, path), user="tester")
    assert bench.finish(bench.run("true")).exits[0]["code"] == 0


# The stand-in for the manager has a thread for each caller whose head comes to it: tests/services measures those.
@pytest.mark.parametrize(
    "kind",
    [pytest.param(kind, marks=() if kind == "head" else pytest.mark.long) for kind in KINDS if kind != "body"],
)
def test_a_thousand_callers_of_another_user_there_take_little(hosts, setting, bench_of, kind):
    bench = bench_of(setting.config(setting.machine(hosts[0])))
    address = hosts[0].run(f"cd {hosts[0].home}/nnilite; cat $(ls -d */callback-* | grep -v sock)")
    head = "POST /api/v1/callback/x HTTP/1.1\r\nAuthorization: Bearer x\r\nContent-Length: 16000000\r\n\r\n"
    words = ["AF_INET", ["127.0.0.1", urlsplit(address).port], kind, head, CALLERS, SECONDS, AGAIN_A_S]
    program = f"import io, sys; sys.stdin = io.StringIO({json.dumps(words)!r})\n{CROWD}"
    command = f"echo {base64.b64encode(program.encode()).decode()} | base64 -d | python3 -I -S -"
    with ThreadPoolExecutor(1) as other:

        @contextmanager
        def attack():
            made = other.submit(hosts[0].run, command, user="tester")
            yield
            assert int(made.result(60)) >= CALLERS

        found = burden(os.getpid(), attack(), lambda: bench.service.hosts())
    assert found.megabytes < 40, str(found)  # 64 MB if what a thousand may send were kept
    assert bench.finish(bench.run("true")).exits[0]["code"] == 0
    eventually(lambda: [thread.name for thread in threading.enumerate()].count("tunnel") == 1)


def test_a_manager_that_cannot_be_called_directly_is_told(hosts, setting, bench_of, network, monkeypatch):
    monkeypatch.setattr("nnilite_remote._machines._PATIENCE_S", 1.0)
    config = setting.config(setting.machine(hosts[0]), nni_manager_ip=network.gateway)
    with pytest.raises(ServiceError, match=f"cannot reach the manager at {network.gateway}"):
        bench_of(config)  # it listens on loopback alone


def test_the_manager_can_be_called_directly(hosts, setting, bench_of, network, monkeypatch):
    monkeypatch.setattr("nnilite.testing.bench.Receiver", lambda: Receiver(host="0.0.0.0"))
    bench = bench_of(setting.config(setting.machine(hosts[0]), nni_manager_ip=network.gateway))
    name = bench.run("sleep 2; exit 3")
    hosts[0].kill_sessions()  # no tunnel is needed
    assert bench.finish(name).exits[0]["code"] == 3
    spec = hosts[0].run(f"cat '{bench.handles[name]['directory']}/spec.json'")
    assert json.loads(spec)["callback"].startswith(f"http://{network.gateway}:")


def test_an_sshd_without_forwarding_is_told(hosts, setting, bench_of):
    hosts[0].reconfigure("echo 'AllowTcpForwarding no' >> /etc/ssh/sshd_config")
    try:
        with pytest.raises(ConfigError, match="AllowTcpForwarding"):
            bench_of(setting.config(setting.machine(hosts[0])))
    finally:
        hosts[0].reconfigure("sed -i '/^AllowTcpForwarding/d' /etc/ssh/sshd_config")


@pytest.mark.parametrize(
    ("keep", "left"), [("nothing", []), ("outputs", ["model.bin", "parameter.cfg", "trial.stdout"])]
)
def test_a_stop_leaves_no_process_and_only_the_files_asked_for(hosts, setting, bench_of, keep, left):
    host = hosts[1]
    bench = bench_of(setting.config(setting.machine(host), keep=keep))
    ended = bench.run('echo x > "$NNI_OUTPUT_DIR/model.bin"; echo said')
    bench.finish(ended)
    bench.call(bench.service.remove(bench.handles[ended]))
    running = bench.run("sleep 1236 & sleep 1236")
    bench.wait(running, JobState.RUNNING)
    bench.call(bench.service.cancel(bench.handles[running]))
    bench.close()
    eventually(lambda: host.run("pgrep -u tester -x 'python3|sleep|bash' || true") == "")
    folder = bench.handles[ended]["directory"]
    found = host.run(f"cd '{folder}' 2>/dev/null && find . -type f -size +0 -printf '%P\\n' | sort || true").split()
    assert found == left
    if keep == "nothing":
        assert host.run(f"ls '{host.home}/nnilite'").split() == ["cache"]
    bench.open()
    bench.handles.clear()


def test_nothing_stays_of_a_trial_that_wrote_nothing_of_its_own(hosts, setting, bench_of):
    bench = bench_of(setting.config(setting.machine(hosts[0])))
    name = bench.run("echo said")
    bench.finish(name)
    bench.call(bench.service.remove(bench.handles[name]))
    bench.close()
    assert hosts[0].run(f"ls '{hosts[0].home}/nnilite'").split() == ["cache"]
    bench.open()
    bench.handles.clear()
