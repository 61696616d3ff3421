"""The training service of Ray: each attempt of a trial is a job of a running Ray cluster.

_service      the service: submits, polls, cancels and removes
_watch        what is known of one job, and how its status is reported
_config       the fields of the section
_convert      pure: from a job to the request, from Ray's answers to the state of a job
_resources    pure: what a job that waits is waiting for
_api          the calls to Ray's Jobs REST interface that are needed
_log          the log of one job: its keeper's events, and the trial's output
_package      what goes up once for all jobs: the code, the keeper, and how to start it
_start        the program that runs on the node: it becomes the keeper, and cleans up after it
_start_nodes  the driver of a trial on several nodes: it reserves them, and runs `_start` on each
"""

from nnilite_ray._config import RayConfig
from nnilite_ray._service import RayService

__all__ = ["RayConfig", "RayService"]
