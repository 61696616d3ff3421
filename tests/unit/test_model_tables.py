"""The benchmark of tuners on tables of scikit-learn's models: how a combination is looked up, and how it was made."""

from __future__ import annotations

import random

import pytest

from benchmarks.model_tables import FILE, GRIDS, STAGES, ModelTable, combinations, describe, load_models
from benchmarks.search_tables import list_models, table
from nnilite.space import SearchSpace

np = pytest.importorskip("numpy")


def test_each_combination_of_nested_parameters_has_a_row_of_its_own() -> None:
    kinds = [{"_name": "line"}, {"_name": "net", "width": [4, 16], "act": ["relu", "tanh"]}]
    grid = {"rate": [0.1, 1.0], "kind": kinds}
    made = ModelTable(grid, np.arange(10.0)[:, None], {repr(one): row for row, one in enumerate(combinations(grid))})
    net = {"_name": "net", "width": 1, "act": "relu"}
    assert made.row({"rate": 0, "kind": {"_name": "line"}}) == 0
    assert made.row({"rate": 1, "kind": net}) == 8
    assert made.objective(3)({"rate": 1, "kind": net}) == 8.0
    assert made.worth.tolist() == [row / 4.5 for row in range(10)]
    assert SearchSpace.parse(made.space).size == 10


@pytest.mark.parametrize("name", GRIDS)
def test_all_that_a_tuner_may_propose_is_in_the_table(name: str) -> None:
    found, space = load_models(name), SearchSpace.parse(describe(GRIDS[name]))
    rows = {found.row(space.sample(random.Random(seed))) for seed in range(50)}
    assert len(rows) > 25
    assert max(rows) < len(found.losses) == len(found.rows)
    assert len(found.losses) >= 1000
    assert found.worth.min() == 0.0


def test_the_collection_is_the_model() -> None:
    assert len(list_models()) == len(GRIDS)
    assert table("svm", "segment") is load_models("svm segment")


def test_a_table_was_made_by_the_trainings_of_today() -> None:
    pytest.importorskip("sklearn")
    from benchmarks.model_record import chunks, train

    for name in ("elastic diabetes", "pipeline cancer"):  # data that needs no other package
        _, rows = next(chunks(name))
        stages = len(GRIDS[name].get(STAGES, [1]))
        with np.load(FILE) as file:
            known = file[name][:stages]
        assert np.allclose(train(name, rows[:1]), known, atol=0.01)


def test_a_training_that_diverges_is_the_worst_and_one_that_is_wrong_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("sklearn")
    from benchmarks import model_record

    def answer(words: str) -> None:
        def fail(*args: object) -> None:
            raise ValueError(words)
            yield

        monkeypatch.setitem(model_record.TRAININGS, "elastic", fail)

    answer("Input X contains infinity")
    assert np.all(model_record.train("elastic diabetes", [{}]) == model_record.WORST)
    answer("no such kernel")
    with pytest.raises(ValueError, match="no such kernel"):
        model_record.train("elastic diabetes", [{}])
