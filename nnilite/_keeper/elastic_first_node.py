"""The first node of a trial whose other nodes may come and go.

gather at least `min` nodes -> start on all that are there -> one is lost, or a further one has come: end all processes
-> start again on those that are there

With `launcher: none` the commands look after that themselves: those that run continue, and a further node gets one.
Otherwise all processes are started again each time, so that the ranks have no gap, and the trial's command continues
from its checkpoint. What counts as a loss is a node that leaves or is silent, and a process that was killed: by SIGKILL
or SIGTERM, as by the kernel when memory runs out. A process that fails by itself ends the trial, unless something was
lost at the same time: those that talk to a lost process fail, too, and often sooner than its loss is known.
"""

from __future__ import annotations

import time

from .elastic_group import MOST_KILLS, ElasticGroup
from .first_node import PART_S
from .node_records import NodeRecords
from .node_run import ELASTIC_GATHER_S, Ended, NodeRun, find_interface, write_hosts
from .spool import FINAL, SpoolReader

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Mapping

    from .folder import Folder

_STEADY_S = 15.0  # how long processes run at least before they make room for a node that has come
_MOST_REPORTS, _MOST_BYTES = 1000, 1 << 20  # read at once
_PATIENCE_S = 300.0  # how long they may take for the next report, after which the least is lost


class ElasticFirstNode(NodeRun):
    """Leads the nodes that are there."""

    def __init__(self, plan: Mapping[str, Any], folder: Folder) -> None:
        super().__init__(plan, folder)
        self._fewest = int(plan["min"])
        self._records = NodeRecords(folder)
        self._group = ElasticGroup(plan, folder, self._records)
        self._began = 0.0  # the present start, in seconds that this program has lived
        self._is_stopping = False  # so that all can start again
        self._reports = SpoolReader(folder.metrics)
        self._has_just_reported = False
        self._has_result = False  # this start has reported one: what is left of it is not run again for a further node

    def run(self) -> None:
        """Run the trial to its end. Raises: Ended."""
        own = self.own_node()
        try:
            self._group.lines.open(self.plan["ports"])
        except OSError as error:
            raise Ended("the first node cannot listen: {}".format(error), "machine") from error
        while not self._is_over:
            self._process_messages()
            self._look()
            if self.terminated and not self.ending:
                self.end_all("canceled by SIGTERM")
            if self.ending:
                self._group.tell_all({"end": True})
            elif self._group.start < 0:
                self._gather(own)
            elif self.plan["launcher"] == "none":
                self._follow()
            elif self._is_stopping:
                self._start_again(own)
            elif self._group.losses or self._group.failure or self._may_grow:
                self._is_stopping = True
                self.stop_processes()
        self._records.write(self.processes.records)
        self._records.close()
        self._part()
        raise Ended(self.why, self.cause)

    @property
    def _is_over(self) -> bool:
        if not self.processes.over:
            return False
        if self.ending:
            return self.overdue or self._group.are_done
        begun = self._group.start >= 0 and not self._is_stopping
        return begun and self._group.are_done and not (self._group.losses or self._group.failure)

    @property
    def _may_grow(self) -> bool:
        """Whether there are nodes without a part, and all others may be stopped for them."""
        lived_s = self.lived_s - self._began
        is_good_moment = lived_s > _PATIENCE_S or (lived_s > _STEADY_S and self._has_just_reported)
        return is_good_moment and self._group.any_waits and not (self._group.is_through or self._has_result)

    def _gather(self, own: Dict[str, Any]) -> None:
        """Start once all nodes are there that have been asked, or enough of them and no more come."""
        count = 1 + len(self._group.members)
        if count >= int(self.plan["nodes"]) or (count >= self._fewest and self.lived_s > ELASTIC_GATHER_S):
            self._begin(own)
        elif self.lived_s > 2 * ELASTIC_GATHER_S:
            few = "only {} of at least {} nodes have joined within {:g} s"
            self.end_all(few.format(count, self._fewest, 2 * ELASTIC_GATHER_S), "machine")

    def _begin(self, own: Dict[str, Any]) -> None:
        """Start processes on all nodes that are there. Raises: Ended, OSError."""
        self._records.begin_start(self.processes.records, int(self.plan["max_output_bytes"]))
        layout, master = self._group.begin(own)
        self._is_stopping, self._has_result, self._began = False, False, self.lived_s
        self.renew_processes(self._group.start)
        self.start(layout, [0], master, find_interface(master))
        self._records.write(self.processes.records)

    def _start_again(self, own: Dict[str, Any]) -> None:
        """Start again, or end the trial, once all processes have ended everywhere."""
        group = self._group
        group.stop()
        if not self.processes.over or not group.are_done:
            return
        group.leave_out_killed()
        count = 1 + len(group.members)
        if group.failure is not None and not group.losses:
            self.end_all(group.failure[0], "", group.failure[1])
        elif count < self._fewest:
            self._end_for_want_of_nodes(count)
        elif group.own_kills >= MOST_KILLS:
            self.end_all("{}; that is kill number {} there".format(group.losses[-1], group.own_kills), "machine")
        else:
            why = "; ".join(group.losses) or "others have come"
            self.folder.add_to_log("starts again with {} nodes: {}".format(count, why))
            self._begin(own)

    def _follow(self) -> None:
        """Let the commands that run continue when nodes come or go: they look after that themselves."""
        group = self._group
        if not (group.losses or group.failure or (group.any_waits and not group.is_through)):
            return
        group.leave_out_killed(1)
        count = 1 + len(group.members)
        if group.failure is not None:
            self.end_all(group.failure[0], "machine" if group.losses else "", group.failure[1])
        elif group.own_kills:
            self.end_all(group.losses[-1], "machine")
        elif count < self._fewest:
            self._end_for_want_of_nodes(count)
        else:
            if group.losses:
                self.folder.add_to_log("continues with {} nodes: {}".format(count, "; ".join(group.losses)))
            group.losses = []
            write_hosts(self.folder, group.extend())

    def _end_for_want_of_nodes(self, count: int) -> None:
        few = "{}: {} of at least {} nodes left"
        self.end_all(few.format(self._group.losses[-1], count, self._fewest), "machine")

    def _look(self) -> None:
        """Look at the processes of this node."""
        ended = self.look()
        self._read_reports()
        if not self._is_stopping:  # those that are told to end may well end well
            self._group.is_through = self.processes.records.get(0, {}).get("state") == "SUCCEEDED"
            if self._group.is_through:  # what was lost with it, or a moment before
                self._group.losses = []
        for record in ended:
            if record["state"] == "FAILED":
                self._group.judge(record, self.processes.last_lines(record["rank"]))
        if ended or not self._records.are_written:
            self._records.write(self.processes.records)

    def _read_reports(self) -> None:
        try:
            kinds = [report.kind for report in self._reports.read(_MOST_REPORTS, _MOST_BYTES)]
        except OSError:  # the next look reads them
            kinds = []
        self._has_just_reported = bool(kinds)
        self._has_result = self._has_result or FINAL in kinds

    def _process_messages(self) -> None:
        self._group.process_messages(self.wait(self._group.lines.open_lines, self._group.lines.listeners))

    def _part(self) -> None:
        """Tell the others that all is over, and stay until they have it: they close their connections then."""
        self._group.tell_all({"over": True})
        deadline = time.monotonic() + PART_S
        while self._group.lines and time.monotonic() < deadline:
            self._process_messages()
