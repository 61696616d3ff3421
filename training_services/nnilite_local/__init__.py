"""The training service of this machine: runs trials as processes on the manager's machine.

_service             the service
_config              the section `platform: local` of a config
_fork_server_client  the client of the keeper's fork server, which starts all keepers
_keepers             which keepers are at work in which folders, and how to end one
_keeper_watch        looks at jobs, even if some of their folders hang
_endings             ensures that trials which were asked to end do end
_dismissed_keepers   keepers that were asked to leave, and files that can go when they have left
_second_keepers      end what a dead keeper has left, and deliver it
_attempt_folder      an attempt's folder, with the handle and the GPUs
_gpus                which job has which GPUs of this machine
"""

from nnilite_local._config import LocalConfig
from nnilite_local._service import LocalService

__all__ = ["LocalConfig", "LocalService"]
