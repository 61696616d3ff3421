"""Makes the job that a training service runs from an attempt of a trial, and the tokens of jobs."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from nnilite.errors import NotFound
from nnilite.records import Attempt, Json, Trial
from nnilite.service import Job, JobSpec


def token(secret: str, job: str) -> str:
    """Return the token of a job, derived from the experiment's secret, so that none needs to be stored."""
    return hmac.new(secret.encode(), job.encode(), hashlib.sha256).hexdigest()


@dataclass(frozen=True)
class JobMaker:
    """What all jobs of an experiment have in common."""

    experiment: str
    secret: str  # the experiment's
    command: str
    platform: str
    gpus: int | None
    grace_s: int
    max_output_bytes: int
    linger_s: int
    checkpoints: Path
    report: str = "rest"  # or "stdout"
    authority: str = ""  # PEM text of the certificate that the manager serves with, "" without TLS
    callback: Callable[[], str] = str  # base URL of the manager's REST interface
    distributed: Mapping[str, Json] | None = None  # the same as in the keeper's specification
    storage: Callable[[], Mapping[str, Json] | None] = lambda: None  # the shared storage, with credentials
    env: Callable[[], Mapping[str, str]] = dict  # variables that are added to the trial's environment

    def name(self, trial: str, attempt: int) -> str:
        return f"nni-{self.experiment}-{trial}-{attempt}"

    def parse(self, name: str) -> tuple[str, int]:
        """Parse trial and number of the attempt from the name of a job. Raises: NotFound."""
        trial, _, number = name.removeprefix(f"nni-{self.experiment}-").rpartition("-")
        if not name.startswith(f"nni-{self.experiment}-") or not trial or not number.isdecimal():
            raise NotFound(f"There is no job {name!r} in this experiment.")
        return trial, int(number)

    def token(self, name: str) -> str:
        """Return the token of a job, which gives access to the callback of this job and to nothing else."""
        return token(self.secret, name)

    def __call__(self, trial: Trial, attempt: Attempt) -> Job:
        name = self.name(trial.id, attempt.number)
        spec = JobSpec(
            job=name,
            experiment=self.experiment,
            trial=trial.id,
            attempt=attempt.number,
            sequence=trial.sequence,
            platform=self.platform,
            token=self.token(name),
            callback=self.callback(),
            callback_ca=self.authority or None,
            report=self.report,
            parameters=_make_parameter_record(trial),
            env=dict(self.env()),
            command=self.command,
            grace_s=self.grace_s,
            max_output_bytes=self.max_output_bytes,
            linger_s=self.linger_s,
            checkpoint_dir=str(self.checkpoints / trial.id),
            storage=self.storage(),
            distributed=self.distributed,
        )
        return Job(name, self.experiment, trial.id, attempt.number, trial.sequence, spec.json(), self.gpus)


def _make_parameter_record(trial: Trial) -> dict[str, Json]:
    """Return the content of `parameter.cfg`: NNI's parameter record."""
    return {
        "parameter_id": trial.parameter_id,
        "parameter_source": trial.source,
        "parameters": trial.parameters,
        "parameter_index": 0,
    }
