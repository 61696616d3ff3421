"""`to_optuna`, `nnictl experiment export --type optuna` and `nnilite.plot`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import optuna
import pytest

from nnilite import Search, plot
from nnilite._cli.nnictl import run as nnictl
from nnilite._experiments import registry
from nnilite._running import offline, optuna_export
from nnilite.errors import Conflict, NotFound
from nnilite.plot.optuna_study import PlottedTrial, study_of
from nnilite.records import Trial, TrialState
from nnilite.search import SearchResult

SPACE = {
    "lr": {"_type": "loguniform", "_value": [1e-4, 1]},
    "kind": {"_type": "choice", "_value": ["a", None, [1, 2]]},
    "n": {"_type": "randint", "_value": [1, 5]},
    "noise": {"_type": "normal", "_value": [0, 1]},
    "step": {"_type": "quniform", "_value": [1, 10, 4]},
    "model": {
        "_type": "choice",
        "_value": [{"_name": "cnn", "layers": {"_type": "uniform", "_value": [1, 4]}}, {"_name": "mlp"}],
    },
}
GOALS = {"accuracy": "maximize", "size": "minimize"}


def objective(parameters: dict, report) -> float:
    for step in range(2):
        report(parameters["lr"] + step)
    if parameters["n"] == 4:
        raise ValueError("no")
    return parameters["lr"]


@pytest.fixture(scope="module")
def result() -> SearchResult:
    return Search(SPACE, "Random", optimize="minimize", seed=2).run(objective, trials=14)


@pytest.fixture(scope="module")
def several() -> SearchResult:
    def both(parameters: dict) -> dict:
        return {"accuracy": parameters["lr"], "size": parameters["lr"] * parameters["n"], "note": "x"}

    return Search(SPACE, "NSGA2", optimize=GOALS, seed=2).run(both, trials=10)


def test_a_study_has_the_values_the_direction_and_the_best_trial(result: SearchResult) -> None:
    study = result.to_optuna()
    assert study.direction is optuna.study.StudyDirection.MINIMIZE
    assert result.best is not None
    assert (study.best_value, study.best_trial.user_attrs["trial"]) == (result.best.value, result.best.id)
    assert [trial.number for trial in study.trials] == [trial.sequence for trial in result.trials]
    states = {TrialState.SUCCEEDED: "COMPLETE", TrialState.FAILED: "FAIL"}
    assert [trial.state.name for trial in study.trials] == [states[trial.state] for trial in result.trials]
    assert {"COMPLETE", "FAIL"} == {trial.state.name for trial in study.trials}


def test_a_nested_parameter_is_there_only_where_its_choice_was_taken(result: SearchResult) -> None:
    for one, trial in zip(result.to_optuna().trials, result.trials, strict=True):
        given = trial.parameters["model"]
        assert one.params["model"] == given["_name"]
        assert one.params.get("model.cnn.layers") == given.get("layers")
        kind = trial.parameters["kind"]
        assert one.params["kind"] == ("[1, 2]" if kind == [1, 2] else kind)
        assert (one.params["n"], one.params["noise"]) == (trial.parameters["n"], trial.parameters["noise"])


def test_several_objectives_keep_their_names_directions_and_front(several: SearchResult) -> None:
    study = several.to_optuna()
    assert [direction.name for direction in study.directions] == ["MAXIMIZE", "MINIMIZE"]
    assert study.metric_names == ["accuracy", "size"]
    assert {trial.user_attrs["trial"] for trial in study.best_trials} >= {trial.id for trial in several.front}
    assert study.trials[3].values == [several.trials[3].value[name] for name in GOALS]


def test_trials_that_were_stopped_or_still_run_or_are_odd_are_there_too() -> None:
    space = {"x": {"_type": "uniform", "_value": [0, 1]}}
    made = {"parameters": {"x": 0.5, "TRIAL_BUDGET": 3}, "created": 1.0, "started": 2.0}
    trials = [
        PlottedTrial(Trial("a", 0, state=TrialState.EARLY_STOPPED, ended=3.0, **made), (0.1, 0.7, "poor")),
        PlottedTrial(Trial("b", 1, state=TrialState.RUNNING, **made)),
        PlottedTrial(Trial("c", 2, state=TrialState.SUCCEEDED, value="none", ended=3.0, **made)),
        PlottedTrial(Trial("d", 3, {"y": 1}, state=TrialState.SUCCEEDED, value={"default": 2}, started=2.0, ended=3.0)),
    ]
    study = study_of("it's", space, {"default": "maximize"}, trials)
    assert [trial.state.name for trial in study.trials] == ["PRUNED", "RUNNING", "FAIL", "COMPLETE"]
    assert study.trials[0].value == 0.7
    assert study.trials[0].params == {"x": 0.5}
    assert study.trials[3].user_attrs["parameters"] == {"y": 1}
    assert (study.trials[0].datetime_start.timestamp(), study.trials[0].duration.total_seconds()) == (2.0, 1.0)


@pytest.mark.parametrize("draw", [getattr(plot, name) for name in plot.__all__ if name != "front"])
def test_each_plot_of_one_objective_has_something_in_it(draw, result: SearchResult) -> None:
    figure = draw(result)
    assert figure.data
    assert json.loads(figure.to_json())["data"]


@pytest.mark.parametrize("name", ["history", "importance", "slices", "contour", "parallel_coordinates", "rank", "edf"])
def test_each_plot_draws_the_objective_that_is_asked_for(name: str, several: SearchResult) -> None:
    figure = getattr(plot, name)(several, objective="size")
    assert "size" in figure.to_json()
    if name == "history":
        assert list(figure.data[0].y) == [trial.value["size"] for trial in several.trials]
        assert figure.data[1].y[-1] == min(figure.data[0].y)
    with pytest.raises(NotFound, match="no objective 'loss'; there is accuracy, size"):
        getattr(plot, name)(several, objective="loss")


def test_the_front_is_of_the_objectives_by_name(several: SearchResult, result: SearchResult) -> None:
    figure = plot.front(several)
    assert (figure.layout.xaxis.title.text, figure.layout.yaxis.title.text) == ("accuracy", "size")
    with pytest.raises(Conflict, match="two or three objectives, and here there is one"):
        plot.front(result)


def test_a_slice_has_exactly_the_trials_values(result: SearchResult) -> None:
    (points,) = plot.slices(result, parameters=["lr"]).data
    succeeded = [trial for trial in result.trials if trial.state is TrialState.SUCCEEDED]
    assert list(points.x) == [trial.parameters["lr"] for trial in succeeded]
    assert list(points.y) == [trial.value for trial in succeeded]


def test_what_cannot_be_drawn_is_said_in_a_sentence(result: SearchResult) -> None:
    empty = Search(SPACE, "Random")
    with pytest.raises(Conflict, match="no trial has succeeded yet"):
        plot.history(empty)
    with pytest.raises(Conflict, match="no trials yet"):
        plot.timeline(empty)
    with pytest.raises(NotFound, match="has a parameter 'rl'; there is kind, lr"):
        plot.slices(result, parameters=["rl"])
    with pytest.raises(Conflict, match="cannot be drawn"):
        plot.edf(7)


@contextmanager
def loaded(path: Path) -> Iterator[optuna.Study]:
    """The study of a file, as optuna loads it."""
    if path.suffix != ".db":
        journal = optuna.storages.journal.JournalFileBackend(str(path))
        yield optuna.load_study(study_name="kept", storage=optuna.storages.JournalStorage(journal))
        return
    storage = optuna.storages.RDBStorage(f"sqlite:///{path}")
    try:
        yield optuna.load_study(study_name="kept", storage=storage)
    finally:
        storage.remove_session()
        storage.engine.dispose()  # optuna leaves its connections open


@pytest.mark.parametrize("name", ["a 'study'.db", "study.log"])
def test_an_export_is_a_study_that_optuna_loads(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setenv("NNILITE_HOME", str(tmp_path / "home"))
    search = Search(SPACE, "Random", optimize="minimize", seed=2, storage=tmp_path / "kept")
    result = search.run(objective, trials=6)
    in_the_way = tmp_path / f".{name}.new"
    in_the_way.mkdir()  # another user could have laid a file there, if a draft had such a name
    assert nnictl(["experiment", "export", "kept", "--type", "optuna", "--filename", str(tmp_path / name)]) == 0
    assert "6 trials are in" in capsys.readouterr().out
    with loaded(tmp_path / name) as study:
        trials = study.trials
    assert [trial.params for trial in trials] == [trial.params for trial in result.to_optuna().trials]
    assert [trial.state for trial in trials] == [trial.state for trial in result.to_optuna().trials]
    assert trials[0].intermediate_values == dict(enumerate(result.intermediate["0"]))
    assert list(tmp_path.glob("*.new")) == [in_the_way]


def test_an_export_without_a_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NNILITE_HOME", str(tmp_path / "home"))
    Search(SPACE, "Random", storage=tmp_path / "kept")
    assert nnictl(["experiment", "export", "kept", "--type", "optuna"]) != 0
    missing = str(tmp_path / "no" / "study.db")
    assert nnictl(["experiment", "export", "kept", "--type", "optuna", "--filename", missing]) != 0
    with offline.opened(registry.find("kept")) as client:
        assert optuna_export.study_of(client).trials == []
