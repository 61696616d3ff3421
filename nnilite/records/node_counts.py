"""How many machines a distributed trial has. Whether it is elastic follows from that, here and nowhere else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from nnilite.records.record_types import Json


class NodeCounts(NamedTuple):
    """At least `fewest` machines, and at most `most`."""

    fewest: int
    most: int

    @property
    def is_elastic(self) -> bool:
        """Whether the trial continues without some of its machines, and grows again."""
        return self.fewest < self.most


def count_nodes(distributed: Json) -> NodeCounts:
    """Return the counts of the section `distributed` of a config, or of a job's specification; one machine without it.

    Anything but a number, as in a file that was changed by hand, counts as one.

    >>> count_nodes({"nodes": 2}), count_nodes({"nodes": {"min": 1, "max": 4}}), count_nodes({"nodes": 4, "min": 1})
    (NodeCounts(fewest=2, most=2), NodeCounts(fewest=1, most=4), NodeCounts(fewest=1, most=4))
    """
    settings: Mapping[str, Json] = distributed if isinstance(distributed, Mapping) else {}
    nodes = settings.get("nodes")
    if isinstance(nodes, Mapping):
        return NodeCounts(_number(nodes.get("min")), _number(nodes.get("max")))
    return NodeCounts(_number(settings.get("min", nodes)), _number(nodes))


def _number(value: Json) -> int:
    return value if type(value) is int else 1
