"""The table of all routes below /api/v1. The server, its checks of queries and the OpenAPI document follow from it."""

from __future__ import annotations

from nnilite._rest import schemas as s
from nnilite._rest.auth import Access
from nnilite._rest.bulk_routes import INSIGHT_ROUTES
from nnilite._rest.callbacks import CallbackHandler, CodeHandler, KeeperHandler, ProofHandler
from nnilite._rest.changeable_fields import CHANGES
from nnilite._rest.experiment_handlers import (
    ExperimentHandler,
    ExperimentsHandler,
    ImportHandler,
    LogHandler,
    ProvenanceHandler,
    ResumeHandler,
    StopHandler,
    VersionHandler,
)
from nnilite._rest.export import ExportHandler
from nnilite._rest.nni_routes import NNI_ROUTES
from nnilite._rest.openapi import OpenApiHandler
from nnilite._rest.page_preference_handlers import PAGE_PREFERENCE_ROUTES
from nnilite._rest.prometheus import PrometheusHandler
from nnilite._rest.remark_handlers import BODY_MAX, RemarksHandler, TrialRemarksHandler
from nnilite._rest.route_definition import SERVER_BODY_MAX, Operation, Param, Response, Route, Schema
from nnilite._rest.session_handlers import SESSION_ROUTES
from nnilite._rest.stream import StreamHandler
from nnilite._rest.trials import (
    FileHandler,
    FilesHandler,
    InterruptHandler,
    MetricsHandler,
    OutputHandler,
    RerunHandler,
    TrialHandler,
    TrialsHandler,
    UsageHandler,
    WorkersHandler,
)

OFFSET_MAX = 2**53 - 1
PIECE_MAX = 4 * 1024 * 1024


def integer(low: int, high: int, default: int | None = None) -> Schema:
    schema: dict[str, object] = {"type": "integer", "minimum": low, "maximum": high}
    return schema if default is None else {**schema, "default": default}


def flag(default: bool) -> Schema:
    return {"type": "boolean", "default": default}


# Parameters

TRIAL = Param("id", {"type": "string", "pattern": "^[A-Za-z0-9_-]{1,64}$"}, "id of the trial")
JOB = Param(
    "job",
    {"type": "string", "pattern": "^[A-Za-z0-9._-]{1,200}$"},
    "name of the job, nni-<experiment>-<trial>-<attempt>",
)
NONCE = Param("nonce", {"type": "string", "pattern": "^[0-9a-f]{32,64}$"}, "the keeper's random digits", required=True)
DIGEST = Param("digest", {"type": "string", "pattern": "^[0-9a-f]{64}$"}, "content hash of the code package")
ELSEWHERE = Param("fetch", flag(True), "whether the files on the machine of the latest attempt are listed, too")
FETCH = Param("fetch", flag(True), "whether a file that is on another machine is copied to the manager's first")
STREAM = Param("stream", s.choice(["stdout", "stderr"]), "which output")
LOG = Param("name", s.choice(["manager", "tuner"]), "whose log")
PATH = Param("path", {"type": "string", "pattern": "^.+$"}, "path below the trial's folder; slashes need no escape")
ATTEMPT = Param("attempt", integer(0, 10**6), "number of the attempt; without it the latest, or for metrics all")
OFFSET = Param("offset", integer(0, OFFSET_MAX, 0), "how many to skip")
TEXT_OFFSET = Param("offset", integer(-OFFSET_MAX, OFFSET_MAX, 0), "first byte; a negative one counts from the end")
TEXT_LIMIT = Param("limit", integer(1, PIECE_MAX, 1024 * 1024), "how many bytes at most")
TRIAL_QUERY = (
    Param("state", s.array(s.choice(s.TRIAL_STATES), default=[]), "only trials in one of these states"),
    Param("sort", s.choice(s.SORTS, default="sequence"), "what to sort by"),
    Param("descending", flag(False), "whether the largest come first"),
    OFFSET,
    Param("limit", integer(1, 1000, 100), "how many at most"),
    Param("id_prefix", {"type": "string", "pattern": "^[A-Za-z0-9_-]{0,64}$"}, "only trials whose id begins with this"),
    Param("after_revision", integer(0, OFFSET_MAX, 0), "only trials changed after this revision"),
    Param("tag", s.array(s.TEXT, default=[]), "only trials with this tag, or with all of several"),
)
REMARKS_AFTER = Param("after", integer(0, OFFSET_MAX, 0), "only tags and notes of a later revision")
METRIC_QUERY = (
    Param("kind", s.choice(s.METRIC_KINDS), "only metrics of this kind"),
    ATTEMPT,
    Param("after", integer(0, OFFSET_MAX, 0), "the `next` of the page before"),
    Param("limit", integer(1, 10_000, 1000), "how many at most"),
)
FORMAT = Param("format", s.choice(["json", "csv"], default="json"), "format of the file")
METRICS = Param("metrics", flag(True), "whether to include metrics")

