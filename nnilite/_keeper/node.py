"""Runs the processes of a trial on one of its nodes: the command of a keeper whose specification says `distributed`.

gather the nodes -> agree on the layout -> start the processes -> watch them -> end all, everywhere

The first node leads, and the others report to it by `node_link`. Each writes to `.nni/ranks` why it ended, where its
keeper reads it.

A message may be sent twice, when a connection breaks: all of them say how things are, and not what has changed.
"""

from __future__ import annotations

import sys

from .elastic_first_node import ElasticFirstNode
from .exit_code import status
from .first_node import FirstNode
from .folder import Folder
from .node_run import Ended
from .other_node import OtherNode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List

_NO_RANKS = 4


def main(arguments: List[str]) -> int:
    """Run this node's part of the trial in the folder. Return the exit code of the command."""
    folder = Folder(arguments[0])
    plan = folder.read("plan")
    if plan is None:
        sys.stderr.write("the plan of the nodes is gone from {}\n".format(folder.path))
        return _NO_RANKS
    leader = ElasticFirstNode if "min" in plan else FirstNode
    node = leader(plan, folder) if int(plan["node"]) == 0 else OtherNode(plan, folder)
    try:
        node.run()
        ended = Ended()
    except Ended as error:
        ended = error
    except OSError as error:  # no port, process or file can be had
        ended = Ended("node {} cannot run: {}".format(plan["node"], error), "machine")
    finally:
        if not node.processes.over:
            node.end_all("")
            node.processes.kill()
        node.processes.close()
    if node.is_ended_by_first_node and not node.terminated:
        return 0  # the first node reports why: a platform that counts failed nodes would take this for another failure
    if str(ended) and not node.terminated:
        folder.write("ranks", {"message": str(ended), "cause": ended.cause, "code": node.code})
        return status(node.code) if node.code else _NO_RANKS
    return 143 if node.terminated else 0
