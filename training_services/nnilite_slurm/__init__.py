"""The training service `slurm`: runs trials as jobs of Slurm.

Most of it is `nnilite.services.cluster`. Here is what only Slurm has:

_service       the service
_config        the section `platform: slurm` of a config
_api           the commands of Slurm
_shell         the shell scripts that call them
_script        the script that Slurm runs for a trial
_arrays        trials that are submitted together, as a job array
_joining_jobs  further nodes of elastic trials
_listing       what squeue and sacct answer
_reasons       why a job waits and how it ended, in words
"""

from nnilite.services.cluster.login import LoginConfig
from nnilite_slurm._config import SlurmConfig, SlurmContainerConfig
from nnilite_slurm._service import SlurmService

__all__ = ["LoginConfig", "SlurmConfig", "SlurmContainerConfig", "SlurmService"]
