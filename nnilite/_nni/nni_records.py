"""The records of NNI's Python API, made from what the REST interface says. Times are milliseconds since the epoch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from nnilite._experiments.registry import RegistryEntry
from nnilite.config import nni_form
from nnilite.records import Json


@dataclass
class TrialResult:
    """Parameters of a succeeded trial, and the final metric that it reported."""

    parameter: Json
    value: Json
    trialJobId: str


@dataclass
class TrialMetricData:
    """One reported metric: `type` is PERIODICAL or FINAL, `data` the value as reported."""

    timestamp: int
    trialJobId: str
    parameterId: str
    type: str
    sequence: int
    data: Json


@dataclass
class TrialHyperParameters:
    """The parameters of a trial, with the tuner's number of them."""

    parameter_id: int | None
    parameter_source: str
    parameters: Json
    parameter_index: int = 0
    placement_constraint: Json = None
    version_info: Json = None


@dataclass
class TrialJob:
    """One trial. `status` is WAITING, RUNNING, SUCCEEDED, FAILED, ...; `endTime` is -1 until it has ended."""

    trialJobId: str
    status: str
    hyperParameters: list[TrialHyperParameters]
    logPath: str = ""
    startTime: int | None = None
    endTime: int = -1
    finalMetricData: list[TrialMetricData] = field(default_factory=list)
    stderrPath: str = ""
    sequenceId: int = 0
    message: str = "--"


def milliseconds(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1000)


def metric(data: Mapping[str, Json], parameter_id: int | None) -> TrialMetricData:
    """Make a metric of `data`, a metric of the REST interface. `parameter_id`: that of its trial."""
    return TrialMetricData(
        timestamp=milliseconds(data["time"]) or 0,
        trialJobId=data["trial"],
        parameterId="" if parameter_id is None else str(parameter_id),
        type=data["kind"],
        sequence=data["sequence"],
        data=data["value"],
    )


def job(trial: Mapping[str, Json], directory: str, final: Mapping[str, Json] | None) -> TrialJob:
    """Make a job of `trial` and its `final` metric, as the REST interface gives them. `directory`: the experiment's."""
    folder = f"{directory}/trials/{trial['id']}/{trial['attempt']}"
    ended = milliseconds(trial["ended"])
    parameters = TrialHyperParameters(trial["parameterId"], trial["source"], trial["parameters"])
    return TrialJob(
        trialJobId=trial["id"],
        status=trial["state"],
        hyperParameters=[parameters],
        logPath=folder,
        startTime=milliseconds(trial["started"]),
        endTime=-1 if ended is None else ended,
        finalMetricData=[] if final is None else [metric(final, trial["parameterId"])],
        stderrPath=f"{folder}/trial.stderr",
        sequenceId=trial["sequence"],
        message=trial["reason"] or "--",
    )


def profile(data: Mapping[str, Json]) -> dict[str, Json]:
    """Return NNI's experiment profile."""
    return {
        "params": nni_form(data["config"]),
        "id": data["id"],
        "execDuration": round(data["duration"]),
        "logDir": data["directory"],
        "startTime": milliseconds(data["started"]),
        "endTime": milliseconds(data["ended"]),
        "nextSequenceId": data["nextSequence"],
        "revision": data["revision"],
    }


def metadata(entry: RegistryEntry) -> dict[str, Json]:
    """Return NNI's manifest entry of an experiment."""
    return {
        "id": entry.id,
        "port": entry.port,
        "startTime": milliseconds(entry.started),
        "endTime": milliseconds(entry.ended) if entry.ended is not None else "N/A",
        "status": entry.state,
        "platform": entry.platform,
        "experimentName": entry.name,
        "tag": [],
        "pid": entry.pid,
        "webuiUrl": [entry.url] if entry.url else [],
        "logDir": str((entry.origin or entry).directory.parent),
        "prefixUrl": None,
    }
