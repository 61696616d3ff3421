"""Every built-in tuner keeps the contract that is there for everybody's."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from nnilite._plugins.lookup import TUNERS, names, tuner_class
from nnilite.testing import TunerContract
from nnilite.tuning.class_args import construct


class BuiltIn(TunerContract):
    name: ClassVar[str]
    args: ClassVar[dict[str, Any]] = {}
    finite = True
    # All have a seed: what they propose after a replay is compared with what they would have proposed.
    test_a_replayed_tuner_goes_on_in_the_space = None

    @pytest.fixture
    def make_tuner(self):
        return lambda: construct(tuner_class(self.name), {"seed": 3, **self.args})

    @property
    def extra_keys(self) -> frozenset[str]:
        return tuner_class(self.name).extra_keys


class Model:
    """Proposals of these take long. `test_learning_tuners` has that equal ones propose equally, in more spaces."""

    test_equal_tuners_propose_equally = None


class TestRandom(BuiltIn):
    name = "Random"


class TestTPE(BuiltIn):
    name = "TPE"


class TestAuto(BuiltIn):
    name = "Auto"


class TestAutoWithObjectives(BuiltIn):
    name = "Auto"
    args: ClassVar = {"objectives": {"default": "minimize", "loss": "minimize"}}


class TestEvolution(BuiltIn):
    name = "Evolution"
    args: ClassVar = {"population_size": 6}


class TestAnneal(BuiltIn):
    name = "Anneal"


class TestQMC(BuiltIn):
    name = "QMC"


class TestNSGA2(BuiltIn):
    name = "NSGA2"
    args: ClassVar = {"objectives": {"default": "minimize", "loss": "minimize"}, "population_size": 6}


class TestCMAES(BuiltIn):
    name = "CMAES"
    args: ClassVar = {"popsize": 5}
    space: ClassVar = {key: about for key, about in TunerContract.space.items() if key != "kind"}
    small_space: ClassVar = {"x": {"_type": "randint", "_value": [0, 5]}, "y": {"_type": "randint", "_value": [0, 3]}}
    history: ClassVar = [{"parameter": {"rate": 0.01, "width": 8}, "value": 0.5}]


class TestPBT(BuiltIn):
    name = "PBT"
    finite = False

    @pytest.fixture
    def make_tuner(self, tmp_path):
        folder = str(tmp_path / "it's $x")
        return lambda: construct(tuner_class("PBT"), {"seed": 3, "population_size": 6, "all_checkpoint_dir": folder})


class TestHyperband(BuiltIn):
    name = "Hyperband"
    args: ClassVar = {"R": 9}
    finite = False


class TestASHA(BuiltIn):
    name = "ASHA"
    args: ClassVar = {"max_budget": 9}
    finite = False


class TestBOHB(BuiltIn):
    name = "BOHB"
    args: ClassVar = {"max_budget": 9}
    finite = False


class TestGP(Model, BuiltIn):
    name = "GP"
    args: ClassVar = {"selection_num_warm_up": 100, "selection_num_starting_points": 50}


class TestMetis(Model, BuiltIn):
    name = "Metis"
    args: ClassVar = {"selection_num_starting_points": 100}


class TestSMAC(Model, BuiltIn):
    name = "SMAC"


class TestDNGO(Model, BuiltIn):
    name = "DNGO"
    args: ClassVar = {"num_epochs_per_training": 50, "trials_per_update": 10}


class TestGridSearch(BuiltIn):
    name = "GridSearch"
    extra_keys = frozenset()

    @pytest.fixture
    def make_tuner(self):
        return tuner_class("GridSearch")


class TestBatch(BuiltIn):
    name = "Batch"
    extra_keys = frozenset()
    space: ClassVar = {"sets": {"_type": "choice", "_value": [{"x": k, "name": f"it's {k}"} for k in range(200)]}}
    small_space: ClassVar = {"sets": {"_type": "choice", "_value": [{"x": -1}, {"x": -2}]}}
    history: ClassVar = [{"parameter": {"x": 0, "name": "it's 0"}, "value": 1}]

    @pytest.fixture
    def make_tuner(self):
        return tuner_class("Batch")

    def outside(self, space, parameters):
        return None if parameters in space["sets"]["_value"] else "it is not in the list"


def test_every_built_in_tuner_is_here():
    ours = {name for name in names(TUNERS) if tuner_class(name).__module__.startswith("nnilite_")}
    assert {cls.name for cls in BuiltIn.__subclasses__()} == ours
