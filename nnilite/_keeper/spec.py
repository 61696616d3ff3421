"""The keeper's specification: one JSON object, checked here once, so that all other modules can rely on it."""

from __future__ import annotations

import os
import sys

from nnilite._cpython import loads

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Optional

VERSION = 1


class SpecError(ValueError):
    """The specification cannot be used. The text is one sentence."""


class Spec:
    """The specification of one attempt. See `nnilite._keeper` for the JSON."""

    job: str
    experiment: str
    trial: str
    attempt: int
    sequence: int
    platform: str
    command: str
    directory: str  # absolute; no other attempt uses it
    parameters: Any  # NNI's record, the content of parameter.cfg
    env: Dict[str, Any]  # added to the trial's environment; None takes a variable away
    code: Dict[str, str]  # {} or one of in_place, archive, download
    token: str
    callback: Optional[str]
    callback_file: Optional[str]
    callback_ca: Optional[str]  # PEM text of the authority to trust, if the manager has a certificate of its own
    report: str  # "rest" or "stdout"
    send_output: bool
    grace_s: float
    heartbeat_s: float
    linger_s: float
    orphan_s: Optional[float]
    max_duration_s: Optional[float]
    niceness: int  # the command's, added to the keeper's own
    max_output_bytes: int  # for each stream; 0: no cap
    checkpoint_dir: Optional[str]
    storage: Dict[str, Any]  # {} or the shared storage: see `storage`
    distributed: Dict[str, Any]  # {} or the trial's nodes and this one's place among them: see `node_start`
    run: str  # the identity of the run that this one continues; "" for a new run

    def __init__(self, **fields: Any) -> None:
        self.__dict__.update(fields)

    def but(self, **fields: Any) -> Spec:
        """Return the same specification with other values of these fields."""
        return Spec(**{**self.__dict__, **fields})


def load(source: str) -> Spec:
    """Read a specification from a file, or from standard input for "-". Raises: SpecError."""
    try:
        if source == "-":
            text = sys.stdin.read()
        else:
            with open(source, encoding="utf-8") as file:
                text = file.read()
        return parse(loads(text))
    except (OSError, UnicodeDecodeError) as error:
        raise SpecError("the specification {} cannot be read: {}".format(source, error)) from error
    except SpecError:
        raise
    except (ValueError, RecursionError) as error:
        raise SpecError("the specification {} is not JSON: {}".format(source, error)) from error


def parse(data: Any) -> Spec:
    """Check the JSON object. Raises: SpecError that names the field."""
    if not isinstance(data, dict):
        raise SpecError("the specification must be a JSON object")
    if data.get("version", VERSION) != VERSION:
        raise SpecError("the specification has version {}, this keeper knows {}".format(data["version"], VERSION))
    field = _SpecReader(data)
    spec = Spec(
        job=field.text("job"),
        experiment=field.text("experiment"),
        trial=field.text("trial"),
        attempt=int(field.number("attempt", 0)),
        sequence=int(field.number("sequence", 0)),
        platform=field.text("platform", "local"),
        command=field.text("command"),
        directory=field.text("directory"),
        parameters=data.get("parameters"),
        env=field.mapping("env"),
        code=field.mapping("code"),
        token=field.text("token", ""),
        callback=field.text("callback", "") or None,
        callback_file=field.text("callback_file", "") or None,
        callback_ca=field.text("callback_ca", "") or None,
        report=field.text("report", "rest"),
        send_output=bool(data.get("send_output", False)),
        grace_s=field.number("grace_s", 10),
        heartbeat_s=field.number("heartbeat_s", 10),
        linger_s=field.number("linger_s", 86400),
        orphan_s=field.number("orphan_s", 0) or None,
        max_duration_s=field.number("max_duration_s", 0) or None,
        niceness=int(field.number("niceness", 0)),
        max_output_bytes=int(field.number("max_output_bytes", 0)),
        checkpoint_dir=field.text("checkpoint_dir", "") or None,
        storage=field.mapping("storage"),
        distributed=field.mapping("distributed"),
        run=field.text("run", ""),
    )
    _check(spec)
    return spec


def _check(spec: Spec) -> None:
    if not os.path.isabs(spec.directory):
        raise SpecError("directory must be an absolute path, not {!r}".format(spec.directory))
    if spec.report not in ("rest", "stdout"):
        raise SpecError("report must be rest or stdout, not {!r}".format(spec.report))
    if spec.code and (len(spec.code) != 1 or not set(spec.code) <= {"in_place", "archive", "download"}):
        raise SpecError("code must have one of in_place, archive and download")
    if not all(isinstance(value, str) for value in spec.code.values()):
        raise SpecError("code.{} must be a string".format(*spec.code))


class _SpecReader:
    def __init__(self, data: Dict[str, Any]) -> None:
        self._data = data

    def text(self, name: str, default: Optional[str] = None) -> str:
        value = self._data.get(name)
        if value is None:
            value = default
        if not isinstance(value, str):
            raise SpecError("{} must be a string".format(name))
        return value

    def number(self, name: str, default: float) -> float:
        value = self._data.get(name)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1e12:
            raise SpecError("{} must be a number, at least 0".format(name))
        return value

    def mapping(self, name: str) -> Dict[str, Any]:
        value = self._data.get(name) or {}
        if not isinstance(value, dict):
            raise SpecError("{} must be a JSON object".format(name))
        return value
