"""Arguments of `Search` of a wrong type: one sentence says what to write."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nnilite import Search
from nnilite.errors import ConfigError, SpaceError
from nnilite.tuner import Tuner

SPACE = {"x": {"_type": "uniform", "_value": [0, 1]}}


class OwnTuner(Tuner):
    def generate_parameters(self, parameter_id: int, **kwargs: Any) -> dict[str, Any]:
        return {"x": 0.5}


@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize(
    ("wrong", "cure"),
    [
        ({"tuner": {"name": "Random"}}, "give its name alone, tuner='Random'"),
        ({"tuner": OwnTuner}, "give an object of the class: tuner=OwnTuner"),
        ({"tuner": 3}, "such as tuner='TPE'"),
        ({"assessor": {"name": "Medianstop", "classArgs": {}}}, "give its name alone, assessor='Medianstop'$"),
        ({"assessor": 5}, "such as assessor='Medianstop'"),
        ({"optimize": None}, "^optimize: must be 'maximize'"),
        ({"optimize": ["a"]}, "^optimize: must be 'maximize'"),
        ({"constraints": "x < 1"}, "^constraints: must be a list of texts"),
        ({"constraints": 5}, "^constraints: must be a list of texts"),
        ({"constraints": [3]}, "^constraints: each must be a text"),
        ({"result_constraints": 5}, "^result_constraints: must be a list of texts"),
    ],
)
def test_an_argument_of_a_wrong_type_is_answered_with_what_to_write(
    wrong: dict[str, Any], cure: str, stored: bool, tmp_path: Path
) -> None:
    more = {"storage": tmp_path / "kept"} if stored else {}
    with pytest.raises(ConfigError, match=cure):
        Search(SPACE, **wrong, **more)
    assert not (tmp_path / "kept").exists()


@pytest.mark.parametrize(("space", "reads"), [("space.json", "json.loads"), (Path("my.yml"), "yaml.safe_load")])
def test_the_name_of_a_file_in_place_of_a_space_is_answered_with_how_to_read_it(space: Any, reads: str) -> None:
    with pytest.raises(SpaceError) as caught:
        Search(space)
    assert str(caught.value).endswith(f"read the file: Search({reads}(pathlib.Path({str(space)!r}).read_text()))")


def test_a_storage_in_the_home_of_nobody_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^storage: '~nobody-here/x' is in the home folder of a user who does not"):
        Search(SPACE, storage="~nobody-here/x")


@pytest.mark.parametrize("storage", [5, b"x"])
def test_a_storage_that_is_no_path_is_refused(storage: Any) -> None:
    with pytest.raises(ConfigError, match=r"^storage: must be the path of a folder"):
        Search(SPACE, storage=storage)


def test_a_tuner_of_one_objective_refuses_a_dict_of_them_with_the_cure() -> None:
    with pytest.raises(ConfigError, match="the tuner TPE has one objective, so write optimize='minimize'"):
        Search({"x": {"_type": "uniform", "_value": [0, 1]}}, tuner="TPE", optimize={"loss": "minimize"})
