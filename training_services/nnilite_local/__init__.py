"""The training service of this machine: runs trials as processes beside the manager.

_service             the service
_config              the section `platform: local` of a config
_fork_server_client  the client of the keeper's fork server, which starts all keepers
_keepers             which keepers are at work in which folders, and how one is told to end
_keeper_watch        looks at jobs, of whose folders some may hang
_endings             sees to it that what was told to end does end
_dismissals          keepers that were asked to leave, and what goes when they have left
_second_keepers      end what a dead keeper has left, and deliver it
_attempt_folder      an attempt's folder, with the handle and the GPUs
_gpus                which job has which GPUs of this machine
"""

from nnilite_local._config import LocalConfig
from nnilite_local._service import LocalService

__all__ = ["LocalConfig", "LocalService"]
