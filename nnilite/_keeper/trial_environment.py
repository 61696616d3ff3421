"""The environment of a trial: that of the keeper, what names the trial and its files, and what its job adds."""

from __future__ import annotations

import os

from . import sdk_folder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Optional

    from .folder import Folder
    from .spec import Spec

_NOT_FOR_TRIALS = (
    "NNI_TRIAL_COMMAND_CHANNEL",  # it would keep NNI's own SDK from writing to the spool
    "REUSE_MODE",
    "MULTI_PHASE",
    "NNILITE_TOKEN",
    "NNILITE_SPEC",
    "NNILITE_HOST",
)


def environment_of(spec: Spec, folder: Folder, directory: str, checkpoint_dir: Optional[str]) -> Dict[str, str]:
    """Return the environment of the command. Raises: OSError."""
    env = _inherit()
    own: Dict[str, Any] = {
        "NNI_PLATFORM": "local",  # with this, NNI's own SDK writes to the spool
        "NNI_EXP_ID": spec.experiment,
        "NNI_TRIAL_JOB_ID": spec.trial,
        "NNI_TRIAL_SEQ_ID": str(spec.sequence),
        "NNI_SYS_DIR": folder.path,
        "NNI_OUTPUT_DIR": folder.path,
        "NNI_CODE_DIR": directory,
        "NNILITE_PLATFORM": spec.platform,
        "NNILITE_JOB": spec.job,
        "NNILITE_ATTEMPT": str(spec.attempt),
        "NNILITE_METRICS": folder.metrics,
        "NNILITE_CHECKPOINT_DIR": checkpoint_dir,
    }
    for name, value in {**own, **spec.env}.items():
        env.pop(name, None)
        if value is not None:
            env[name] = str(value)
    return _add_sdk(env, sdk_folder.place(folder.inner))


def environment_of_all(sdk: str) -> Dict[str, str]:
    """Return what the trials of this worker have in common. `sdk`: the folder that they share."""
    return _add_sdk(_inherit(), sdk)


def _inherit() -> Dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in _NOT_FOR_TRIALS}


def _add_sdk(env: Dict[str, str], sdk: str) -> Dict[str, str]:
    env["PYTHONPATH"] = os.pathsep.join(path for path in (sdk, env.get("PYTHONPATH", "")) if path)
    return env
