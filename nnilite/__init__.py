"""What trial code imports.

    import nnilite
    parameters = nnilite.get_next_parameter()
    for epoch in range(10):
        nnilite.report_intermediate_result(accuracy)
    nnilite.report_final_result({"default": accuracy, "loss": loss})

Every report is one line, appended by one write to the file that is named in `$NNILITE_METRICS`. The keeper delivers it
from there, so a report survives the death of the manager. Threads and processes may report at once, and any language,
by such a line:

    echo "intermediate 0.5" >> "$NNILITE_METRICS"; echo "final 0.93" >> "$NNILITE_METRICS"

Without a manager (standalone) there are no parameters, and reports are only logged: the same code runs by itself.

This module is stdlib only and runs on Python 3.8 and later. `Experiment`, `Search` and the bases of tuners
and assessors come from the whole package, and are imported when they are first used.

The packages around this module. What a plugin may import has a plain name; what begins with an underscore is the core's
own. docs/explanation/architecture.md describes how the parts work together.

records        the nouns: experiments, trials, attempts, metrics, events
errors         every error that nnilite raises on purpose
units          quantities as people write them ("90m", "4 GB"), and the types for them in configs
service        the base class of training services, and what a plugin and the core know of each other
services       the toolbox of those who write training services
tuner          the base class of tuners
assessor       the base class of assessors
space          the search space, and the forms that parameters take
tuning         the toolbox of those who write tuners
codedir        the code directory: which files are sent to workers, and the package that is sent
platform_http  calls to the REST interface of a platform
ssh            connections to machines by SSH, as `ssh` makes them
conversion     makes configurations from other programs' files
foreign_files  the one way in for files that come from workers, trials and archives
disk_room      a part of each disk that nnilite never fills
yaml_files     reads YAML from any source, within limits
config         the experiment's config
experiment     experiments that are launched and steered from Python
plot           what optuna draws, of experiments and searches
search         a search inside your own program, without a server
integrations   callbacks for trainers, and a search for scikit-learn
testing        the tools that test plugins and the manager
_answers       the questions that the manager answers
_checkpoints   checkpoints of ended trials, and the shared storage
_cli           nnictl
_functions     Python functions as trials, on any training service
_engine        the engine, which owns all trials of an experiment
_keeper        the program that runs one attempt of a trial on a worker
_doctor        finds out why experiments do not work here
_experiments   the experiments' files on this machine
_hub           serves one page for all experiments of a user
_manager       the manager's program, which puts engine, store and REST interface together
_nni           experiments and programs of Microsoft NNI
_nni_shim      what `import nni` finds
_nni_modules   what it finds besides where the whole package is
_rest          the REST interface
_running       managers that run on this machine, seen from outside
_search        what `search` is made of
_store         the experiment's database
_logging       keeps secrets, and repeated lines of strangers, out of logs
_network       what all listeners on the network need
_notebook      what a notebook shows
_plugins       from a plugin's name to its class
_side_processes  the processes of trackers and webhooks
_sdk           what trial code uses besides parameters and metrics
_views         shows an experiment from its folder, without an engine
_trackers      copies an experiment into MLflow, TensorBoard and Weights & Biases
_webhooks      reports new best results, failures and the end to web addresses
_tuner_host    runs tuner and assessor in a process of their own
_states        the words for states and kinds, without the records that have them
_unprintable   characters that terminals, logs and notebooks show in an escaped form
_loop_waits    waits on the event loop: for blocking calls, and with a limit
_cpython       what the SDK and the keeper use of CPython's own modules
_version       the version of this package
"""

from __future__ import annotations

import os
from _thread import RLock as _RLock

TYPE_CHECKING = False  # what typing.TYPE_CHECKING is, without the cost of importing typing
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path
    from types import TracebackType
    from typing import Any

    from nnilite import errors as errors
    from nnilite import integrations as integrations
    from nnilite import plot as plot
    from nnilite import space as space
    from nnilite._version import __version__ as __version__
    from nnilite.assessor import Assessor as Assessor
    from nnilite.assessor import AssessResult as AssessResult
    from nnilite.errors import NoMoreTrialError as NoMoreTrialError
    from nnilite.experiment import Experiment as Experiment
    from nnilite.search import Search as Search
    from nnilite.tuner import Tuner as Tuner

