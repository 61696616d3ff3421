"""`nni.runtime.msg_dispatcher_base`: the base class of NNI's advisors, which answer the manager's requests themselves.

An advisor runs as a tuner: what nnilite asks of a tuner becomes the request that NNI would send, and the trials that
the advisor sends are handed out in their order. A trial that it ends, ends at its next intermediate result.
"""

from __future__ import annotations

import json
from collections import deque

from nnilite import NoMoreTrialError, Tuner

from .tuner_command_channel import CommandType

__path__ = []  # type: ignore[var-annotated]  # see `nni._Elsewhere`

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["MsgDispatcherBase"]


class MsgDispatcherBase(Tuner):
    """Derive an advisor from it, with NNI's handlers; `self.send` answers, or the `send` of `nni.runtime.protocol`."""

    of_this_process: MsgDispatcherBase | None = None

    def __init__(self, command_channel_url: str | None = None) -> None:
        MsgDispatcherBase.of_this_process = self
        self.stopping = False
        self._accept_customized_trials()
        self._sent: deque[dict[str, Any]] = deque()
        self._records: dict[int | None, dict[str, Any]] = {}
        self._owed = 0  # requests that the advisor has not answered yet
        self._initialized = False
        self.unwanted: set[str] = set()  # trials that the advisor has ended

    # ------------------------------------------------------------ what an advisor calls

    def send(self, command: CommandType, data: Any) -> None:
        """Answer a request: a new trial, none now, the end of one, or an error. Raises: RuntimeError for an error."""
        if command is CommandType.NewTrialJob:
            self._owed = max(0, self._owed - 1)
            self._sent.append(json.loads(data))
        elif command is CommandType.NoMoreTrialJobs:  # now; NNI asks again when a trial has ended
            self._owed = max(0, self._owed - 1)
        elif command is CommandType.Error:
            raise RuntimeError(data)
        elif command is CommandType.KillTrialJob:
            self.unwanted.add(json.loads(data))

    def report_error(self, error: str) -> None:
        """End the experiment with this sentence."""
        self.send(CommandType.Error, error)

    def is_created_in_previous_exp(self, param_id: Any) -> bool:
        """Return False: after a resume all trials are replayed, so an advisor knows those of before as its own."""
        return False

    def recover_parameter_id(self, data: Any) -> int:
        """Return 0, the greatest number that NNI's resume has taken: none is taken, see above."""
        return 0

    def get_previous_param(self, param_id: Any) -> Any:
        """Return the parameters that the advisor has sent under this id."""
        sent = (record["parameters"] for record in self._records.values() if record["parameter_id"] == param_id)
        return next(sent)

    # ------------------------------------------------------------ what an advisor implements

    def handle_initialize(self, data: Any) -> None:
        """Accept the search space."""
        raise NotImplementedError("an advisor must implement handle_initialize")

    def handle_request_trial_jobs(self, data: int) -> None:
        """Send this many trials, now or later."""
        raise NotImplementedError("an advisor must implement handle_request_trial_jobs")

    def handle_update_search_space(self, data: Any) -> None:
        """Accept a changed search space."""
        raise NotImplementedError("an advisor must implement handle_update_search_space")

    def handle_import_data(self, data: Any) -> None:
        """Learn results from elsewhere."""
        raise NotImplementedError("an advisor must implement handle_import_data")

    def handle_add_customized_trial(self, data: Any) -> None:
        """Keep the name for NNI's advisors; nnilite does not call it."""

    def handle_report_metric_data(self, data: dict[str, Any]) -> None:
        """Learn a result: parameter_id, trial_job_id, type, sequence, value (JSON text)."""
        raise NotImplementedError("an advisor must implement handle_report_metric_data")

    def handle_trial_end(self, data: dict[str, Any]) -> None:
        """Handle the end of a trial: trial_job_id, event, hyper_params (JSON text)."""
        raise NotImplementedError("an advisor must implement handle_trial_end")

    def process_command(self, command: CommandType, data: Any) -> None:
        """Call the handler of a request."""
        handlers = {
            CommandType.Initialize: self.handle_initialize,
            CommandType.RequestTrialJobs: self.handle_request_trial_jobs,
            CommandType.UpdateSearchSpace: self.handle_update_search_space,
            CommandType.ImportData: self.handle_import_data,
            CommandType.ReportMetricData: self.handle_report_metric_data,
            CommandType.TrialEnd: self.handle_trial_end,
        }
        handlers[command](data)

    # ------------------------------------------------------------ what nnilite calls

    def update_search_space(self, search_space: Any) -> None:
        """Become a request of NNI: the first one initializes."""
        first, self._initialized = not self._initialized, True
        self.process_command(CommandType.Initialize if first else CommandType.UpdateSearchSpace, search_space)

    def generate_parameters(self, parameter_id: int, **kwargs: Any) -> Any:
        """Hand out the next trial that the advisor has sent, or ask for one. Raises: NoMoreTrialError if none came."""
        if not self._sent and not self._owed:
            self._owed = 1
            self.process_command(CommandType.RequestTrialJobs, 1)
        if not self._sent:
            raise NoMoreTrialError("the advisor has no trial now")
        record = self._records[parameter_id] = self._sent.popleft()
        return record["parameters"]

    def receive_trial_result(self, parameter_id: int | None, parameters: Any, value: Any, **kwargs: Any) -> None:
        """Become the request that reports a metric."""
        self._report(parameter_id, kwargs.get("trial_job_id"), "FINAL", 0, value)

    def hear_intermediate(self, parameter_id: int | None, trial: str, sequence: int, value: Any) -> None:
        """Become the request that reports an intermediate metric."""
        self._report(parameter_id, trial, "PERIODICAL", sequence, value)

    def _report(self, parameter_id: int | None, trial: str | None, kind: str, sequence: int, value: Any) -> None:
        known = self._records.get(parameter_id, {})
        fields = {"parameter_id": known.get("parameter_id"), "trial_job_id": trial, "type": kind, "sequence": sequence}
        self.process_command(CommandType.ReportMetricData, {**fields, "value": json.dumps(value)})

    def trial_end(self, parameter_id: int | None, success: bool, **kwargs: Any) -> None:
        """Become the request that reports the end."""
        record = self._records.get(parameter_id)
        if record is not None:
            fields = {"trial_job_id": kwargs.get("trial_job_id"), "event": "SUCCEEDED" if success else "FAILED"}
            self.process_command(CommandType.TrialEnd, {**fields, "hyper_params": json.dumps(record)})

    def import_data(self, data: Any) -> None:
        """Become the request that imports data."""
        self.process_command(CommandType.ImportData, data)
