"""Hosts and links that break: nothing is lost, nothing runs twice, and one bad host harms no other."""

from __future__ import annotations

import random
import time

import pytest

from nnilite.errors import ServiceError
from nnilite.service import JobState
from nnilite.testing import eventually

pytestmark = [pytest.mark.real, pytest.mark.timeout(120)]

COUNT = """python3 -c '
import time, nnilite
for step in range({steps}):
    nnilite.report_intermediate_result(step)
    time.sleep({pause_s})
nnilite.report_final_result({steps})
'"""


def counting(steps: int, pause_s: float) -> str:
    return COUNT.format(steps=steps, pause_s=pause_s)


def find_host(bench, name, hosts):
    """The host that a job runs on."""
    return next(host for host in hosts if host.address == bench.handles[name]["machine"].split("@")[1].rstrip(":"))


def finish_slowly(bench, name):
    """Like `bench.finish`, with time for a keeper that still waits for its broken connection."""
    bench.wait(name, limit_s=60)
    eventually(lambda: bench.received(name).exits, 60)
    return bench.received(name)


def machine_of(bench, host):
    return next(machine for machine in bench.service.hosts() if machine.name == host.address)


def test_a_bad_host_is_set_aside_and_the_rest_work(hosts, setting, bench_of, monkeypatch):
    monkeypatch.setattr("nnilite.ssh.connect.CONNECT_S", 3.0)
    hosts[1].power_off()
    bench = bench_of(setting.config(*(setting.machine(host) for host in hosts)))
    names = [bench.run(counting(2, 0.01)) for _ in range(4)]
    assert {find_host(bench, name, hosts).name for name in names} == {"h1", "h3"}
    assert [bench.finish(name).values for name in names] == [[0, 1, 2]] * 4
    eventually(lambda: machine_of(bench, hosts[1]).state == "down")
    assert f"at {hosts[1].address} port 22" in machine_of(bench, hosts[1]).reason


def test_a_host_that_comes_late_is_used(hosts, setting, bench_of):
    hosts[1].power_off()
    bench = bench_of(setting.config(*(setting.machine(host, slots=1) for host in hosts[:2])))
    first = bench.run("sleep 30")
    waiting = bench.job("true")
    assert "waits for a machine" in str(bench.refusal(bench.service.submit(waiting)))
    hosts[1].power_on()
    eventually(lambda: machine_of(bench, hosts[1]).state == "up", 60)
    bench.submit(waiting)
    assert bench.finish(waiting.name).started[0]["host"] == "h2"
    assert bench.status(first).state is JobState.RUNNING


def test_a_trial_goes_on_while_the_link_is_cut_and_nothing_is_lost(hosts, setting, bench_of):
    bench = bench_of(setting.config(setting.machine(hosts[0])))
    name = bench.run(counting(60, 0.5))
    eventually(lambda: bench.received(name).values)
    hosts[0].cut()
    status = bench.wait(name, JobState.UNKNOWN, 60)
    assert hosts[0].address in status.reason
    seen = len(bench.received(name).values)
    eventually(lambda: "61" in hosts[0].run(f"grep -c . '{bench.handles[name]['directory']}/.nni/metrics'"), 60)
    assert len(bench.received(name).values) == seen
    hosts[0].mend()
    assert finish_slowly(bench, name).values == [*range(60), 60]
    assert len(bench.received(name).exits) == 1


def test_killing_the_sshd_of_a_running_trial_harms_nothing(hosts, setting, bench_of):
    bench = bench_of(setting.config(setting.machine(hosts[0])))
    name = bench.run(counting(40, 0.1))
    for _ in range(3):
        before = len(bench.received(name).values)
        eventually(lambda: len(bench.received(name).values) > before)  # noqa: B023
        hosts[0].kill_sessions()
    assert finish_slowly(bench, name).values == [*range(40), 40]