__all__ = [
    "AssessResult",
    "Assessor",
    "Experiment",
    "NoMoreTrialError",
    "Search",
    "Tuner",
    "__version__",
    "checkpoint",
    "checkpoint_dir",
    "get_current_parameter",
    "get_experiment_id",
    "get_next_parameter",
    "get_next_parameters",
    "get_sequence_id",
    "get_trial_id",
    "log_artifact",
    "report_final_result",
    "report_intermediate_result",
    "set_attribute",
    "should_stop",
]

_LATER = {
    "AssessResult": "assessor",
    "Assessor": "assessor",
    "Experiment": "experiment",
    "NoMoreTrialError": "errors",
    "Search": "search",
    "Tuner": "tuner",
    "__version__": "_version",
}
_MODULES = ("errors", "integrations", "plot", "space")
_REPORT = "; write report_final_result(value), or report_intermediate_result(value) after each epoch"
_ELSEWHERE = {
    "report": _REPORT,
    "log": _REPORT,
    "create_study": "; write Search(space)",
    "get_parameters": "; write get_next_parameter()",
    "get_params": "; write get_next_parameter()",
    "should_prune": "; write should_stop()",
    **dict.fromkeys(
        ("choice", "hp", "loguniform", "randint", "uniform"), "; write nnilite.space.uniform(0, 1), or its like"
    ),
    **dict.fromkeys(("Study", "fmin", "minimize", "tune"), "; write Search(space).run(function)"),
}
"""What to write for names of other libraries."""
_MAX_LINE_BYTES = 999_999  # NNI's line names its length in six digits
_PARAMETERS_WAIT_S = 30.0  # a shared file system may show the file late
_STANDALONE = "STANDALONE"
_DRAFT = ".nnilite-checkpoint-"  # begins the name of a checkpoint that is being written


def get_next_parameter() -> Any:
    """Return the parameters of this trial; `{}` in standalone mode.

    A second call returns the same object: one trial has one set of parameters.
    Raises: RuntimeError if the keeper's file cannot be read.
    """
    record = _trial.record()
    return record.get("parameters") if isinstance(record, dict) else record


get_next_parameters = get_next_parameter


def get_current_parameter(tag: str | None = None) -> Any:
    """Return what `get_next_parameter` returned, or the parameter `tag` of it. Before the first call, return None.

    Raises: KeyError if there is no parameter with that name.
    """
    if _trial.current is None:
        return None
    parameters = get_next_parameter()
    return parameters if tag is None else parameters[tag]


def report_intermediate_result(metric: Any) -> None:
    """Report an intermediate result, for example after each epoch.

    `metric` is a number, or a dict of JSON values in which `default` is the number that counts. NaN, infinity,
    and numbers of numpy, torch and the like are fine, and so are arrays with one element. It is recorded once this
    returns.

    Raises: TypeError if the metric is not JSON, ValueError if it is a megabyte or more, OSError if it cannot
    be written (a full disk).
    """
    _trial.report("PERIODICAL", metric)


def report_final_result(metric: Any) -> None:
    """Report the result of the trial; `metric` and errors as with `report_intermediate_result`.

    To be called once. Of several final results the first counts; the others are recorded too.
    """
    _trial.report("FINAL", metric)


def set_attribute(name: str, value: Any) -> None:
    """Set an attribute of this trial: a JSON value about it other than a metric, such as a device or a checksum.

    The last value of a name counts. Page, exports and `nnictl trial show` have it. A trial has at most 100 attributes
    with names of up to 100 characters, and 10,000 characters in total. It is recorded once this returns.

    Raises: TypeError if the value is not JSON, ValueError if it is too large, OSError if it cannot be written.
    """
    from nnilite._sdk import attribute_setting

    if _rank():
        _trial.warn("rank", f"the reports of rank {_rank()} do not count, only those of rank 0 do")
        return
    text = attribute_setting.make_text(name, value)
    if not attribute_setting.hand_over(name, value):
        _trial.set_attribute(name, text)


