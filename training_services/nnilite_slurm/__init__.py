"""The training service `slurm`: runs trials as jobs of Slurm.

_service         the service
_config          the section `platform: slurm` of a config
_login           where Slurm's commands are run: this machine, or a login node by SSH (nnilite.ssh)
_api             these commands, and the files of trials there
_hanging         folders that do not answer, and are left out of the looks
_folders         the folders of attempts there: listed, and copied here
_shell           the shell scripts that are run there
_script          the script that Slurm runs for a trial
_arrays          trials that are submitted together, as a job array
_listing         what squeue and sacct answer
_watch           what becomes of a job, from Slurm's word and its keeper's
_reasons         why a job waits and how it ended, in words
_attempt_reader  what a trial has reported in its folder
"""

from nnilite_slurm._config import LoginConfig, SlurmConfig, SlurmContainerConfig
from nnilite_slurm._service import SlurmService

__all__ = ["LoginConfig", "SlurmConfig", "SlurmContainerConfig", "SlurmService"]
