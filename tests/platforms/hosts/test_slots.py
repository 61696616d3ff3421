"""Experiments that share the slots of hosts: they meet on each host, whoever their managers are."""

from __future__ import annotations

import pytest

from nnilite.errors import NoCapacity
from nnilite.testing import eventually

pytestmark = [pytest.mark.real, pytest.mark.timeout(120)]


@pytest.fixture
def sharing(hosts, setting, bench_of):
    """Opens an experiment of its own with slots on the first hosts."""

    def make(count: int = 1, **terms: int):
        terms = {"max_slots": 1, **terms}
        bench = bench_of(setting.config(*(setting.machine(host) for host in hosts[:count]), **terms))
        eventually(lambda: all(host.state == "up" for host in bench.service.hosts()), 60)
        return bench

    return make


def waits(bench, job) -> str:
    """Whom a job waits for."""
    refused = bench.refusal(bench.service.submit(job))
    assert isinstance(refused, NoCapacity)
    return str(refused)


def name_of(bench) -> str:
    return bench.job("true").experiment


def test_experiments_of_two_managers_take_turns_on_a_host(hosts, sharing):
    first, second, urgent = sharing(), sharing(), sharing(priority=3)
    running = first.run("sleep 60")
    mine, theirs = second.job("sleep 60"), urgent.job("sleep 60")
    where = f"waits for a machine: on {hosts[0].address} it "
    taken = f"{where}waits for a slot of this machine: 1 of 1 (maxSlots) are taken, by {name_of(first)}"
    assert waits(second, mine) == taken
    assert waits(urgent, theirs) == taken
    assert waits(second, mine) == f"{where}waits for experiment {name_of(urgent)}, whose priority 3 is higher"
    first.call(first.service.cancel(first.handles[running]))
    first.wait(running)
    urgent.submit(theirs)
    assert waits(second, mine).endswith(f"are taken, by {name_of(urgent)}")


def test_a_trial_takes_the_first_host_with_a_slot_and_waits_nowhere_else(hosts, sharing):
    full, choosing = sharing(1), sharing(2)
    full.run("sleep 60")
    name = choosing.run("sleep 60")
    assert hosts[1].address in choosing.handles[name]["machine"]
    place = f"{hosts[0].home}/nnilite/.slots/{name_of(choosing)}.*"
    eventually(lambda: hosts[0].run(f"ls {place} 2>/dev/null || true") == "", 60)


def test_trials_of_a_manager_that_is_gone_hold_their_slots_until_they_end(hosts, sharing):
    gone, other = sharing(), sharing()
    gone.run(f"while [ ! -e {hosts[0].home}/go ]; do sleep 0.1; done")
    gone.close()
    job = other.job("true")
    assert waits(other, job).endswith(f"are taken, by {name_of(gone)}")
    hosts[0].run(f"touch {hosts[0].home}/go")
    eventually(lambda: other.refusal(other.service.submit(job)) is None, 60)


def test_a_host_that_was_restarted_has_all_its_slots(hosts, sharing):
    lost, other = sharing(), sharing()
    lost.run("sleep 60")
    hosts[0].power_off()
    hosts[0].power_on()
    job = other.job("true")
    eventually(lambda: other.refusal(other.service.submit(job)) is None, 60)


def test_slots_and_priority_change_while_trials_wait(hosts, sharing):
    first, second = sharing(max_slots=2), sharing(max_slots=2)
    running = first.run("sleep 60")
    first.service.share_slots(1, None)
    second.service.share_slots(1, 5)
    theirs, mine = first.job("true"), second.job("true")
    assert waits(first, theirs).endswith(f"1 of 1 (maxSlots) are taken, by {name_of(first)}")
    assert "1 of 1 (maxSlots)" in waits(second, mine)
    assert waits(first, theirs).endswith(f"waits for experiment {name_of(second)}, whose priority 5 is higher")
    first.service.share_slots(3, 6)
    first.submit(theirs)
    first.call(first.service.cancel(first.handles[running]))
    first.wait(running)