def log_artifact(name: str, value: Any) -> Path:
    """Keep a table, an image, a figure or a text as a file of this trial, which its page shows. Return the file.

    `value` is a `pathlib.Path` of a file, which is copied; a text; `bytes` of an image; a list of rows or a pandas
    DataFrame; a figure of plotly, matplotlib or PIL. The last value of a name counts. A file has at most 5 MB.

    Raises: TypeError if nothing can show the value, ValueError if it is too large, OSError if it cannot be written.
    """
    from nnilite._sdk import artifacts

    return artifacts.log_artifact(name, value, _trial.own_checkpoint_dir)


def should_stop() -> bool:
    """Return whether this trial was asked to end: by its assessor, a user, a limit or its platform.

    When it is True, save a checkpoint and end the program, without a final result: `sys.exit(143)`. What is left when
    the experiment's `gracePeriod` is over is killed. From the first call on SIGTERM no longer ends the program itself,
    so ask often; a handler that you have set before is called, too. False in standalone mode.

    The first call has to be in the main thread: elsewhere it warns and returns False.
    """
    try:
        return bool(_find_system_dir()) and _trial.stop.has_come()
    except ValueError:  # what Python says where it takes no handler
        _trial.warn("thread", "should_stop() can learn of the end only after a first call in the main thread")
        return False


def get_experiment_id() -> str:
    """Return the id of the experiment, or "STANDALONE"."""
    return _environment().get("NNI_EXP_ID") or _STANDALONE


def get_trial_id() -> str:
    """Return the id of this trial, or "STANDALONE"."""
    return _environment().get("NNI_TRIAL_JOB_ID") or _STANDALONE


def get_sequence_id() -> int:
    """Return the number of this trial in its experiment, from 0; 0 in standalone mode."""
    return int(_environment().get("NNI_TRIAL_SEQ_ID") or 0)


def checkpoint_dir() -> Path:
    """Return a folder for checkpoints, which exists. At the start of a trial it holds what an earlier attempt left.

    It outlives the attempt if the experiment keeps checkpoints. In standalone mode it is a new temporary folder, the
    same one for the whole process.
    """
    from pathlib import Path

    folder = Path(_environment().get("NNILITE_CHECKPOINT_DIR") or _trial.own_checkpoint_dir())
    folder.mkdir(parents=True, exist_ok=True)
    return folder


class checkpoint:
    """Write a file of `checkpoint_dir()` whole or not at all, however the trial may end meanwhile.

        with nnilite.checkpoint("model.pt") as path:
            torch.save(model.state_dict(), path)

    `path` is another name until the block ends; after an exception the old file stays as it was. Threads, processes and
    signal handlers may write the same file at once: the last one to end counts.
    """

    def __init__(self, name: str) -> None:
        self._target = checkpoint_dir() / name
        self._attempt = _environment().get("NNILITE_ATTEMPT", "")
        unique = f"{self._attempt}-{os.getpid()}-{os.urandom(4).hex()}"
        self._draft = self._target.with_name(f"{_DRAFT}{unique}-{self._target.name}.new")

    def __enter__(self) -> Path:
        self._target.parent.mkdir(parents=True, exist_ok=True)
        if self._attempt:
            # An attempt that was killed while it wrote may have left gigabytes. It has ended before this one began.
            for name in os.listdir(self._target.parent):
                if name.startswith(_DRAFT) and not name.startswith(f"{_DRAFT}{self._attempt}-"):
                    _remove(self._target.with_name(name))
        return self._draft

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            _remove(self._draft)
            return
        # After a power cut a name must not be there without its bytes, nor without the reports before it: the next
        # attempt does not repeat them.
        _sync(str(self._draft))
        _sync(_find_spool())
        try:
            self._draft.replace(self._target)
        except OSError as problem:
            if not self._target.is_dir():
                raise
            _remove(self._draft)
            hint = "a checkpoint folder is not replaced; give each one its own name, such as 'epoch-3'"
            raise OSError(problem.errno, hint, str(self._target)) from None