_TEXT = "text/plain"
_PIECE = Response("the bytes; X-Offset, X-Next-Offset and X-Total-Size say which", s.TEXT, _TEXT)


def get(text: str, schema: Schema, *query: Param, refusals: tuple[int, ...] = ()) -> Operation:
    return Operation(text, Response("OK", schema), query, refusals=refusals)


EXPERIMENT_ROUTES = (
    Route(
        "/prometheus",
        PrometheusHandler,
        {"GET": Operation("The figures of the experiment in Prometheus' text format", Response("OK", s.TEXT, _TEXT))},
    ),
    Route(
        "/version",
        VersionHandler,
        {
            "GET": get(
                "The version of nnilite, and the id of the experiment", s.record(version=s.TEXT, experiment=s.TEXT)
            )
        },
    ),
    Route(
        "/experiment",
        ExperimentHandler,
        {
            "GET": get("The experiment", s.ref("Experiment")),
            "PATCH": Operation(
                "Change limits or the search space of the running experiment",
                Response("the experiment as it is now", s.ref("Experiment")),
                body=CHANGES,
                writes=True,
            ),
        },
    ),
    Route(
        "/experiment/stop",
        StopHandler,
        {
            "POST": Operation(
                "Stop the experiment",
                Response("the experiment begins to stop", s.record(stopping=s.FLAG), status=202),
                body=s.EMPTY,
            )
        },
    ),
    Route(
        "/experiment/resume",
        ResumeHandler,
        {
            "POST": Operation(
                "Resume an experiment that is only viewed; the server is soon back at the same address",
                Response("the resume begins", s.record(resuming=s.FLAG), status=202),
                body=s.EMPTY,
                refusals=(409,),
            )
        },
    ),
    Route(
        "/provenance",
        ProvenanceHandler,
        {
            "GET": get(
                "What ran: code, git state, packages, commands, seeds and machine at a start, and packages of workers",
                s.record(
                    times=s.array(s.MAYBE_TIME), start={"type": ["object", "null"]}, workers=s.array({"type": "object"})
                ),
                Param("start", integer(-1000, 1000, -1), "number of the start, from 0; -1 is the latest"),
                Param("comparable", flag(False), "whether to list changed files in place of the diff"),
            )
        },
    ),
    Route(
        "/experiments",
        ExperimentsHandler,
        {"GET": get("The experiments of this machine", s.record(experiments=s.array(s.ref("Listed"))))},
    ),
    Route(
        "/import",
        ImportHandler,
        {
            "POST": Operation(
                "Give the tuner results from elsewhere",
                Response(
                    "how many were new, and how many were known already",
                    s.record(imported=s.COUNT, known=s.COUNT, warning=s.TEXT),
                ),
                body=s.IMPORT,
                writes=True,
            )
        },
        body_max=SERVER_BODY_MAX,
    ),
    Route(
        "/export",
        ExportHandler,
        {
            "GET": Operation(
                "All ended trials as a file, JSON or CSV",
                Response("the file", s.array(s.ref("ExportedTrial")), also="text/csv"),
                (FORMAT,),
            )
        },
    ),
    Route("/logs/{name}", LogHandler, {"GET": Operation("A part of a log", _PIECE, (TEXT_OFFSET, TEXT_LIMIT))}, (LOG,)),
    Route("/openapi.json", OpenApiHandler, {"GET": get("This document", s.OBJECT)}),
    Route(
        "/stream",
        StreamHandler,
        {
            "GET": Operation(
                "Live changes, by WebSocket",
                Response("the connection becomes a WebSocket", status=101),
                (METRICS,),
                refusals=(426,),
            )
        },
    ),
)

