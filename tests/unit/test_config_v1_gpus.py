"""GPUs in NNI's older format, as the services that are installed check them."""

from __future__ import annotations

from typing import Any

import pytest

from nnilite.config import from_dict
from nnilite.errors import ConfigError

PLAIN = {
    "trainingServicePlatform": "local",
    "trialConcurrency": 1,
    "searchSpace": {"x": {"_type": "uniform", "_value": [0, 1]}},
    "trial": {"command": "true", "codeDir": "."},
    "tuner": {"builtinTunerName": "Random"},
}
TWO = {"command": "true", "codeDir": ".", "gpuNum": 2}
MACHINE = {"ip": "h", "username": "me", "passwd": "x", "gpuIndices": "0"}


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        (
            {"trial": TWO, "localConfig": {"gpuIndices": 0}},
            "localConfig.gpuIndices: names fewer GPUs than the 2 that trial.gpuNum asks for",
        ),
        (
            {"trainingServicePlatform": "remote", "trial": TWO, "machineList": [MACHINE]},
            "trial.gpuNum: is 2, but no machine's gpuIndices names so many",
        ),
    ],
)
def test_sentences_name_fields_as_the_older_format_does(more: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        from_dict({**PLAIN, **more}).checked(paths=False)
    assert sentence in str(caught.value)


def test_gpus_to_share_where_trials_get_none_are_a_warning() -> None:
    assert from_dict({**PLAIN, "localConfig": {"maxTrialNumPerGpu": 2}}).checked(paths=False).warnings == [
        "maxTrialNumPerGpu has no effect on local: trials see all GPUs, or none; set trial.gpuNum to have GPUs assigned"
    ]
