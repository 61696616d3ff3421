"""The training service `redis`: trials wait in a queue in Redis, and workers that have joined take them from there.

_config         the fields of its section
_connection     reaching the server, and its errors as sentences
_keys           the names of all keys
_scripts        what is done in Redis at once or not at all
_bounded_reads  reads what others write, up to sizes
_api            everything that managers and workers do in Redis
_mailbox        messages between managers and workers
_relay          keepers' requests, put to the manager
_file_store     code, keeper, checkpoints and outputs: through a store, or through Redis
_convert        from jobs to records, from records to statuses and to reasons for waiting
_silence        how long a party has been silent, in time in which Redis answered
_watch          what the manager's side sees of its jobs and of the pool
_trial_files    files of trials that lie with their workers
_session        an open service
_service        the verbs of a training service
_command        `nnictl worker`
_driverless     from the options of H2O Driverless AI's workers to a section
_worker         the worker's side
"""

from nnilite_redis._config import BucketConfig, RedisConfig
from nnilite_redis._driverless import convert
from nnilite_redis._service import RedisService

__all__ = ["BucketConfig", "RedisConfig", "RedisService", "convert"]