class _StopRequest:
    """Watches for SIGTERM, the signal to end: it sets a flag, and calls the program's own handler."""

    def __init__(self) -> None:
        self.answered = False  # whether the program knows that it should stop
        self._come = False
        self._watches = False
        self._before: Any = None

    def has_come(self) -> bool:
        """Return whether the signal has come. Raises: ValueError if the first call is not in the main thread."""
        if not self._watches and not self._come:
            from nnilite._cpython import signal

            before = signal.getsignal(signal.SIGTERM)
            signal.signal(signal.SIGTERM, self._set_flag)
            self._before, self._watches = before, True
        self.answered = self.answered or self._come
        return self._come

    def release(self) -> None:
        """Let SIGTERM end a child process again: pools of processes end their workers by it."""
        if self._watches:
            from nnilite._cpython import signal

            self._watches = False
            signal.signal(signal.SIGTERM, signal.SIG_DFL if self._before is None else self._before)

    def _set_flag(self, number: int, frame: Any) -> None:
        self._come = True
        if callable(self._before):
            self._before(number, frame)


class _ThisTrial:
    """The view that this process has of its trial."""

    def __init__(self) -> None:
        self.current: Any = None  # NNI's record, once it has been read
        self.environment: Mapping[str, str] = os.environ  # a copy from then on, as the program may clear it
        # A signal handler may report while the program does: a plain lock would then never be released.
        self._lock = _RLock()
        self._sequence = 0
        self._finals = 0
        self._attributes: dict[str, str] = {}  # as JSON texts
        self._warned: set[str] = set()
        self._temporary = ""
        self.stop = _StopRequest()

    def renew(self) -> None:
        """Replace the lock in a child process, where one that another thread held would stay locked."""
        self._lock = _RLock()
        self.stop.release()

    def record(self) -> Any:
        """Return NNI's record: `{"parameter_id": ..., "parameters": {...}, ...}`."""
        with self._lock:
            if self.current is None:
                self.current = self._read() if _find_system_dir() else self._take_standalone()
        self._tell_worker()
        return self.current

    def _tell_worker(self) -> None:
        """Say what this trial runs with if the manager has asked for it; see `worker_facts`."""
        known = os.environ.pop("NNILITE_WORKERS_KNOWN", None)
        if known is None or _rank():
            return
        import sys

        try:
            if _worker_key(os.uname().nodename, sys.executable) not in known.split(","):
                from nnilite._sdk.worker_facts import tell

                tell(self.send, self.current is not None)
        except (OSError, AttributeError, ValueError):  # another system, or a full disk: no trial fails for it
            self.warn("worker", "what this trial runs with is not recorded")

    def _read(self) -> Any:
        import time

        from nnilite._cpython import loads

        self.environment = dict(os.environ)
        path = os.path.join(_find_system_dir(), "parameter.cfg")
        deadline = time.monotonic() + _PARAMETERS_WAIT_S
        while True:
            try:
                with open(path, encoding="utf-8") as file:
                    return loads(file.read())
            except (OSError, ValueError, RecursionError) as error:
                if time.monotonic() > deadline:
                    raise RuntimeError(f"the parameters of this trial cannot be read from {path}: {error}") from error
            time.sleep(0.1)

    def _take_standalone(self) -> Any:
        self.warn(
            "standalone",
            "no nnilite manager runs this trial: get_next_parameter() gives {}, and results are only logged",
        )
        return {"parameter_id": None, "parameters": {}}

    def report(self, kind: str, metric: Any) -> None:
        metric = _unwrap_number(metric)
        try:
            text = _text(metric)
        except TypeError:
            metric = self._keep_number(metric)
            text = _text(metric)
        self._check(kind, metric)
        if _rank():
            self.warn("rank", f"the reports of rank {_rank()} do not count, only those of rank 0 do")
            return
        if kind == "PERIODICAL" and _hand_to_search(metric):
            return
        rank = 0 if self._sequence or self._finals else _find_launched_rank()
        if rank and _find_system_dir():
            self.warn("mixed", f"rank {rank} reports, too: results mix; let only rank 0 report, or use `distributed`")
        self._tell_worker()
        with self._lock:
            sequence = self._sequence if kind == "PERIODICAL" else 0
            self.send(kind, sequence, text)
            if kind == "PERIODICAL":
                self._sequence += 1
            else:
                self._finals += 1

    def _keep_number(self, metric: Any) -> Any:
        """Return a dict whose number counts although JSON has no such value as another of its entries."""
        from nnilite._sdk.metric_entries import keep_as_texts

        kept = keep_as_texts(metric, _is_json, lambda value: isinstance(_number(value), (int, float)))
        if kept is None:
            return metric
        changed = ", ".join(repr(name) for name, value in metric.items() if kept.get(name) is not value)
        if changed:
            self.warn("entries", f"a reported dict has values that JSON lacks, which are kept as text: {changed}")
        return _unwrap_number(kept)

    def set_attribute(self, name: str, text: str) -> None:
        from nnilite._sdk.attribute_setting import check_limits

        with self._lock:
            changed = {**self._attributes, name: text}
            check_limits(changed)
            self.send("ATTRIBUTE", 0, text, name)
            self._attributes = changed

    def send(self, kind: str, sequence: int, text: str, name: str = "") -> None:
        """Append a report to the spool, or log it in standalone mode; `name` is that of an attribute."""
        path = _find_spool()
        if path:
            _append(path, self._line(kind, sequence, text, name), "attribute" if name else "metric")
        else:
            _log_result(kind, sequence, text, name)

    def _line(self, kind: str, sequence: int, text: str, name: str) -> bytes:
        import time

        from nnilite._cpython import dumps

        record = {
            "parameter_id": self.current.get("parameter_id") if isinstance(self.current, dict) else None,
            "trial_job_id": get_trial_id(),
            "type": kind,
            "sequence": sequence,
            "value": text,
            "time": time.time(),
        }
        if name:
            record["name"] = name
        data = (dumps(record, _plain) + "\n").encode("ascii")
        if len(data) > _MAX_LINE_BYTES:
            raise ValueError(
                f"a metric must have less than 1,000,000 bytes as JSON, and this one has {len(data):,}; "
                "write large things to a file in $NNI_OUTPUT_DIR"
            )
        return b"ME%06d%b" % (len(data), data)

    def _check(self, kind: str, metric: Any) -> None:
        number = metric.get("default") if isinstance(metric, dict) else metric
        if isinstance(metric, dict) and "default" not in metric:
            self.warn("default", f"a reported dict has no 'default', the number that counts: {_shorten(metric)}")
        elif not isinstance(number, (int, float)):
            self.warn("number", f"a reported metric is not a number, so the tuner cannot use it: {_shorten(metric)}")
        elif kind == "FINAL" and not _is_finite(number):
            self.warn("finite", f"the final result is not a finite number, so the tuner counts it as bad: {number}")
        if kind == "FINAL" and self._finals == 1:
            self.warn("final", "a second final result was reported: the first one counts")

    def warn(self, about: str, message: str) -> None:
        """Warn about each thing once, on standard error."""
        if about in self._warned:
            return
        self._warned.add(about)
        import warnings

        try:
            warnings.warn(f"nnilite: {message}", RuntimeWarning, stacklevel=5)
        except RuntimeWarning as hint:  # where the program makes errors of warnings, this one is none
            import sys

            sys.stderr.write(f"{hint}\n")

    def own_checkpoint_dir(self) -> str:
        """Return where checkpoints go if no folder was given for them."""
        output = _environment().get("NNI_OUTPUT_DIR")
        if _find_system_dir() and output:
            return os.path.join(output, "checkpoint")
        with self._lock:
            if not self._temporary:
                import tempfile

                self._temporary = tempfile.mkdtemp(prefix="nnilite-checkpoint-")
            return self._temporary


