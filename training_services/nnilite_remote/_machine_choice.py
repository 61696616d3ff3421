"""Chooses the machine of a job, or gives the reason why none can take it. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from nnilite.errors import ConfigError, NoCapacity
from nnilite.services.gpu import Gpu, GpuRules, choose


@dataclass(frozen=True)
class HostCandidate:
    """A machine as it is now."""

    key: str
    title: str
    trouble: str = ""  # why it gets no trial now; "" if it may
    slots: int | None = None
    labels: AbstractSet[str] = frozenset()
    rules: GpuRules = field(default_factory=GpuRules)
    gpus: Sequence[Gpu] | None = None  # None: they could not be read, and `trouble` says why if they are needed
    own_pids: AbstractSet[int] = frozenset()
    jobs: Mapping[str, Sequence[int]] = field(default_factory=dict)  # running here, with the GPUs of each
    slot_wait: str = ""  # whom the job waits for there, where experiments share the slots; "" if it has not asked
    rank: int = 0  # lower ones first: below 0 if what the job needs is here, above 0 if it was lost here before


@dataclass(frozen=True)
class Choice:
    """The machine of a job, and its GPUs there; None leaves the GPU variables alone."""

    key: str
    gpus: tuple[int, ...] | None


def choose_machines(
    machines: Sequence[HostCandidate],
    gpus: int | None,
    labels: AbstractSet[str],
    nodes: int = 1,
    fewest: int | None = None,
) -> list[Choice]:
    """Choose the machines for one more job: of those that can take it, by rank, those least used for their size.

    `fewest`: with how many the job can begin, if not only with all `nodes`.

    Raises: NoCapacity with a reason for each machine; ConfigError if no machine can ever take it.

        >>> choose_machines([HostCandidate("a", "a", jobs={"x": ()}), HostCandidate("b", "b")], None, set())
        [Choice(key='b', gpus=None)]
    """
    chosen: list[Choice] = []
    fitting = [machine for machine in machines if labels <= machine.labels]
    if not fitting:
        wanted = ", ".join(sorted(labels))
        raise ConfigError(f"no machine in machineList has the labels that this trial asks for: {wanted}")
    reasons: dict[str, list[str]] = {}
    waits: dict[str, list[str]] = {}
    for machine in sorted(fitting, key=lambda machine: (machine.rank, _load(machine))):
        try:
            given = _choose_gpus_on(machine, gpus)
        except NoCapacity as error:
            reasons.setdefault(str(error), []).append(machine.title)
        else:
            if not machine.slot_wait:
                chosen.append(Choice(machine.key, given))
                if len(chosen) == nodes:
                    return chosen
                continue
            waits.setdefault(machine.slot_wait, []).append(machine.title)
    least = nodes if fewest is None else fewest
    if len(chosen) >= least:
        return chosen
    parts = [f"on {', '.join(who)} it {why}" for why, who in waits.items()]
    parts += [f"{', '.join(who)} {why}" for why, who in reasons.items()]
    if least == 1:
        raise NoCapacity("waits for a machine: " + "; ".join(parts))
    missing = f" with {gpus} free GPUs" if gpus else ""
    raise NoCapacity(f"has {len(chosen)} of {least} machines{missing}: " + "; ".join(parts))


def _load(machine: HostCandidate) -> float:
    return len(machine.jobs) / (machine.slots or 1) if machine.slots else float(len(machine.jobs))


def _choose_gpus_on(machine: HostCandidate, wanted: int | None) -> tuple[int, ...] | None:
    """Return the GPUs for the job on this machine. Raises: NoCapacity."""
    if machine.trouble:
        raise NoCapacity(machine.trouble)
    if machine.slots is not None and len(machine.jobs) >= machine.slots:
        raise NoCapacity(f"runs {len(machine.jobs)} of {machine.slots} trials (slots)")
    if not wanted:
        return None if wanted is None else ()
    return choose(machine.gpus or (), wanted, machine.rules, machine.jobs, lambda pid: pid in machine.own_pids)
