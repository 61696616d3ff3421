"""The service: each handle has the whole plan of its attempt, so that nothing else is to be found again.

Simulated time begins with the experiment, and passes while no manager runs, as that of a platform does. In the folder
`simulated` of the experiment are the moment of its begin, and by trial the plan of the last attempt, from whose
checkpoint the next one continues.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from nnilite.errors import ConfigError, NoCapacity
from nnilite.records import Host, Json, KeeperEvent, MetricKind, Reported, Started
from nnilite.service import Handle, Job, JobState, JobStatus, ServiceContext, TrainingService
from nnilite.services.module_command import module_command
from nnilite_simulated._attempt_plan import AttemptPlan, WorkerGroup, made_plan
from nnilite_simulated._config import IGNORED, SimulatedConfig
from nnilite_simulated._last_attempts import LastAttempts, read_object, write_object
from nnilite_simulated._trace import Trace, read_trace, shipped

_OBJECTIVE_TIMEOUT_S = 30.0
_LOST = "its machine was taken away, says the trace"
_BUDGET, _LOAD, _SAVE = "TRIAL_BUDGET", "load_checkpoint_dir", "save_checkpoint_dir"  # as tuners name them


class SimulatedService(TrainingService):
    """Attempts in simulated time."""

    Config: ClassVar[type] = SimulatedConfig
    ignores = IGNORED
    tells_cost: ClassVar[bool] = True

    def __init__(self, name: str, config: SimulatedConfig, context: ServiceContext) -> None:
        super().__init__(name, config, context)
        self._begun = context.directory / "simulated" / name / "begun.json"
        self._attempts = LastAttempts(self._begun.parent)
        self._trace = Trace(1.0, (0.0,), (0.0,))
        self._curves: list[list[float]] = []
        self._epoch = 0.0

    async def open(self) -> None:
        await self.check()
        begun = read_object(self._begun)
        self._epoch = float(begun["epoch"]) if begun else time.time()
        if not begun:
            write_object(self._begun, {"epoch": self._epoch})
        self._attempts.load()

    async def check(self) -> None:
        own = self.config.trace_file
        self._trace = shipped(self.config.trace) if own is None else read_trace(own)
        if self.config.curves is not None:
            self._curves = _read_curves(self.config.curves)

    async def submit(self, job: Job) -> Handle:
        last = self._attempts.read(job.trial)
        if last and last["job"] == job.name:
            return last
        now_s = self._read_now_s()
        if self.config.slots is not None and self._attempts.count_running(now_s) >= self.config.slots:
            raise NoCapacity(f"all {self.config.slots} slots are taken")
        # A further attempt has the same parameters.
        curve = last["curve"] if last else await self._get_curve(job)
        saved = _plan(last).saved(now_s, self.config.checkpoint_every) if last else 0
        first = min(max(saved, self._find_saved(job)), len(curve) - 1)
        times = (float(self.config.start_time), float(self.config.step_time), first)
        plan = made_plan(job.name, self._trace, now_s, curve, times, self._make_group())
        folder = job.parameters.get(_SAVE)
        handle = {"job": job.name, "trial": job.trial, "plan": plan.json(), "curve": curve, "saves": folder}
        self._attempts.write(handle)
        left_s = (plan.end_s - now_s) / self.config.speed_up
        asyncio.get_running_loop().call_later(min(left_s, 86400.0) + 0.01, self.context.wake)
        return handle

    async def poll(self, handles: Sequence[Handle]) -> list[JobStatus]:
        now_s = self._read_now_s()
        return [self._status(handle, now_s) for handle in handles]

    async def cancel(self, handle: Handle) -> None:
        """End the attempt now: its plan is cut off, and its checkpoint stays."""
        known, now_s = self._attempts.read(handle["trial"]), self._read_now_s()
        if known and known["job"] == handle["job"] and not _plan(known).has_ended(now_s):
            cut = replace(_plan(known), end_s=now_s, is_lost=True)
            self._attempts.write({**known, "plan": cut.json(), "canceled": True})
            self.context.wake()

    async def reports(self, handle: Handle) -> Sequence[KeeperEvent]:
        plan, now_s = self._get_current(handle)[0], self._read_now_s()
        curve, done = handle["curve"], plan.done(now_s)
        events: list[KeeperEvent] = [Started(self._convert_to_wall(plan.begin_s), self.name)]
        for index, step in enumerate(range(plan.first, done)):
            when = self._convert_to_wall(plan.moments[index])
            events.append(Reported(index, MetricKind.PERIODICAL, index, curve[step], when))
        if plan.has_ended(now_s) and not plan.is_lost:
            count = done - plan.first
            events.append(Reported(count, MetricKind.FINAL, 0, curve[-1], self._convert_to_wall(plan.end_s)))
        return events

    def describe(self, job: Job) -> Json:
        """Return the world in which the attempt would pass: nothing is sent anywhere."""
        return {"name": job.name, "world": {name: _plain(value) for name, value in vars(self.config).items()}}

    def hosts(self) -> list[Host]:
        now_s = self._read_now_s()
        running = self._attempts.count_running(now_s)
        price = self._trace.cost(now_s, now_s + 3600.0)
        return [Host(self.name, "up", "", running, {"price": price, "simulatedHours": now_s / 3600.0})]

    def _status(self, handle: Handle, now_s: float) -> JobStatus:
        plan, canceled = self._get_current(handle)
        facts: dict[str, Any] = {"host": self.name, "started": self._convert_to_wall(plan.begin_s)}
        cost = plan.cost(self._trace, now_s)
        if not plan.has_ended(now_s):
            return JobStatus(JobState.RUNNING, cost=cost, **facts)
        facts["ended"] = self._convert_to_wall(plan.end_s)
        if canceled:
            return JobStatus(JobState.CANCELED, cost=cost, **facts)
        if plan.is_lost:
            return JobStatus(JobState.LOST, _LOST, cost=cost, **facts)
        return JobStatus(JobState.SUCCEEDED, exit_code=0, cost=cost, **facts)

    def _get_current(self, handle: Handle) -> tuple[AttemptPlan, bool]:
        """Return the plan of a job, cut off if it was canceled."""
        known = self._attempts.read(handle["trial"])
        if known and known["job"] == handle["job"]:
            return _plan(known), bool(known.get("canceled"))
        return _plan(handle), False

    def _find_saved(self, job: Job) -> int:
        """Return how many steps another trial has done that left its checkpoint where this one begins.

        This takes a budget, and a function that heeds it: such a curve has all steps from the beginning.
        """
        folder = job.parameters.get(_LOAD) if _BUDGET in job.parameters else None
        if folder is None or self._curves:
            return 0
        earlier = [one for one in self._attempts.saved_in(str(folder)) if one["trial"] != job.trial]
        return max((_plan(one).done(self._read_now_s()) for one in earlier), default=0)

    def _make_group(self) -> WorkerGroup:
        workers, least = self.config.workers, self.config.min_workers
        return WorkerGroup(workers, workers if least is None else least, float(self.config.replace_time))

    async def _get_curve(self, job: Job) -> list[float]:
        if self._curves:
            return self._curves[job.sequence % len(self._curves)]
        file, _, function = str(self.config.objective).rpartition(":")
        return await _ask_objective(
            str(self.context.code_directory / file), function, job.spec["parameters"]["parameters"]
        )

    def _read_now_s(self) -> float:
        return (time.time() - self._epoch) * float(self.config.speed_up)

    def _convert_to_wall(self, simulated_s: float) -> float:
        return self._epoch + simulated_s / float(self.config.speed_up)


def _plain(value: Any) -> Json:
    return str(value) if isinstance(value, Path) else value


def _plan(handle: Mapping[str, Json]) -> AttemptPlan:
    return AttemptPlan(**handle["plan"])


def _read_curves(path: Path) -> list[list[float]]:
    """Return the recorded curves. Raises: ConfigError that names the line."""
    found = []
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"curves: {path} cannot be read: {error}") from None
    for number, line in enumerate(lines, 1):
        try:
            found.append([float(value) for value in json.loads(line)])
        except (ValueError, TypeError, RecursionError):
            raise ConfigError(f"curves: line {number} of {path} is not a list of numbers, such as [0.4, 0.6]") from None
        if not found[-1]:
            raise ConfigError(f"curves: line {number} of {path} is empty; give at least one number")
    if not found:
        raise ConfigError(f"curves: {path} has no line; write a JSON list of numbers on each")
    return found


async def _ask_objective(file: str, function: str, parameters: Json) -> list[float]:
    """Return the curve that the user's function gives. Raises: ConfigError, which ends the trial with these words."""
    child = await asyncio.create_subprocess_exec(
        *module_command("nnilite_simulated._objective", file, function),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=dict(os.environ),
    )
    try:
        out, err = await asyncio.wait_for(child.communicate(json.dumps(parameters).encode()), _OBJECTIVE_TIMEOUT_S)
    except (TimeoutError, asyncio.TimeoutError):
        raise ConfigError(f"the objective gave no answer within {_OBJECTIVE_TIMEOUT_S:.0f} s") from None
    finally:
        if child.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                child.kill()
    if child.returncode != 0:
        last = err.decode(errors="replace").strip().rpartition("\n")[2]
        raise ConfigError(f"the objective {Path(file).name}:{function} failed: {last}")
    try:
        curve: list[float] = json.loads(out.decode(errors="replace").strip().rpartition("\n")[2])
    except (ValueError, RecursionError):  # it has ended its process itself, or printed something else last
        curve = []
    if not curve:
        raise ConfigError(f"the objective {Path(file).name}:{function} gave an empty curve")
    return curve