def _find_system_dir() -> str:
    """Return the attempt's folder; "" in standalone mode."""
    environment = _environment()
    if environment.get("NNI_PLATFORM", "unittest") == "unittest":
        return ""
    return environment.get("NNI_SYS_DIR", "")


def _find_spool() -> str:
    """Return the file to which reports go; "" in standalone mode."""
    folder = _find_system_dir()
    return folder and (_environment().get("NNILITE_METRICS") or os.path.join(folder, ".nni", "metrics"))


def _environment() -> Mapping[str, str]:
    """Return the environment; if the program has cleared it since, as it was when the parameters were read."""
    return os.environ if "NNI_PLATFORM" in os.environ else _trial.environment


def _rank() -> int:
    """Return the rank of this process in a distributed trial; 0 elsewhere, where each process may report."""
    environment = _environment()
    return _read_rank(environment, ("RANK",)) if "NNILITE_WORLD_SIZE" in environment else 0  # RANK is set in any case


def _find_launched_rank() -> int:
    """Return the rank that a launcher such as torchrun, in the trial's command, gave this process; else 0."""
    environment = _environment()
    # A platform may set RANK alone, for a trial as a whole.
    return _read_rank(environment, ("RANK", "LOCAL_RANK") if "LOCAL_RANK" in environment else ())