TRIAL_ROUTES = (
    Route(
        "/trials",
        TrialsHandler,
        {
            "GET": get("Trials, a page at a time", s.ref("TrialPage"), *TRIAL_QUERY),
            "POST": Operation(
                "Add a trial with parameters of your choice",
                Response("the new trial", s.ref("NewTrial"), status=201),
                body=s.NEW_TRIAL,
                writes=True,
            ),
        },
    ),
    Route(
        "/trials/rerun",
        RerunHandler,
        {
            "POST": Operation(
                "Run ended trials again",
                Response("the trials that run again", s.record(trials=s.array(s.ref("Trial")))),
                body=s.RERUN,
                writes=True,
                refusals=(404,),
            )
        },
    ),
    Route(
        "/trials/{id}",
        TrialHandler,
        {
            "GET": get("One trial with its attempts", s.ref("TrialDetails")),
            "DELETE": Operation("Cancel a trial", Response("the trial", s.ref("Trial")), writes=True),
        },
        (TRIAL,),
    ),
    Route("/uses", UsageHandler, {"GET": get("What running trials use", s.record(uses=s.array(s.ref("TrialUsage"))))}),
    Route(
        "/trials/{id}/workers",
        WorkersHandler,
        {
            "PUT": Operation(
                "Change the number of workers of an elastic trial while it runs",
                Response("the trial; the platform has accepted the change", s.ref("Trial")),
                body=s.WORKERS,
                writes=True,
            )
        },
        (TRIAL,),
    ),
    Route(
        "/trials/{id}/interrupt",
        InterruptHandler,
        {
            "POST": Operation(
                "End the running attempt as the loss of its machine would, so that the trial is tried again",
                Response("the trial, whose attempt begins to end", s.ref("Trial"), status=202),
                body=s.EMPTY,
                writes=True,
            )
        },
        (TRIAL,),
    ),
    Route(
        "/trials/{id}/remarks",
        TrialRemarksHandler,
        {
            "GET": get("The tags and the note of a trial", s.ref("TrialRemarks")),
            "PUT": Operation(
                "Replace the tags and the note of that revision, also of an experiment that is only viewed",
                Response("the remarks with their new revision", s.ref("TrialRemarks")),
                body=s.REMARKS,
                refusals=(409,),
            ),
        },
        (TRIAL,),
        body_max=BODY_MAX,
    ),
    Route(
        "/remarks",
        RemarksHandler,
        {
            "GET": get(
                "The tags and notes of all trials, in the order in which they changed",
                s.record(remarks=s.array(s.ref("TrialRemarks"))),
                REMARKS_AFTER,
                Param("limit", integer(1, 1000, 1000), "how many at most"),
            )
        },
    ),
    Route("/metrics", MetricsHandler, {"GET": get("Metrics of all trials", s.ref("MetricPage"), *METRIC_QUERY)}),
    Route(
        "/trials/{id}/metrics",
        MetricsHandler,
        {"GET": get("Metrics of one trial", s.ref("MetricPage"), *METRIC_QUERY)},
        (TRIAL,),
    ),
    Route(
        "/trials/{id}/output/{stream}",
        OutputHandler,
        {"GET": Operation("A part of a trial's output", _PIECE, (TEXT_OFFSET, TEXT_LIMIT, ATTEMPT))},
        (TRIAL, STREAM),
    ),
    Route(
        "/trials/{id}/files",
        FilesHandler,
        {
            "GET": get("Files of a trial, listed where they are", s.ref("FileListing"), ELSEWHERE),
            "POST": Operation(
                "Copy all files of a trial's latest attempt to the manager's machine, and list them",
                Response("OK", s.ref("FileListing")),
                body=s.EMPTY,
            ),
        },
        (TRIAL,),
    ),
    Route(
        "/trials/{id}/files/{path}",
        FileHandler,
        {
            "GET": Operation(
                "One file of a trial",
                Response("the file: text and images to show, other content to save", {}, "*/*"),
                (FETCH,),
            )
        },
        (TRIAL, PATH),
    ),
)

WORKER_ROUTES = (
    Route(
        "/callback/{job}/proof",
        ProofHandler,
        {"GET": get("Prove to the job's keeper that this is its manager", s.ref("Proof"), NONCE)},
        (JOB,),
        Access.OPEN,
    ),
    Route(
        "/callback/{job}",
        CallbackHandler,
        {
            "POST": Operation(
                "Accept a batch of events; an empty one is the heartbeat",
                Response("the events are committed; how far each stream has got", s.ref("CallbackAnswer")),
                body=s.BATCH,
                refusals=(409, 410),
            )
        },
        (JOB,),
        Access.TRIAL,
    ),
    Route(
        "/code/{digest}",
        CodeHandler,
        {"GET": Operation("A code package", Response("tar, compressed", s.TEXT, "application/gzip"))},
        (DIGEST,),
        Access.TRIAL,
    ),
    Route(
        "/keeper.pyz",
        KeeperHandler,
        {"GET": Operation("The keeper", Response("a zipapp", s.TEXT, "application/zip"), refusals=(404,))},
        (),
        Access.TRIAL,
    ),
)

ROUTES: tuple[Route, ...] = (
    *EXPERIMENT_ROUTES,
    *PAGE_PREFERENCE_ROUTES,
    *SESSION_ROUTES,
    *TRIAL_ROUTES,
    *INSIGHT_ROUTES,
    *WORKER_ROUTES,
    *NNI_ROUTES,
)