def test_jobs_of_a_host_that_was_power_cycled_are_lost_and_their_metrics_kept(hosts, setting, bench_of):
    bench = bench_of(setting.config(setting.machine(hosts[0])))
    name = bench.run(counting(1000, 0.1))
    eventually(lambda: len(bench.received(name).values) > 5)
    hosts[0].power_off()
    bench.wait(name, JobState.UNKNOWN, 60)
    hosts[0].power_on()
    status = bench.wait(name, limit_s=90)
    assert (status.state, status.reason) == (JobState.LOST, "its machine was restarted")
    events = bench.call(bench.service.reports(bench.handles[name]))
    values = [event.value for event in events if hasattr(event, "value")]
    assert values[: len(bench.received(name).values)] == bench.received(name).values
    assert bench.finish(bench.run(counting(1, 0))).values == [0, 1]


def test_a_killed_keeper_is_noticed_and_its_trial_ended(hosts, setting, bench_of):
    bench = bench_of(setting.config(setting.machine(hosts[0])))
    name = bench.run("sleep 1234")
    bench.wait(name, JobState.RUNNING)
    hosts[0].run(f"kill -9 {bench.handles[name]['pid']}")
    status = bench.wait(name, limit_s=60)
    assert (status.state, status.reason) == (JobState.LOST, "its keeper was killed")
    assert hosts[0].run("pgrep -f '[s]leep 1234' || true") == ""


def test_a_host_without_space_takes_no_trials_and_says_so(hosts, setting, bench_of):
    hosts[0].run(f"mkdir -p {hosts[0].home}/nnilite; mount -t tmpfs -o size=64k tmpfs {hosts[0].home}/nnilite")
    hosts[0].run(f"chown tester: {hosts[0].home}/nnilite")
    bench = bench_of(setting.config(*(setting.machine(host) for host in hosts[:2])))
    names = [bench.run(counting(1, 0)) for _ in range(3)]
    assert {find_host(bench, name, hosts).name for name in names} == {"h2"}
    assert "pace" in machine_of(bench, hosts[0]).reason
    assert [bench.finish(name).values for name in names] == [[0, 1]] * 3


def test_a_disk_that_fills_up_later_sends_trials_elsewhere(hosts, setting, bench_of):
    home = hosts[0].home
    hosts[0].run(
        f"mkdir -p {home}/nnilite; mount -t tmpfs -o size=3m tmpfs {home}/nnilite; chown tester: {home}/nnilite"
    )
    bench = bench_of(setting.config(*(setting.machine(host) for host in hosts[:2])))
    eventually(lambda: machine_of(bench, hosts[0]).state == "up")
    hosts[0].run(f"cat /dev/zero > {home}/nnilite/big || true", user="tester")
    job = bench.job(counting(1, 0))
    bench.refusal(bench.service.submit(job))
    bench.submit(job)
    assert find_host(bench, job.name, hosts).name == "h2"
    assert bench.finish(job.name).values == [0, 1]


def test_a_cancel_reaches_a_host_that_was_away(hosts, setting, bench_of):
    bench = bench_of(setting.config(setting.machine(hosts[0])))
    name = bench.run("sleep 1235")
    bench.wait(name, JobState.RUNNING)
    hosts[0].kill_sessions()
    bench.call(bench.service.cancel(bench.handles[name]))
    assert bench.wait(name, limit_s=60).state is JobState.CANCELED
    assert hosts[0].run("pgrep -f '[s]leep 1235' || true") == ""


def test_a_stop_right_after_a_cut_names_the_host_and_the_next_one_cleans_up(hosts, setting, bench_of):
    bench = bench_of(setting.config(setting.machine(hosts[0]), keep="nothing"))
    name = bench.run("true")
    bench.finish(name)
    bench.call(bench.service.remove(bench.handles[name]))
    hosts[0].cut()
    with pytest.raises(ServiceError, match=f"{hosts[0].address} was unreachable"):
        bench.close()
    hosts[0].mend()
    bench.handles.clear()
    bench.restart()
    bench.close()
    assert hosts[0].run("ls ~tester/nnilite").split() == ["cache"]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("trials", [15, pytest.param(30, marks=pytest.mark.long)])
