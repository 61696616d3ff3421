"""The nouns of nnilite, as frozen records without behaviour. Times are seconds since the epoch (float).

This is the only description of a record's JSON: see `nnilite.records.shapes`.

record_types  the records
attributes  what the code of a trial sets about it, within limits
node_counts  how many machines a distributed trial has
dotted  dotted names for the parts of nested objects
error_line  the line of an output that says why a trial failed
shapes  from a record's type hints to its JSON and its schema
strict_json  JSON that any parser accepts, NaN and infinities as strings
"""

from __future__ import annotations

from nnilite._states import CallKind, EndCause, ExperimentState, JobState, MetricKind, TrialState
from nnilite.records.attributes import set_within_limits
from nnilite.records.error_line import find_error_line
from nnilite.records.node_counts import NodeCounts, count_nodes
from nnilite.records.record_types import (
    ATTRIBUTE_NAME_MAX,
    COUNT,
    DRILLED,
    EVENT_TYPES,
    EXIT_CODE_MAX,
    GPUS_MAX,
    HOST_MAX,
    INTEGER_MAX,
    MESSAGE_MAX,
    PRIORITY_MAX,
    PROCESSORS_MAX,
    RUN_MAX,
    TIME_MAX,
    UNSTARTED,
    Attempt,
    Attribute,
    Attributed,
    Exited,
    ExperimentLimits,
    Host,
    Json,
    KeeperEvent,
    Metric,
    Output,
    Reported,
    Started,
    Trial,
    Used,
    copy_with,
    storable,
)

__all__ = [
    "ATTRIBUTE_NAME_MAX",
    "COUNT",
    "DRILLED",
    "EVENT_TYPES",
    "EXIT_CODE_MAX",
    "GPUS_MAX",
    "HOST_MAX",
    "INTEGER_MAX",
    "MESSAGE_MAX",
    "PRIORITY_MAX",
    "PROCESSORS_MAX",
    "RUN_MAX",
    "TIME_MAX",
    "UNSTARTED",
    "Attempt",
    "Attribute",
    "Attributed",
    "CallKind",
    "EndCause",
    "Exited",
    "ExperimentLimits",
    "ExperimentState",
    "Host",
    "JobState",
    "Json",
    "KeeperEvent",
    "Metric",
    "MetricKind",
    "NodeCounts",
    "Output",
    "Reported",
    "Started",
    "Trial",
    "TrialState",
    "Used",
    "copy_with",
    "count_nodes",
    "find_error_line",
    "set_within_limits",
    "storable",
]