def _read_rank(environment: Mapping[str, str], names: tuple[str, ...]) -> int:
    for name in ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "HOROVOD_RANK", *names):
        number = environment.get(name, "")
        if number.isdigit():
            return int(number)
    return 0


def _worker_key(host: str, executable: str) -> str:
    """Return a short key for a host and its Python. It takes no import, as a digest would."""
    return "{:x}".format(int.from_bytes(f"{host}\n{executable}".encode("utf-8", "replace"), "big") % 4294967291)


def _sync(path: str) -> None:
    """Wait until a file, if there is one, is on the disk."""
    if os.path.exists(path):
        file = os.open(path, os.O_RDONLY)
        try:
            os.fsync(file)
        finally:
            os.close(file)


def _append(path: str, line: bytes, what: str) -> None:
    """Append the line of a metric, say, with one write, so that the lines of several processes do not mix."""
    try:
        file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            written = os.write(file, line)
        finally:
            os.close(file)
    except OSError as error:
        raise OSError(error.errno, f"the {what} is not recorded: {error.strerror}", path) from error
    if written != len(line):  # readers leave out the cut line and find the next one
        import errno

        raise OSError(errno.ENOSPC, f"the {what} is not recorded: the disk is full", path)


def _text(metric: Any) -> str:
    from nnilite._cpython import dumps

    try:
        return dumps(metric, _plain)
    except (TypeError, ValueError, RuntimeError) as error:  # torch's error, or a value nested too deep
        # The sentence says it all: a traceback of the encoder would stand between the user and the line that reported.
        raise TypeError(
            f"a metric must be a number, or a dict of JSON values with a number as 'default'; "
            f"this {type(metric).__name__} is not: {error}"
        ) from None


def _is_json(value: Any) -> bool:
    try:
        _text(value)
    except TypeError as error:
        if isinstance(error.__context__, TypeError):
            return False
        raise  # it holds itself, or is too deep
    return True


def _unwrap_number(metric: Any) -> Any:
    """Return the metric, its number as a plain one where it is an array, a list or a text of one number."""
    if isinstance(metric, dict):
        return {**metric, "default": _number(metric["default"])} if "default" in metric else metric
    return _number(metric)


def _number(value: Any) -> Any:
    if isinstance(value, (list, tuple)) and len(value) == 1:
        number = _number(value[0])
        return number if isinstance(number, (int, float)) else value
    try:
        if isinstance(value, str):
            return float(value) if _is_finite(float(value)) else value
        # Of an array with several elements, the list is what is recorded.
        return value if isinstance(value, _JSON) else _number(_plain(value))
    except (TypeError, ValueError, RuntimeError):  # torch's for a tensor without data, and RecursionError
        return value


