"""The table of the NNI-compatible routes."""

from __future__ import annotations

from nnilite._rest import nni_api as n
from nnilite._rest import schemas as s
from nnilite._rest.nni_wire import UPDATES
from nnilite._rest.route_definition import SERVER_BODY_MAX, Operation, Param, Response, Route, Schema

_NOTHING = Response("OK")
_LIST: Schema = s.array(s.OBJECT)
_TRIAL = Param("id", {"type": "string", "pattern": "^[A-Za-z0-9_-]{1,64}$"}, "id of the trial")
_PATH = Param(
    "path", {"type": "string", "pattern": "^.+$"}, "stdout, stderr, trial.log or a path in the trial's folder"
)
_LOW = Param("low", {"type": "string", "pattern": "^[0-9]{1,9}$"}, "first sequence number")
_HIGH = Param("high", {"type": "string", "pattern": "^[0-9]{1,9}$"}, "last sequence number")
_STATUS = Param("status", s.choice(s.TRIAL_STATES), "only trials in this state")
_TYPE = Param("type", s.choice(s.METRIC_KINDS), "only metrics of this kind")
_UPDATE = Param("update_type", s.choice(list(UPDATES)), "what to change", "update_type", True)
_PROFILE: Schema = {
    "type": "object",
    "properties": {"params": s.OBJECT},
    "required": ["params"],
}


def _get(text: str, schema: Schema, *query: Param) -> Operation:
    return Operation(f"NNI: {text}", Response("OK", schema), query)


def _change(text: str, answer: Response, body: Schema | None = None, query: tuple[Param, ...] = ()) -> Operation:
    return Operation(f"NNI: {text}", answer, query, body, writes=True)


_EXPERIMENT = {
    "GET": _get("the profile", s.OBJECT),
    "PUT": _change("change a limit or the search space", _NOTHING, _PROFILE, (_UPDATE,)),
    "DELETE": Operation("NNI: stop the experiment", _NOTHING),
}
_TRIALS = {
    "GET": _get("all trials", _LIST, _STATUS),
    "POST": _change("add a trial", Response("its number", s.record(sequenceId=s.COUNT)), s.OBJECT),
}
_ONE_TRIAL = {"GET": _get("one trial", s.OBJECT), "DELETE": _change("cancel a trial", _NOTHING)}
_FILE = {"GET": Operation("NNI: output or a file of a trial", Response("the text or file", {}, "*/*"))}
_IMPORT = {"POST": _change("import results", _NOTHING, s.IMPORT)}
_CLUSTER = {"PUT": _change("settings of a cluster; without effect", _NOTHING, s.OBJECT)}
_TENSORBOARDS = {
    "GET": _get("the tasks of TensorBoard: none", _LIST),
    "DELETE": Operation("NNI: stop all tasks of TensorBoard: there are none", _NOTHING),
}
_TENSORBOARD = {"POST": _change("start a TensorBoard; refused", _NOTHING, s.OBJECT)}
_VERSION = {"GET": Operation("NNI: the version", Response("the version", s.TEXT, "text/plain"))}
_STATUS_NOW = {"GET": _get("the state", s.record(status=s.TEXT, errors=s.array(s.TEXT)))}

NNI_ROUTES: tuple[Route, ...] = (
    Route("/nni/version", n.NniVersionHandler, _VERSION),
    Route("/nni/check-status", n.NniStatusHandler, _STATUS_NOW),
    Route("/nni/experiment", n.NniExperimentHandler, _EXPERIMENT),
    Route("/nni/experiment-metadata", n.NniMetadataHandler, {"GET": _get("this experiment's entry", s.OBJECT)}),
    Route("/nni/experiments-info", n.NniExperimentsHandler, {"GET": _get("the machine's experiments", _LIST)}),
    Route("/nni/experiment/import-data", n.NniImportHandler, _IMPORT, body_max=SERVER_BODY_MAX),
    Route("/nni/experiment/imported-data", n.NniImportedHandler, {"GET": _get("what was imported", s.array(s.TEXT))}),
    Route("/nni/experiment/cluster-metadata", n.NniClusterHandler, _CLUSTER),
    Route("/nni/tensorboard-tasks", n.NniTensorboardsHandler, _TENSORBOARDS),
    Route("/nni/tensorboard", n.NniTensorboardHandler, _TENSORBOARD),
    Route("/nni/job-statistics", n.NniStatisticsHandler, {"GET": _get("trials by state", _LIST)}),
    Route("/nni/trial-jobs", n.NniTrialsHandler, _TRIALS),
    Route("/nni/trial-jobs/{id}", n.NniTrialHandler, _ONE_TRIAL, (_TRIAL,)),
    Route("/nni/metric-data", n.NniMetricsHandler, {"GET": _get("all metrics", _LIST, _TYPE)}),
    Route("/nni/metric-data/{id}", n.NniMetricsHandler, {"GET": _get("a trial's metrics", _LIST, _TYPE)}, (_TRIAL,)),
    Route("/nni/metric-data-latest", n.NniLatestMetricsHandler, {"GET": _get("final and last metrics", _LIST)}),
    Route(
        "/nni/metric-data-range/{low}/{high}",
        n.NniMetricRangeHandler,
        {"GET": _get("metrics of a range of trials", _LIST)},
        (_LOW, _HIGH),
    ),
    Route("/nni/export-data", n.NniExportHandler, {"GET": _get("results", _LIST)}),
    Route("/nni/trial-file/{id}/{path}", n.NniFileHandler, _FILE, (_TRIAL, _PATH)),
)
