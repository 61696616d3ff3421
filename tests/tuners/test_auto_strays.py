"""`Auto`: proposals that are not its model's, on plateaus and in spaces with branches."""

from __future__ import annotations

from nnilite_optuna import AutoTuner
from nnilite_optuna._bayes import BayesTuner


def list_modelled(monkeypatch, give_loss) -> list[int]:
    """Return the numbers of the proposals, of forty, that the process of `Auto` made."""
    modelled, best = [], BayesTuner._best
    tuner = AutoTuner("minimize", seed=1)
    monkeypatch.setattr(BayesTuner, "_best", lambda *args: modelled.append(number) or best(*args))
    tuner.update_search_space(GRID)
    for number in range(40):
        tuner.receive_trial_result(number, tuner.generate_parameters(number), give_loss(number))
        tuner.trial_end(number, True)
    return modelled


GRID = {f"x{k}": {"_type": "randint", "_value": [0, 30]} for k in range(3)}


def test_on_a_plateau_the_model_proposes_each_second_point_alone(monkeypatch):
    begun = 2 + len(GRID)
    assert list_modelled(monkeypatch, lambda number: 1.0) == list(range(begun + 1, 40, 2))


def test_the_model_proposes_all_points_after_a_plateau_is_left(monkeypatch):
    modelled = list_modelled(monkeypatch, lambda number: 1.0 if number < 20 else -number)
    assert modelled == [*range(6, 22, 2), *range(21, 40)]


def begin_with_branches(kinds: list) -> AutoTuner:
    tuner = AutoTuner("minimize", seed=3)
    tuner.update_search_space({"kind": {"_type": "choice", "_value": kinds}})
    return tuner


def test_parameters_that_are_not_active_make_no_other_point(monkeypatch):
    whole = {"_type": "randint", "_value": [0, 40]}
    tuner = begin_with_branches([{"_name": "a", "n": whole}, {"_name": "b", "n": whole, "m": whole}, {"_name": "c"}])
    attempts, plain = [], tuner.rng
    monkeypatch.setattr(tuner, "rng", lambda number, attempt=0: attempts.append(attempt) or plain(number, attempt))
    for number in range(40):
        found = tuner.generate_parameters(number)
        tuner.receive_trial_result(number, found, found["kind"].get("n", 50))
        tuner.trial_end(number, True)
    assert max(attempts) < 5  # after six proposals that were tried before, one is drawn


def test_a_search_with_branches_leaves_the_one_that_did_well_first():
    number = {"_type": "uniform", "_value": [0.0, 1.0]}
    tuner = begin_with_branches([{"_name": "good at once", "x": number}, {"_name": "better", "x": number, "y": number}])
    losses = []
    for trial in range(60):
        found = tuner.generate_parameters(trial)["kind"]
        better = found["_name"] == "better"
        losses.append(3 * abs(found["x"] - 0.9) + 3 * abs(found["y"] - 0.1) if better else 0.5 + 0.1 * found["x"])
        tuner.receive_trial_result(trial, {"kind": found}, losses[-1])
        tuner.trial_end(trial, True)
    assert min(losses) < 0.2
