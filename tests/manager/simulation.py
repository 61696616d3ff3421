"""A deterministic world around the rules: a tuner, a platform and keepers that do things in any order.

A test drives it step by step (`hypothesis` chooses the steps); it keeps the truth that the rules' records are checked
against. A crash throws the rules away and restores them from what was committed, as a killed manager would.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from nnilite._engine import messages
from nnilite._engine.dedupe import MetricCursor, fresh
from nnilite._engine.rules import Rules
from nnilite.records import (
    DRILLED,
    Attempt,
    EndCause,
    Exited,
    ExperimentState,
    KeeperEvent,
    MetricKind,
    Reported,
    Started,
    Trial,
    TrialState,
)
from nnilite.service import JobState, JobStatus
from nnilite.tuner import Call

EMPTY = messages.Snapshot(ExperimentState.INITIALIZED, "", 0.0, 0, 0, 0, {}, None, ())


@dataclass
class SimulatedJob:
    """A keeper with its trial: the truth about one attempt."""

    trial: str
    attempt: int
    spool: list[KeeperEvent] = field(default_factory=list)  # all that ever happened, numbered
    alive: bool = True
    removed: bool = False

    def report(self, final: bool, value: float) -> None:
        metrics = [e for e in self.spool if isinstance(e, Reported)]
        kind = MetricKind.FINAL if final else MetricKind.PERIODICAL
        self.spool.append(Reported(len(metrics), kind, 0 if final else len(metrics), value, 0.0))

    def exit(self, code: int, cause: EndCause = EndCause.ITSELF) -> None:
        self.spool.append(Exited(0.0, code, cause=cause))
        self.alive = False


@dataclass
class Committed:
    """What the store would hold."""

    trials: dict[str, Trial] = field(default_factory=dict)
    attempts: dict[tuple[str, int], Attempt] = field(default_factory=dict)
    metrics: list[tuple[str, int, int]] = field(default_factory=list)
    calls: list[messages.SaveCall] = field(default_factory=list)
    removals: set[tuple[str, int]] = field(default_factory=set)
    experiment: messages.SaveExperiment | None = None

    def take(self, records: list[messages.Record]) -> None:
        for record in records:
            if isinstance(record, messages.SaveTrial):
                self.trials[record.trial.id] = record.trial
            elif isinstance(record, messages.SaveAttempt):
                self._take_attempt(record.attempt)
            elif isinstance(record, messages.SaveMetric):
                m = record.metric
                self.metrics.append((m.trial, m.attempt, m.index))
            elif isinstance(record, messages.SaveCall):
                self.calls.append(record)
            elif isinstance(record, messages.SaveRemoval):
                change = self.removals.add if record.pending else self.removals.discard
                change((record.trial, record.attempt))
            else:
                self.experiment = record

    def _take_attempt(self, attempt: Attempt) -> None:
        key = (attempt.trial, attempt.number)
        old = self.attempts.get(key)
        ended = old is not None and JobState(old.state).ended
        assert not ended or JobState(attempt.state).ended, "an ended attempt came to life again"
        self.attempts[key] = attempt

    def calls_until(self, number: int) -> list[Call]:
        """What a new tuner is told first."""
        return [record.call for record in sorted(self.calls, key=lambda r: r.number) if record.number <= number]

    def snapshot(self) -> messages.Snapshot:
        live = [t for t in self.trials.values() if not t.state.ended]
        counts = {state: sum(t.state is state for t in self.trials.values()) for state in TrialState}
        ids = [t.parameter_id for t in self.trials.values() if t.parameter_id is not None]
        return messages.Snapshot(
            ExperimentState.RUNNING,
            "",
            0.0,
            len(self.trials),
            max(ids, default=-1) + 1,
            max((record.number for record in self.calls), default=0),
            counts,
            None,
            tuple(self._live(t) for t in sorted(live, key=lambda t: t.sequence)),
            tuple(self.attempts[key] for key in sorted(self.removals)),
        )

    def _live(self, trial: Trial) -> messages.LiveTrial:
        attempts = [a for (name, _), a in sorted(self.attempts.items()) if name == trial.id]
        lost = sum(a.state == "LOST" and not a.message.startswith(DRILLED) for a in attempts)
        failed = tuple(a.exit_code for a in attempts if a.state == "FAILED")
        return messages.LiveTrial(trial, attempts[-1] if attempts else None, None, 0, lost, failed)


class World:
    """Rules, and what is around them. Every public method is one step."""

    def __init__(self, settings: messages.Settings) -> None:
        self.settings = settings
        self.now = 1000.0
        self.lived = 0.0  # by the manager that runs now
        self.committed = Committed()
        self.rules = Rules(settings, EMPTY, self.now)
        self.jobs: dict[tuple[str, int], SimulatedJob] = {}
        self.cursors: dict[tuple[str, int], MetricCursor] = {}
        self.actions: list[messages.Action] = []
        self.told: list[messages.Tell] = []
        self.answer: messages.Proposed | None = (
            None  # of the tuner, on its way to the rules: no other call before it is there
        )
        self.heard: list[Call] | None = []  # by the tuner that lives now; None: it proposed what nobody wanted any more
        self.names = 0
        self.left_to_propose = 1_000_000

    def give(self, given: messages.Input) -> None:
        outcome = self.rules.step(given)
        self.committed.take(outcome.records)
        self.actions += outcome.actions

    def start(self) -> None:
        self.give(messages.TunerReady())

    def act(self, index: int) -> None:
        """One of the actions is taken: not always the oldest, as the tasks of the engine run side by side."""
        kinds = (messages.Submit, messages.Cancel, messages.Remove)
        service = [a for a in self.actions if isinstance(a, kinds)]
        tuner = [self.answer] if self.answer else [a for a in self.actions if not isinstance(a, kinds)]
        queues = [queue for queue in (service, tuner) if queue]
        if queues:
            action = queues[index % len(queues)][0]
            if isinstance(action, messages.Proposed):
                self._propose(action)
            else:
                self.actions.remove(action)
                self._act(action)

    def _propose(self, answer: messages.Proposed) -> None:
        self.answer = None
        self.give(answer)
        self._hear([Call("generate", number, trial, parameters) for number, trial, parameters in answer.proposals])

    def _act(self, action: messages.Action) -> None:
        if isinstance(action, messages.Ask):
            self._check_tuner(action.after)
            number = min(len(action.parameter_ids), self.left_to_propose)
            self.left_to_propose -= number
            proposals = tuple((i, self._name(), {"x": i}) for i in action.parameter_ids[:number])
            self.answer = messages.Proposed(proposals, len(action.parameter_ids), self.now)
        elif isinstance(action, messages.Tell):
            self._check_tuner(action.number - 1)
            self.told.append(action)
            self._hear([action.call])
        elif isinstance(action, messages.Submit):
            self._submit(action)
        elif isinstance(action, messages.Cancel):
            self._cancel(action)
        elif isinstance(action, messages.Remove):
            self.remove(action, True)

    def _hear(self, calls: list[Call]) -> None:
        known = [record.call for record in self.committed.calls]
        if self.heard is not None:
            self.heard = [*self.heard, *calls] if all(call in known for call in calls) else None

    def _check_tuner(self, after: int) -> None:
        """A tuner that died now and was rebuilt would know the same, in the same order."""
        assert self.heard is None or self.heard == self.committed.calls_until(after)

    def _name(self) -> str:
        self.names += 1
        return f"t{self.names}"

    def _submit(self, action: messages.Submit) -> None:
        key = (action.trial.id, action.attempt.number)
        if key not in self.jobs:  # submitting twice is harmless
            self.jobs[key] = SimulatedJob(*key, [Started(self.now)])
        self.give(messages.Submitted(*key, "fake", {"job": key}, self.now))

    def _cancel(self, action: messages.Cancel) -> None:
        job = self.jobs.get((action.attempt.trial, action.attempt.number))
        if job is not None and job.alive:
            job.exit(-15)

    def remove(self, action: messages.Remove, done: bool) -> None:
        key = (action.attempt.trial, action.attempt.number)
        self.jobs[key].removed |= done
        self.give(messages.Removed(*key, done, self.now))

    # ------------------------------------------------------------ what workers do

    def _pick(self, index: int, alive: bool) -> SimulatedJob | None:
        found = [job for job in self.jobs.values() if job.alive or not alive]
        return found[index % len(found)] if found else None

    def report(self, index: int, final: bool) -> None:
        job = self._pick(index, alive=True)
        if job is not None:
            job.report(final, float(index))

    def exit(self, index: int, code: int) -> None:
        job = self._pick(index, alive=True)
        if job is not None:
            job.exit(code)

    def interrupt(self, index: int, code: int) -> None:
        """The platform tells the keeper to stop: nobody of ours has asked for that."""
        job = self._pick(index, alive=True)
        if job is not None:
            job.exit(code, EndCause.INTERRUPTED)

    def orphan(self, index: int) -> None:
        """The keeper gives its manager up."""
        job = self._pick(index, alive=True)
        if job is not None:
            job.exit(-15, EndCause.ORPHANED)

    def lose(self, index: int) -> None:
        """The worker is gone, and its spool with it."""
        job = self._pick(index, alive=True)
        if job is not None:
            job.alive = False
            self.give(messages.Polled(job.trial, job.attempt, JobStatus(JobState.LOST, "node gone"), self.now))

    def deliver(self, index: int, first: int, count: int) -> None:
        """A keeper sends part of its spool, perhaps again."""
        job = self._pick(index, alive=False)
        if job is None:
            return
        key = (job.trial, job.attempt)
        trial = self.committed.trials[job.trial]
        if trial.attempt != job.attempt:
            return  # refused: a newer attempt has taken its place
        first %= len(job.spool)
        batch = job.spool[first : first + count]
        cursor = self.cursors.setdefault(key, MetricCursor())
        known = sum(isinstance(e, Reported) for e in job.spool[:first])
        if known > cursor.metrics:
            return  # a gap: the keeper is told where to begin
        found = fresh(cursor, batch)
        if job.trial in self.rules.live:
            self.give(messages.LiveEvents(*key, tuple(found.events), self.now))
        elif found.events:
            self.give(messages.LateEvents(trial, self.committed.attempts[key], tuple(found.events), self.now))
        self.cursors[key] = found.cursor

    def stale(self, index: int) -> None:
        """A word about an attempt that has been superseded must change nothing."""
        job = self._pick(index, alive=False)
        if job is None or self.committed.trials[job.trial].attempt == job.attempt:
            return
        late = Reported(999, MetricKind.FINAL, 0, 1.0, self.now)
        for given in (
            messages.LiveEvents(job.trial, job.attempt, (Started(self.now), late, Exited(self.now, 0)), self.now),
            messages.Polled(job.trial, job.attempt, JobStatus(JobState.SUCCEEDED), self.now),
            messages.Submitted(job.trial, job.attempt, "fake", {"stale": 1}, self.now),
            messages.SubmitRefused(job.trial, job.attempt, "stale", False, self.now, final=True),
            messages.Assessed(job.trial, job.attempt, False, self.now),
        ):
            before = self.committed.trials[job.trial]
            self.give(given)
            after = self.committed.trials[job.trial]
            assert (before.state, before.attempt, before.value) == (after.state, after.attempt, after.value)
            assert (job.trial, job.attempt, 999) not in self.committed.metrics

    def poll(self, index: int) -> None:
        job = self._pick(index, alive=False)
        if job is None:
            return
        if job.alive:
            status = JobStatus(JobState.RUNNING)
        else:
            self.deliver_all(job)
            end = next((e for e in job.spool if isinstance(e, Exited)), None)
            states = {None: JobState.LOST, 0: JobState.SUCCEEDED}
            status = JobStatus(states.get(end.code if end else None, JobState.FAILED), "", end.code if end else None)
        self.give(messages.Polled(job.trial, job.attempt, status, self.now))

    def deliver_all(self, job: SimulatedJob) -> None:
        index = list(self.jobs.values()).index(job)
        self.deliver(index, 0, len(job.spool))

    # ------------------------------------------------------------ what people, time and accidents do

    def cancel(self, index: int) -> None:
        names = list(self.committed.trials)
        if names:
            self.give(messages.CancelTrial(names[index % len(names)], self.now))

    def drill(self, index: int) -> None:
        """Somebody rehearses the loss of a machine. Only trials that run can be meant; others are left as they are."""
        names = list(self.committed.trials)
        if names:
            self.give(messages.Interrupt(names[index % len(names)], self.now))

    def rerun(self, index: int) -> None:
        ended = [trial for trial in self.committed.trials.values() if trial.state.ended]
        if ended:
            self.give(messages.Rerun(ended[index % len(ended)], self.now))

    def refuse(self, busy: bool) -> None:
        """The service has no room, or fails, for the next submission."""
        for action in self.actions:
            if isinstance(action, messages.Submit) and (action.trial.id, action.attempt.number) not in self.jobs:
                self.actions.remove(action)
                self.give(messages.SubmitRefused(action.trial.id, action.attempt.number, "no room", busy, self.now))
                return

    def swallow(self, crash: bool) -> None:
        """The service takes the next submission, and then does not answer; or the manager dies over the answer.

        Only at the first try: who asks for a trial's end does not wait for further ones without end.
        """
        for action in [action for action in self.actions if isinstance(action, messages.Submit)]:
            key = (action.trial.id, action.attempt.number)
            if key not in self.jobs and not self.rules.live[key[0]].refusals:
                self.actions.remove(action)
                self.jobs[key] = SimulatedJob(*key, [Started(self.now)])
                self.crash() if crash else self.give(messages.SubmitRefused(*key, "no answer", False, self.now))
                return

    def hold_on(self) -> None:
        """The service cannot remove a job now."""
        for action in self.actions:
            if isinstance(action, messages.Remove):
                self.actions.remove(action)
                self.remove(action, False)
                return

    def customize(self) -> None:
        self.give(messages.Customized(self._name(), {"x": -1}, self.now))

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.lived += seconds
        self.give(messages.Tick(self.now, self.lived))

    def be_stopped(self, seconds: float) -> None:
        """The manager's process is stopped for a while: nothing that runs may be held to be silent for that."""
        attempts = {name: live.trial.attempt for name, live in self.rules.live.items()}
        self.now += seconds
        self.give(messages.Tick(self.now, self.lived))
        again = [name for name, live in self.rules.live.items() if attempts.get(name) != live.trial.attempt]
        assert not again, "an attempt was given up for a time in which nobody could have heard it"

    def crash(self) -> None:
        """kill -9 of the manager: what was not committed is gone, jobs go on."""
        self.actions.clear()
        self.answer = None
        self.lived = 0.0
        self.rules = Rules(self.settings, self.committed.snapshot(), self.now)
        self.heard = self.committed.calls_until(self.rules.calls)
        self.cursors = {
            key: MetricCursor(
                sum(m[:2] == key for m in self.committed.metrics),
                attempt.started is not None,
                attempt.state in ("SUCCEEDED", "FAILED", "CANCELED") or attempt.reported_end is not None,
            )
            for key, attempt in self.committed.attempts.items()
        }
        self.start()

    def run_out(self, steps: int = 4000) -> None:
        """From here on everything works, until nothing is left to do."""
        for step in range(steps):
            ended = (ExperimentState.DONE, ExperimentState.ERROR, ExperimentState.STOPPED)
            if self.rules.state in ended and not self.actions:
                return
            if self.actions or self.answer:
                self.act(0)
                continue
            for index, job in enumerate(list(self.jobs.values())):
                if job.alive:
                    job.report(True, float(step))
                    job.exit(0)
                self.poll(index)
            self.pass_time(30.0)

    def wait_for_removals(self) -> None:
        """Hours pass, if need be."""
        for _ in range(20):
            self.pass_time(3600.0)
            while self.actions:
                self.act(0)
