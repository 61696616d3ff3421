"""The training service `batch`: runs trials by a scheduler's own commands, such as Grid Engine, PBS, LSF or HTCondor.

Most of it is `nnilite.services.cluster`. Here is what makes commands of templates, and reads what they print:

_service        the service, and the script that the scheduler runs for a trial
_config         the section `platform: batch` of a config
_scheduler      what is known of a scheduler: its commands, its patterns, its states
_presets        the schedulers that are known by name
_templates      commands made of templates and values
_answer_reader  what the commands print
_api            the commands on the login host
"""

from nnilite.services.cluster.login import LoginConfig
from nnilite_batch._config import BatchConfig
from nnilite_batch._scheduler import BatchCommands, BatchPatterns
from nnilite_batch._service import BatchSchedulerService

__all__ = ["BatchCommands", "BatchConfig", "BatchPatterns", "BatchSchedulerService", "LoginConfig"]