def test_trials_under_random_cuts_account_for_every_metric(hosts, setting, bench_of, monkeypatch, trials):
    monkeypatch.setattr("nnilite.ssh.connect.UNANSWERED_S", 2.0)
    monkeypatch.setattr("nnilite_remote._machine_session._ANSWER_S", 3.0)
    bench = bench_of(setting.config(*(setting.machine(host, slots=4) for host in hosts)))
    jobs = [bench.job(counting(20, 0.3)) for _ in range(trials)]
    trouble = Trouble(random.Random(4), hosts, every=40, times=trials // 2)

    def over() -> bool:
        trouble.stir(sum(len(bench.received(job.name).values) for job in jobs))
        bench.call(bench.service.poll(list(bench.handles.values())))
        for job in jobs:
            if job.name not in bench.handles and bench.refusal(_submitted(bench, job)) is not None:
                break  # no machine takes one now
        return all(bench.received(job.name).exits for job in jobs)

    eventually(over, 240)
    assert trouble.end() == 0
    assert [bench.received(job.name).values for job in jobs] == [[*range(20), 20]] * trials
    assert all(len(bench.received(job.name).started) == 1 for job in jobs)


async def _submitted(bench, job):
    bench.handles[job.name] = await bench.service.submit(job)


class Trouble:
    """Breaks a link whenever so many more values have come, however fast that goes: by a kill, or a cut that is too
    short to be noticed, or one that is not."""

    def __init__(self, luck: random.Random, hosts: list, every: int, times: int) -> None:
        self._plan = [(luck.choice(hosts), luck.choice((None, 0.3, 3.0))) for _ in range(times)]
        self._every = every
        self._done = 0
        self._mends: dict = {}

    def end(self) -> int:
        """Mend all; how much of the plan was not carried out."""
        self._mend(float("inf"))
        return len(self._plan) - self._done

    def _mend(self, now: float) -> None:
        for host in [host for host, when in self._mends.items() if now > when]:
            del self._mends[host]
            host.mend()

    def stir(self, values: int) -> None:
        self._mend(time.monotonic())
        while self._done < len(self._plan) and values >= self._every * (self._done + 1):
            host, cut_s = self._plan[self._done]
            self._done += 1
            if cut_s is None:
                host.kill_sessions()
            else:
                host.cut()
                self._mends[host] = time.monotonic() + cut_s


def two_jobs(bench, host):
    """A job that has ended and one that runs now, mostly in its keeper, which is free a moment after the first."""
    first = bench.run("exit 3")
    bench.finish(first)
    eventually(lambda: host.run(f"test -e {bench.handles[first]['directory']}/.nni/delivered; echo $?") == "0\n")
    second = bench.run("sleep 2; exit 4")
    bench.received(second)
    eventually(lambda: bench.status(second).state is JobState.RUNNING)
    return first, second


@pytest.mark.parametrize("broken", ["exit", ".", "fork server"])
def test_to_cancel_an_ended_job_does_not_end_the_one_that_its_keeper_runs_now(hosts, setting, bench_of, broken):
    bench = bench_of(setting.config(setting.machine(hosts[0])))
    first, second = two_jobs(bench, hosts[0])
    while bench.handles[first]["pid"] != bench.handles[second]["pid"]:
        bench.finish(second)
        first, second = two_jobs(bench, hosts[0])
    if broken == "fork server":
        hosts[0].run("pkill -KILL -o -f 'keeper-.* serve'")
    else:  # as if nobody knew how it ended
        hosts[0].run(f"rm -r {bench.handles[first]['directory']}/.nni/{broken if broken != '.' else ''}")
    bench.call(bench.service.cancel(bench.handles[first]))
    bench.call(bench.service.remove(bench.handles[first]))
    assert bench.wait(second).exit_code == 4
