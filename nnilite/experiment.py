"""Launch and steer experiments from Python, with NNI's methods.

    from nnilite.experiment import Experiment

    experiment = Experiment("local")
    experiment.config.trial_command = "python3 trial.py"
    experiment.config.search_space = {"x": {"_type": "uniform", "_value": [0, 1]}}
    experiment.config.trial_concurrency = 2
    experiment.config.max_trial_number = 20
    experiment.run()
    print(max(experiment.export_data(), key=lambda trial: trial.value))
    experiment.stop()

The manager is a process of its own. It keeps running after `run` has returned, so that its results and web page can be
viewed, until `stop` or the end of this program. Times in what these methods return are milliseconds since the epoch, as
in NNI.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from enum import Enum
from functools import partial, wraps
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar, cast, overload

from nnilite._experiments import registry
from nnilite._experiments.registry import RegistryEntry
from nnilite._nni import former_calls, nni_records
from nnilite._nni.nni_records import TrialHyperParameters, TrialJob, TrialMetricData, TrialResult
from nnilite._notebook import live_output
from nnilite._running import end_reasons, final_delivery, launch, managers
from nnilite._running.launch import ManagerOptions
from nnilite._running.log_view import LogView
from nnilite._running.manager_client import Client
from nnilite._running.manager_connection import Unreachable
from nnilite._running.managers import NotRunning
from nnilite._search.outcomes import call_back
from nnilite._search.progress import tell_best
from nnilite.config import ExperimentConfig, read_stored
from nnilite.errors import ConfigError, Conflict, NniliteError, NotFound
from nnilite.records import ExperimentState, Json, Trial, TrialState

if TYPE_CHECKING:
    from optuna.study import Study

    from nnilite._search.progress import SearchProgress
    from nnilite._search.search_result import SearchResult

__all__ = [
    "Experiment",
    "NotRunning",
    "RunMode",
    "TrialHyperParameters",
    "TrialJob",
    "TrialMetricData",
    "TrialResult",
]

log = logging.getLogger(__name__)

POLL_S = 0.1
_ENDED = (ExperimentState.DONE.value, ExperimentState.STOPPED.value, ExperimentState.ERROR.value)


class RunMode(Enum):
    """What happens to the manager."""

    Background = "background"  # it ends with this program
    Foreground = "foreground"  # ... and its log is shown on this program's standard error
    Detach = "detach"  # it keeps running when this program ends; `connect` finds it again


_Method = TypeVar("_Method", bound=Callable[..., Any])


def _static_too(method: _Method) -> _Method:
    """Let a method be called as the static ones of NNI 2, too, on the class or on any object.

    It gets the id, or None if that is named, in place of an object.
    """

    @wraps(method)
    def call(self: Any = None, *arguments: Any, **named: Any) -> Any:
        if arguments and isinstance(arguments[0], str):
            return method(*arguments, **named)
        return method(self, *arguments, **named)

    return cast("_Method", call)


def _find_named(given: Experiment | str, experiment_id: str | None) -> tuple[Experiment, bool]:
    """Return the experiment of a call, and whether it is a static one, which means it by its id."""
    if isinstance(given, Experiment) and experiment_id is None:
        return given, False
    return Experiment(id=experiment_id or cast("str", given)), True


class Experiment:
    """One experiment and, once started, the client of its manager.

    Args:
        config_or_platform: an `ExperimentConfig`, or the name (or names) of platforms for an empty one to be filled in.
        id: of an experiment that exists already, to `resume` or `view` it, or for a new one; if none is given,
            `id` is that of the experiment that `start` begins.
        quiet: whether `start` and `run` do not print the address and the progress.
        former: arguments of NNI 2: `config`, `training_service`, `tuner`.

    Raises, in methods that need the manager: NotRunning (a RuntimeError) and the errors of `nnilite.errors`.
    """

    def __init__(
        self,
        config_or_platform: ExperimentConfig | str | list[str] | None = None,
        id: str | None = None,
        *,
        quiet: bool = False,
        **former: Any,
    ) -> None:
        self._config: ExperimentConfig | None
        self._config, given = former_calls.read_arguments(config_or_platform, id, former)
        self.id: str = given or launch.new_id()
        self._is_known = given is not None  # whether the id may be that of an experiment that exists already
        self.quiet = quiet
        self.port: int | None = None
        self.url_prefix: str | None = None
        self._client: Client | None = None
        self._ending: Client | None = None  # of a manager that `stop` waits for
        self._entry: RegistryEntry | None = None
        self._log_view: LogView | None = None
        self._folders: list[tuple[Client, ExitStack]] = []  # what reads the stopped experiment's folder, and its end
        self._has_shown_error = False
        self._stops = 0  # how often it was asked to stop

    if not TYPE_CHECKING:  # type checkers know the attributes

        def __setattr__(self, name: str, value: Any) -> None:
            """Refuse what is meant for the config and would have no effect here. Raises: AttributeError."""
            field = "experiment_name" if name == "name" else name
            if type(self) is Experiment and not name.startswith("_") and field in ExperimentConfig.__dataclass_fields__:
                raise AttributeError(f"an Experiment has no {name!r}; set experiment.config.{field}")
            super().__setattr__(name, value)

        def __getattr__(self, name: str) -> Any:
            """Name the replacement of a method of NNI 2, or of a misspelt one. Raises: AttributeError."""
            known = [one for one in dir(type(self)) if not one.startswith("_")]
            advice = "" if name.startswith("_") else former_calls.explain_no_method(name, known)
            raise AttributeError(f"an Experiment has no {name!r}{advice}")

    def __repr__(self) -> str:
        url = self.url
        where = f" at {url}" if url is not None else "" if self._is_known else ", which has not begun"
        return f"<Experiment {self.id}{where}>"

    def _repr_html_(self) -> str:
        """Return what notebooks show: progress, the best trial, and the latest trials."""
        from nnilite._notebook import html

        if self._entry is None and self._client is None:
            return html.shown(repr(self))
        latest = self._reader.trials(sort="sequence", descending=True, limit=20)
        return html.experiment(self._reader.profile(), list(latest))

    def __enter__(self) -> Experiment:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def config(self) -> ExperimentConfig:
        """What the experiment is to do.

        Raises: Conflict where there is none, as of an experiment that was connected to.
        """
        if self._config is None:
            raise Conflict("An experiment needs a config before it can be started.")
        return self._config

    @config.setter
    def config(self, config: ExperimentConfig) -> None:
        self._config = config

    # Its life

    def start(self, port: int | None = None, debug: bool = False, run_mode: RunMode = RunMode.Background) -> None:
        """Start the manager and return once it is ready. Raises: ConfigError, Conflict.

        `port` 0 picks any free one; None means 8080 or, if that is in use, the next free one.
        """
        if self._client is not None:
            raise Conflict(f"Experiment {self.id} has been started already.")
        with self._starting():
            self._create(port, debug, detach=run_mode is RunMode.Detach)
        if run_mode is RunMode.Foreground and self._entry is not None and self._client is not None:
            self._log_view = LogView(self._entry.directory / "log" / "manager.log")
            self._log_view.start()

    def _create(self, port: int | None, debug: bool, *, detach: bool) -> None:
        config = self.config.checked()
        for warning in config.warnings:
            log.warning("%s", warning)
        entry = launch.create(config, options=self._options(port, debug), detach=detach, experiment=self.id)
        self._attach(entry, keep=detach)

    @overload
    def run(self, port: int | None = None, wait_completion: bool = True, debug: bool = False) -> bool | None: ...
    @overload
    def run(
        self,
        function: Callable[..., Any],
        /,
        wait_completion: bool = True,
        debug: bool = False,
        *,
        port: int | None = None,
        space: Mapping[str, Any] | None = None,
        trials: int | None = None,
        concurrency: int | None = None,
        timeout_s: float | None = None,
        optimize: str | Mapping[str, str] | None = None,
        callbacks: Sequence[Callable[[Experiment, Trial], object]] = (),
        progress: bool | None = None,
        python: str | None = None,
        code_directory: str | Path | None = None,
    ) -> SearchResult: ...
    # `port` is the first argument without a function, and a later one with it.
    def run(  # type: ignore[misc]
        self,
        function: Any = None,
        wait_completion: bool = True,
        debug: bool = False,
        *,
        port: int | None = None,
        **options: Any,
    ) -> Any:
        """Start, and wait until the experiment is over.

        Without a function the trials run the config's command, and `run(port)` gives True if the experiment is DONE or
        was stopped, False if it ended in ERROR, None if it was not waited for or was interrupted by Ctrl-C, which stops
        it.

        With a function each trial is a call of it, as with `on` of `Search.run`, which has the same options; what the
        config says holds where they are not given. The result is a `SearchResult`, and the manager keeps running until
        `stop` or the end of this program. If there is an experiment with this id, it is resumed: what it has done is
        not done again.

        Raises, with a function: NniliteError if the experiment ends in ERROR, or if a callback raises.
        """
        if not callable(function):
            if options:
                raise TypeError(f"{', '.join(options)}: only with a function, as in run(train, space=..., trials=...)")
            self.start(function if port is None else port, debug)
            return self._wait() if wait_completion else None
        return self._run_function(function, wait_completion, debug, port=port, **options)

    def _run_function(
        self,
        function: Callable[..., Any],
        wait_completion: bool,
        debug: bool,
        *,
        port: int | None = None,
        callbacks: Sequence[Callable[[Experiment, Trial], object]] = (),
        progress: bool | None = None,
        **options: Any,
    ) -> SearchResult:
        from nnilite._functions import experiment_function, function_run
        from nnilite._search.progress import SearchProgress

        if self._client is not None:
            raise Conflict(f"Experiment {self.id} has been started already.")
        began = time.time()
        with self._starting():
            planned = experiment_function.planned(self.config, self.id, function, **options)
            self._attach(planned.begin(self._options(port, debug)), keep=False)
        if self._client is None:
            return self.result()
        shown = SearchProgress(self, planned.config.max_trial_number, progress)
        ended = partial(self._ended, shown, callbacks)
        try:
            function_run.change_limits(self._manager, planned)
            if wait_completion:
                run = function_run.FunctionRun(self._known(), self._manager, ended, began)
                experiment_function.follow(run, options.get("timeout_s"), shown)
                if self._client is not None:
                    self._entry, self._client = run.entry, run.client
                    self._hand_over(run.client.profile())
        except BaseException:
            self.stop()
            raise
        return self.result()

    def _ended(
        self, shown: SearchProgress, callbacks: Sequence[Callable[[Experiment, Trial], object]], trial: Trial
    ) -> None:
        shown.show_end(trial)
        call_back(callbacks, self, trial)

    def result(self) -> SearchResult:
        """Return what is known so far, as `Search.result` does: trials, the best one, the front, tables and plots."""
        from nnilite._functions import function_run

        return function_run.result_of(self._reader)

    @property
    def best(self) -> Trial | None:
        """The succeeded trial with the best value so far; None if there is none."""
        return self.result().best

    def run_or_resume(self, port: int | None = None, wait_completion: bool = True, debug: bool = False) -> bool | None:
        """Call `resume` if this experiment exists already, otherwise `run`."""
        if self.has_checkpoint():
            return self._resume(port, wait_completion, debug)
        return self.run(port, wait_completion, debug)

    @_static_too
    def resume(
        self: Experiment | str,
        port: int | None = None,
        wait_completion: bool = True,
        debug: bool = False,
        *,
        experiment_id: str | None = None,
    ) -> Any:
        """Resume a stopped experiment; returns as `run` does.

        `Experiment.resume("<id>")`, as in NNI 2, does it without an object, and returns one.
        """
        experiment, is_static = _find_named(self, experiment_id)
        ended = experiment._resume(port, wait_completion, debug)
        return experiment if is_static else ended

    @_static_too
    def view(
        self: Experiment | str,
        port: int | None = None,
        non_blocking: bool = False,
        *,
        experiment_id: str | None = None,
    ) -> Experiment:
        """Open a stopped experiment read-only; blocks until Ctrl-C unless `non_blocking`.

        `Experiment.view("<id>")`, as in NNI 2, does it without an object, and returns one.
        """
        viewed, _ = _find_named(self, experiment_id)
        with viewed._starting():
            viewed._attach(launch.view(viewed._known(), options=viewed._options(port, False)), keep=True)
        if not non_blocking:
            viewed._report_progress(
                f"It is open until Ctrl-C or `nnictl stop {viewed.id}`; with non_blocking=True the program continues."
            )
            viewed._wait_until_interrupted()
        return viewed

    @classmethod
    def connect(cls, port: int = 8080, *, url: str | None = None, token: str | None = None) -> Experiment:
        """Attach to an experiment that runs already: on this machine by its port, elsewhere by `url` and `token`."""
        experiment = cls()
        entry = next((one for one in registry.list_all() if one.alive and one.port == port), None)
        if url is None and entry is not None:
            experiment._attach(entry, keep=True)
            return experiment
        client = Client(url or f"http://127.0.0.1:{port}", token)
        experiment.id, experiment._is_known = client.profile()["id"], True
        experiment.port = port
        experiment._client = client
        return experiment

    @property
    def url(self) -> str | None:
        """The address of the web page and of the REST interface; None while there is no manager."""
        client = self._client
        return None if client is None else client.url

    def stop(self) -> None:
        """Stop the experiment and wait until its manager has ended. Harmless if it has already.

        Signal handlers and other threads may call it while `run` or `start` does its work, which then returns. What
        the experiment has found can still be read afterwards.
        """
        self._stops += 1
        if self._client is not None:
            self._ending, self._client = self._client, None
        client = self._ending
        atexit.unregister(self.stop)
        if client is None:
            return
        client.close()
        if self._entry is None:
            client.stop()
        else:
            managers.stop(self._entry)
            left = managers.left_behind(self._entry)
            if left:
                log.warning("%s.", left)
        self._ending = None  # not before: a signal may end the wait, and the next call waits again
        if self._log_view is not None:
            self._log_view.end()
            self._log_view = None
        self.port = None

    @contextmanager
    def _starting(self) -> Iterator[None]:
        """Attach to a manager that starts in the block. If the experiment is asked to stop meanwhile, stop it then."""
        stops, before = self._stops, self._client
        try:
            with managers.starting(self.id):
                yield
        except NniliteError:
            raise
        except BaseException:  # raised by a signal handler
            if before is None:
                self._client = None
                atexit.unregister(self.stop)
            raise
        if self._stops != stops:
            self.stop()

    def _options(self, port: int | None, debug: bool) -> ManagerOptions:
        if port is not None and (isinstance(port, bool) or not str(port).isdecimal()):
            raise ConfigError(f"{port!r} is not a port: ports go from 0 to 65535")
        return ManagerOptions(port=port, url_prefix=(self.url_prefix or "").strip("/"), debug=debug)

    def _attach(self, entry: RegistryEntry, *, keep: bool) -> None:
        self._close_folder()
        self._client = managers.connect(entry)
        self._entry, self.id, self.port, self._is_known = entry, entry.id, entry.port, True
        self._has_shown_error = False
        if not keep:
            _ENDING.add(self)
            atexit.register(self.stop)
        self._report_progress(
            f"Experiment {entry.id} is at {managers.find_page_address(entry)}, kept in {entry.directory}"
        )

    def _report_progress(self, sentence: str) -> None:
        """Report the progress to people: by the log or, where that shows no such lines, on the terminal."""
        log.info("%s", sentence)
        if not (self.quiet or log.isEnabledFor(logging.INFO)):
            live_output.write_line(sentence)

    def _known(self) -> RegistryEntry:
        if not self._is_known:
            raise NotFound("Which experiment? Give its id: Experiment(id=...).")
        return registry.find(self.id, read_only=True)  # callers that cannot work with one of NNI say so

    def _resume(self, port: int | None, wait_completion: bool, debug: bool) -> bool | None:
        with self._starting():
            entry = launch.resume(self._known(), options=self._options(port, debug), detach=False)
            self._attach(entry, keep=False)
        return self._wait() if wait_completion else None

    def _wait(self) -> bool | None:
        live = None if self.quiet or not live_output.is_here() else live_output.LiveOutput(self._repr_html_)
        try:
            shown = 0
            while (profile := self._look())["state"] not in _ENDED:
                if live is not None:
                    live.show()
                else:
                    shown = self._tell_progress(profile, shown)
                time.sleep(POLL_S)
            if live is not None:
                live.show(last=True)
            else:
                self._tell_progress(profile, -1)
            self._tell_failures(profile)
            self._hand_over(profile)
        except KeyboardInterrupt:
            log.warning("Interrupted; stopping experiment %s.", self.id)
            self.stop()
            if live is not None:  # or the output would go on saying that trials run
                live.show(last=True)
            return None
        return bool(profile["state"] != ExperimentState.ERROR.value)

    def _hand_over(self, profile: Mapping[str, Any]) -> None:
        """Wait until trackers and webhooks have everything, as long as they accept something."""
        client = self._client
        if client is None or not final_delivery.may_owe(profile):
            return
        with suppress(Unreachable):  # it was stopped meanwhile
            owed = final_delivery.find_undelivered(final_delivery.wait_until_sent(client, self._report_progress))
            if owed:
                log.warning("%s.", final_delivery.sentence(owed, str(self.id)))

    def _tell_progress(self, profile: Mapping[str, Any], shown: int) -> int:
        """Report the progress after each further tenth of the trials. Return how many had ended then."""
        if "counts" not in profile:  # its manager is gone
            return shown
        ended = sum(int(count) for state, count in profile["counts"].items() if TrialState(state).ended)
        most = profile["limits"]["maxTrialNumber"]
        if shown >= 0 and ended < shown + max(1, (most or 100) // 10):
            return shown
        best = profile["best"]
        found = tell_best(best["value"], best["id"]) if best else ""
        failed = profile["counts"].get("FAILED", 0)
        self._report_progress(
            f"{ended}{f'/{most}' if most else ''} trials ended{f', {failed} failed' if failed else ''}{found}"
        )
        return ended

    def _tell_error(self, profile: Mapping[str, Any]) -> None:
        """Report why the experiment ended in ERROR, once: many programs ask for the state until it is DONE."""
        why = end_reasons.explain_error(profile)
        if why and not self._has_shown_error:
            log.error("%s", why)
        self._has_shown_error |= bool(why)

    def _tell_failures(self, profile: Mapping[str, Any]) -> None:
        self._tell_error(profile)
        with suppress(Unreachable):  # it was stopped meanwhile
            if why := end_reasons.explain_failure(lambda: self._reader, profile):
                log.warning("%s", why)

    def _look(self) -> Mapping[str, Any]:
        """Return the profile; only its state when the experiment was stopped meanwhile and the manager is gone."""
        stopped = {"state": ExperimentState.STOPPED.value}
        client = self._client
        if client is None:
            return stopped
        try:
            return client.profile()
        except Unreachable as error:
            if self._client is None:
                return stopped
            if self._entry is None:
                raise
            if managers.was_stopped(self._entry):
                return stopped
            raise managers.explain_silence(self._entry, error) from error

    def _wait_until_interrupted(self) -> None:
        """Wait for Ctrl-C, or until another program has ended the manager."""
        with contextlib.suppress(KeyboardInterrupt):
            while self._entry is None or registry.is_alive(self._entry.directory):
                time.sleep(1)
        self.stop()

    # What is known of it

    def get_status(self) -> str:
        """Return INITIALIZED, RUNNING, NO_MORE_TRIAL, TUNER_NO_MORE_TRIAL, DONE, ERROR, STOPPING or VIEWED.

        The first ERROR is logged with its reason.
        """
        profile = self._reader.profile()
        self._tell_error(profile)
        return str(profile["state"])

    def get_trial_job(self, trial_job_id: str) -> TrialJob:
        """Return one trial. Raises: NotFound."""
        trial = self._reader.trial(trial_job_id)
        final = list(self._reader.metrics(trial_job_id, kind="FINAL"))
        return nni_records.job(trial, self._directory(), final[-1] if final else None)

    def list_trial_jobs(self) -> list[TrialJob]:
        """Return all trials, in the order in which they were made."""
        directory = self._directory()
        finals = {one["trial"]: one for one in self._reader.metrics(kind="FINAL")}
        return [nni_records.job(one, directory, finals.get(one["id"])) for one in self._reader.trials()]

    def get_job_statistics(self) -> list[dict[str, Any]]:
        """Return how many trials are in which state: `{"trialJobStatus": ..., "trialJobNumber": ...}` each."""
        counts = self._reader.profile()["counts"]
        return [{"trialJobStatus": state, "trialJobNumber": count} for state, count in counts.items() if count]

    def get_job_metrics(self, trial_job_id: str | None = None) -> dict[str, list[TrialMetricData]]:
        """Return all reported metrics of one trial or of all, by trial id."""
        trials = self._reader.trials() if trial_job_id is None else [self._reader.trial(trial_job_id)]
        parameter_ids = {trial["id"]: trial["parameterId"] for trial in trials}
        found: dict[str, list[TrialMetricData]] = {}
        for one in self._reader.metrics(trial_job_id):
            trial = one["trial"]
            found.setdefault(trial, []).append(nni_records.metric(one, parameter_ids.get(trial)))
        return found

    def get_experiment_profile(self) -> dict[str, Any]:
        """Return NNI's profile: params (the config), id, execDuration (seconds), startTime, endTime, ..."""
        return nni_records.profile(self._reader.profile())

    def get_experiment_metadata(self, exp_id: str | None = None) -> dict[str, Any]:
        """Return what this machine knows of an experiment, running or not; this one by default. Raises: NotFound."""
        return nni_records.metadata(registry.find(exp_id, read_only=True) if exp_id else self._known())

    def get_all_experiments_metadata(self) -> list[dict[str, Any]]:
        """Return what this machine knows of all its experiments."""
        return [nni_records.metadata(entry) for entry in registry.list_all()]

    def export_data(self) -> list[TrialResult]:
        """Return parameters and final metric of all succeeded trials."""
        succeeded = self._reader.trials(states=["SUCCEEDED"])
        return [
            TrialResult(parameter=one["parameters"], value=one["value"], trialJobId=one["id"])
            for one in succeeded
            if one["value"] is not None
        ]

    def to_optuna(self) -> Study:
        """Return a study of optuna with all trials, for `optuna.visualization`, optuna's analyses or further search."""
        from nnilite._running import optuna_export

        return optuna_export.study_of(self._reader)

    # Changing it

    def update_trial_concurrency(self, value: int) -> None:
        """Change how many trials run at once; lowering it ends none."""
        self._manager.update(trialConcurrency=value)

    def update_max_trial_number(self, value: int) -> None:
        """Change after how many trials the experiment is DONE; raising the number continues a DONE experiment."""
        self._manager.update(maxTrialNumber=value)

    def update_max_experiment_duration(self, value: str | int) -> None:
        """Change after how long the experiment is DONE: seconds, or "10m", "2h", ..."""
        self._manager.update(maxExperimentDuration=value)

    def update_max_trial_duration(self, value: str | int) -> None:
        """Change after how long a trial is stopped: seconds, or "10m", "2h", ..."""
        self._manager.update(maxTrialDuration=value)

    def update_max_slots(self, value: int | None) -> None:
        """Change how many trials run at once in all experiments that share slots; None: as configured.

        Raises: ConfigError.
        """
        self._manager.update(maxSlots=value)

    def update_priority(self, value: int | None) -> None:
        """Change the priority where experiments share slots: higher ones go first; None: as configured.

        Raises: ConfigError.
        """
        self._manager.update(priority=value)

    def update_search_space(self, value: Mapping[str, Any]) -> None:
        """Change the search space of trials to come. Raises: ConfigError."""
        self._manager.update(searchSpace=value)

    def kill_trial_job(self, trial_job_id: str) -> None:
        """Ask for the end of a waiting or running trial."""
        self._manager.cancel(trial_job_id)

    def scale_trial_job(self, trial_job_id: str, workers: int) -> None:
        """Change the number of workers of an elastic trial while it runs.

        Raises: Conflict if the trial is not elastic.
        """
        self._manager.scale(trial_job_id, workers)

    def add_trial_job(self, parameters: Json) -> str:
        """Put a trial with your own parameters into the queue. Return its id. The log says if they are odd."""
        trial = self._manager.add_trial(parameters)
        if trial["warning"]:
            log.warning("trial %s: %s", trial["id"], trial["warning"])
        return str(trial["id"])

    def enqueue(self, parameters: Json) -> str:
        """Do the same as `add_trial_job`, under the name that `Search` has."""
        return self.add_trial_job(parameters)

    def add_trial(self, parameters: Json, value: Json) -> int:
        """Give the tuner one result from elsewhere. Return 1, or 0 if it knew it. `import_data` takes several."""
        return self.import_data([{"parameter": parameters, "value": value}])

    def remark_trial(
        self, trial_job_id: str, *, tags: Sequence[str] | None = None, note: str | None = None
    ) -> dict[str, Any]:
        """Set tags, the note, or both, of a trial, which the page and `nnictl` show, too. Return all remarks of it.

        Raises: Conflict if they were changed elsewhere at the same moment.
        """
        known = self._manager.remarks(trial_job_id)
        return self._manager.remark(
            trial_job_id,
            tags=known["tags"] if tags is None else tags,
            note=known["note"] if note is None else note,
            revision=known["revision"],
        )

    def rerun_trial_jobs(self, trial_job_ids: Sequence[str] = (), *, status: str | None = None) -> list[str]:
        """Run ended trials again: those named, or all with a status. Return their ids."""
        return [trial["id"] for trial in self._manager.rerun(ids=trial_job_ids, state=status)]

    def import_data(self, data: Sequence[Mapping[str, Any]]) -> int:
        """Hand the tuner results from elsewhere, `{"parameter": ..., "value": ...}` each. Return how many were new."""
        count, _, warning = self._manager.import_data(data)
        if warning:
            log.warning("imported results: %s", warning)
        return count

    # Checkpoints

    def has_checkpoint(self) -> bool:
        """Return whether this machine knows an experiment of this id, which could be resumed."""
        return any(entry.id == self.id for entry in registry.list_all())

    def load_checkpoint(self) -> None:
        """Replace the config by that of the experiment with this id."""
        directory = self._known().directory
        self.config = read_stored(directory)

    def save_checkpoint(self) -> None:
        """Do nothing; kept for NNI's programs: everything is stored when it happens."""

    @property
    def _manager(self) -> Client:
        client = self._client
        if client is None:
            raise NotRunning("Experiment is not running")
        return client

    @property
    def _reader(self) -> Client:
        """The manager or, once it has stopped, a reader of the experiment's folder."""
        client = self._client
        if client is not None:
            return client
        if self._entry is None:
            return self._manager
        folders = self._folders
        if not folders:
            from nnilite._running import offline

            end = ExitStack()
            # Several threads may do so at once, and each may already use the first reader, so all of them stay open.
            folders.append((end.enter_context(offline.opened(self._entry)), end))
        return folders[0][0]

    def _close_folder(self) -> None:
        folders, self._folders = self._folders, []
        for _, end in folders:
            end.close()

    def _directory(self) -> str:
        return str(self._entry.directory if self._entry else Path(self._manager.profile()["directory"]))


_ENDING: weakref.WeakSet[Experiment] = weakref.WeakSet()
"""Experiments that end with this process."""


def _leave_to_parent() -> None:
    """Have the experiments run on when this process, which another one has forked, ends."""
    for experiment in _ENDING:
        atexit.unregister(experiment.stop)


os.register_at_fork(after_in_child=_leave_to_parent)