_JSON = (int, float, dict, list, tuple, type(None))


def _is_finite(number: float) -> bool:
    return number - number == 0


def _plain(value: Any) -> Any:
    """Return a number or an array of numpy, torch, ... as plain Python; an array with one element is that element.

    It is recognized by its methods, without an import. What numpy has masked is null.
    """
    if isinstance(value, complex) and not value.imag:
        return value.real
    if hasattr(value, "filled") and hasattr(value, "mask") and value.mask.any():
        return value.tolist()
    if hasattr(value, "ndim") and callable(getattr(value, "item", None)):
        try:
            item = value.item()
        except (ValueError, RuntimeError):  # it has several elements, or none
            item = value
        if item is not value:
            return float(item) if type(item) is type(value) else item
    # A DataFrame has the second alone (times of pandas, too), TensorFlow's tensors the third, Arrow's scalars the last.
    for name in ("tolist", "to_numpy", "numpy", "as_py"):
        if callable(getattr(value, name, None)) and (name != "to_numpy" or hasattr(value, "shape")):
            return getattr(value, name)()
    if hasattr(value, "__float__"):
        return float(value)
    raise TypeError(f"{type(value).__name__} is not a JSON value")


def _shorten(value: Any) -> str:
    from nnilite._sdk.safe_text import safe_repr

    return safe_repr(value)


def _hand_to_search(metric: Any) -> bool:
    """Hand an intermediate result to the `Search` whose function this thread runs, unless the program is a trial."""
    import sys

    setting = sys.modules.get("nnilite._sdk.attribute_setting")  # which a Search has imported
    return setting is not None and not _find_system_dir() and bool(setting.hand_over_report(metric))


def _log_result(kind: str, sequence: int, text: str, name: str) -> None:
    """Log a result in standalone mode: to the program's own log, or to standard output if it has none."""
    import logging
    import sys

    log = logging.getLogger("nnilite")
    if not log.hasHandlers():
        handler = logging.StreamHandler(sys.stdout)
        handler.setFormatter(logging.Formatter("[%(asctime)s] %(message)s"))
        log.addHandler(handler)
        log.setLevel(logging.INFO)
    if kind == "FINAL":
        log.info("Final result: %s", text)
    elif kind == "ATTRIBUTE":
        log.info("Attribute %s: %s", name, text)
    else:
        log.info("Intermediate result: %s  (Index %d)", text, sequence)


def _remove(path: Path) -> None:
    """Remove a draft, a file or a folder, as far as that is possible: what stays is not in the way."""
    import shutil
    from contextlib import suppress

    with suppress(OSError):
        path.unlink()
    shutil.rmtree(path, ignore_errors=True)


if not TYPE_CHECKING:  # to type checkers, a module with this function has every name

    def __getattr__(name: str) -> Any:
        module = name if name in _MODULES else _LATER.get(name)
        if module is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}" + _ELSEWHERE.get(name, ""))
        import importlib

        try:
            value = importlib.import_module(f"{__name__}.{module}")
        except ImportError as error:
            raise ImportError(
                f"nnilite.{name} needs the whole package in this Python, which has only what trials need "
                f"({error}): pip install nnilite"
            ) from error
        if module != name:
            value = getattr(value, name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES, *__all__})


class _Folders(list):  # type: ignore[type-arg]
    """`__path__` of the SDK alone: an installed nnilite that comes later on the path provides the other modules."""

    def __iter__(self) -> Iterator[str]:
        import sys

        for entry in sys.path:
            folder = os.path.join(entry, "nnilite")
            if folder not in self[:] and os.path.exists(os.path.join(folder, "service.py")):
                self.append(folder)
        return super().__iter__()


if not os.path.exists(os.path.join(__path__[0], "service.py")):
    __path__ = _Folders(__path__)
else:
    # Modules that have moved are found there by their old names, and only there.
    __path__.append(os.path.join(__path__[0], "_old_names"))

_trial = _ThisTrial()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_trial.renew)
