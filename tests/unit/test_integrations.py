"""Callbacks of trainers and the search of scikit-learn, each with the real library where it is installed."""

from __future__ import annotations

import pickle
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

import nnilite
from loadable import import_or_skip
from nnilite import Search, integrations, space
from nnilite.assessor import Assessor, AssessResult
from nnilite.errors import ConfigError, Conflict, NoMoreTrialError, TrialStopped
from nnilite.integrations._reporting import Progress
from nnilite.services import keeper_folder
from nnilite.tuner import Tuner

ROWS = [[float(i), float(i % 7)] for i in range(60)]
LABELS = [int(i > 30) for i in range(60)]


@pytest.fixture
def stop(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """What `should_stop` answers: whether this list has an element."""
    asked: list[bool] = []
    monkeypatch.setattr(nnilite, "should_stop", lambda: bool(asked))
    return asked


@pytest.fixture
def trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stop: list[bool]) -> Path:
    folder = tmp_path / "it's a trial"
    (folder / ".nni").mkdir(parents=True)
    (folder / "parameter.cfg").write_text('{"parameter_id": 0, "parameters": {}}')
    monkeypatch.setenv("NNI_PLATFORM", "local")
    monkeypatch.setenv("NNI_SYS_DIR", str(folder))
    monkeypatch.setenv("NNILITE_METRICS", str(folder / ".nni" / "metrics"))
    monkeypatch.setattr(nnilite, "_trial", nnilite._ThisTrial())
    return folder


def reported(trial: Path) -> list[tuple[str, Any]]:
    return [(metric.kind.value, metric.value) for metric in keeper_folder.read_metrics(trial)]


@pytest.mark.parametrize(("final", "result"), [("last", 2.0), ("max", 3.0), ("min", 1.0)])
def test_the_final_result_is_the_one_that_is_wanted(trial: Path, final: Any, result: float) -> None:
    progress = Progress("It", "loss", final, None)
    assert [progress.report({"loss": value}) for value in (3, 1, 2)] == [False, False, False]
    progress.finish()
    progress.finish()
    assert [value for _, value in reported(trial)] == [3.0, 1.0, 2.0, result]


@pytest.mark.parametrize(("final", "result"), [("max", 2.0), ("min", 1.0)])
def test_an_epoch_without_a_number_is_not_the_final_result_of_all(trial: Path, final: Any, result: float) -> None:
    progress = Progress("It", "loss", final, None)
    for value in (float("nan"), 1, float("nan"), 2):
        progress.report({"loss": value})
    progress.finish()
    assert reported(trial)[-1] == ("FINAL", result)


def test_a_training_that_was_cut_short_has_no_final_result(trial: Path, stop: list[bool]) -> None:
    progress = Progress("It", "loss", "last", None)
    progress.report({"loss": 1})
    stop.append(True)
    assert progress.report({}) is True
    progress.finish()
    assert [value for _, value in reported(trial)] == [1.0]


def test_with_report_the_function_has_the_result(trial: Path) -> None:
    values: list[float] = []
    progress = Progress("It", "loss", "last", values.append)
    progress.report({"loss": 1})
    progress.finish()
    assert (values, reported(trial)) == ([1.0], [])


def test_what_is_wrong_is_said(trial: Path) -> None:
    with pytest.raises(ConfigError, match="final"):
        Progress("It", "loss", "best", None)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"It has no metric 'los'\. It evaluates acc, loss"):
        Progress("It", "los", "last", None).report({"loss": 1, "acc": 2})
    with pytest.warns(RuntimeWarning, match="It has evaluated nothing"):
        Progress("It", "loss", "last", None).finish()


@pytest.mark.process
def test_no_library_is_imported_before_its_name_is_used() -> None:
    program = (
        "import sys, nnilite.integrations as i; print(*{'sklearn', 'xgboost', 'torch', 'keras'} & set(sys.modules))\n"
        "sys.modules['keras.callbacks'] = None\n"
        "try: i.KerasCallback\nexcept ImportError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.stdout.startswith("\nKerasCallback needs keras, which cannot be imported ("), done.stderr
    with pytest.raises(AttributeError, match="has no attribute 'Keras'"):
        integrations.Keras  # noqa: B018


class StopsAtTheSecond(Assessor):
    def assess_trial(self, trial_id: str, history: list[Any]) -> AssessResult:
        return AssessResult.Bad if len(history) > 1 else AssessResult.Good


def xgboost_training(**arguments: Any) -> Any:
    xgboost = pytest.importorskip("xgboost", exc_type=ImportError)
    callback = integrations.XGBoostCallback("valid-logloss", **arguments)
    import numpy

    data = xgboost.DMatrix(numpy.array(ROWS), numpy.array(LABELS))
    settings = {"objective": "binary:logistic", "nthread": 1}
    return xgboost.train(settings, data, 4, evals=[(data, "valid")], callbacks=[callback], verbose_eval=False)


def lightgbm_training(**arguments: Any) -> Any:
    lightgbm = import_or_skip("lightgbm")
    callback = integrations.LightGBMCallback("valid binary_logloss", **arguments)
    import numpy

    data = lightgbm.Dataset(numpy.array(ROWS), numpy.array(LABELS))
    settings = {"objective": "binary", "verbose": -1, "num_threads": 1}
    return lightgbm.train(settings, data, 4, valid_sets=[data], valid_names=["valid"], callbacks=[callback])


def catboost_training(**arguments: Any) -> Any:
    catboost = pytest.importorskip("catboost", exc_type=ImportError)
    callback = integrations.CatBoostCallback("validation-Logloss", **arguments)
    model = catboost.CatBoostClassifier(iterations=4, thread_count=1, verbose=0, allow_writing_files=False)
    model.fit(ROWS, LABELS, eval_set=[(ROWS, LABELS)], callbacks=[callback])
    callback.finish()
    return model


def keras_training(**arguments: Any) -> Any:
    pytest.importorskip("torch", exc_type=ImportError)
    keras = pytest.importorskip("keras", exc_type=ImportError)
    import numpy

    model = keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(1)])
    model.compile(loss="mse", optimizer="sgd")
    callback = integrations.KerasCallback("val_loss", **arguments)
    data = numpy.array(ROWS) / 60, numpy.array(LABELS)
    model.fit(*data, validation_data=data, epochs=4, batch_size=30, callbacks=[callback], verbose=0)
    return model


def lightning_training(**arguments: Any) -> Any:
    torch = pytest.importorskip("torch", exc_type=ImportError)
    lightning = pytest.importorskip("lightning.pytorch", exc_type=ImportError)

    class Model(lightning.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(2, 1)

        def training_step(self, batch: Any, _: int) -> Any:
            return ((self.layer(batch[0])[:, 0] - batch[1]) ** 2).mean()

        def validation_step(self, batch: Any, number: int) -> None:
            self.log("loss", self.training_step(batch, number))

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), 0.001)

    numbers = torch.utils.data.TensorDataset(torch.tensor(ROWS) / 60, torch.tensor(LABELS, dtype=torch.float))
    loader = torch.utils.data.DataLoader(numbers, batch_size=30)
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    callback = integrations.LightningCallback("loss", **arguments)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Lightning's advice on workers and GPUs, and on its own dependencies
        trainer = lightning.Trainer(
            max_epochs=4, accelerator="cpu", enable_checkpointing=False, callbacks=[callback], **quiet
        )
        trainer.fit(Model(), loader, loader)
    return trainer


def transformers_training(folder: Path, **arguments: Any) -> Any:
    torch = pytest.importorskip("torch", exc_type=ImportError)
    transformers = pytest.importorskip("transformers", exc_type=ImportError)
    pytest.importorskip("accelerate", exc_type=ImportError)
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 8}
    config = transformers.BertConfig(vocab_size=16, **sizes)
    model = transformers.BertForSequenceClassification(config)
    data = [{"input_ids": torch.tensor([i % 16, 1]), "labels": label} for i, label in enumerate(LABELS)]
    settings = transformers.TrainingArguments(
        str(folder / "out"), num_train_epochs=4, eval_strategy="epoch", report_to=[], disable_tqdm=True, use_cpu=True
    )
    callback = integrations.TransformersCallback("eval_loss", **arguments)
    trainer = transformers.Trainer(model, settings, train_dataset=data, eval_dataset=data, callbacks=[callback])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch, on machines without a GPU
        trainer.train()
    return trainer


@pytest.fixture(params=["xgboost", "lightgbm", "catboost", "keras", "lightning", "transformers"])
def train(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("KERAS_BACKEND", "torch")
    monkeypatch.setenv("KERAS_HOME", str(tmp_path / "it's keras"))
    if request.param == "transformers":
        return lambda **arguments: transformers_training(tmp_path, **arguments)
    return globals()[f"{request.param}_training"]


def test_a_trainer_reports_each_round_and_the_final_result(train: Any, trial: Path) -> None:
    train()
    values = reported(trial)
    assert [kind for kind, _ in values] == ["PERIODICAL"] * 4 + ["FINAL"]
    assert values[4][1] == values[3][1] > 0


def test_a_trainer_stops_when_the_trial_should(train: Any, trial: Path, stop: list[bool]) -> None:
    values: list[float] = []

    def report(value: float) -> None:
        values.append(value)
        if len(values) == 2:
            stop.append(True)

    train(report=report)
    assert len(values) == 2
    assert reported(trial) == []


def test_the_assessor_of_a_search_stops_a_trainer(train: Any) -> None:
    search = Search({"x": space.uniform(0, 1)}, tuner="Random", assessor=StopsAtTheSecond())
    result = search.run(lambda parameters, report: train(report=report) and 1, trials=1)
    assert [trial.state.value for trial in result] == ["EARLY_STOPPED"], result.reason
    assert len(result.intermediate["0"]) == 2


def test_a_trainer_lets_pass_what_ends_the_trial(train: Any) -> None:
    def report(value: float) -> None:
        raise TrialStopped("enough")

    with pytest.raises(TrialStopped, match="enough"):
        train(report=report)


# scikit-learn


def searching(**arguments: Any) -> Any:
    svm = pytest.importorskip("sklearn.svm")
    settings = {"trials": 5, "tuner": "Random", "random_state": 1, "cv": 3}
    return integrations.NniliteSearchCV(svm.SVC(), {"C": space.loguniform(0.01, 100)}, **(settings | arguments))


def test_a_search_has_what_grid_search_has() -> None:
    search = searching().fit(ROWS, LABELS)
    scores = search.cv_results_["mean_test_score"]
    assert len(scores) == len(search.search_result_) == 5
    assert search.best_score_ == max(scores) == scores[search.best_index_] == search.search_result_.best.value
    assert search.best_params_ == search.cv_results_["params"][search.best_index_]
    assert search.best_params_["C"] == search.best_estimator_.C
    assert search.score(ROWS, LABELS) == search.best_estimator_.score(ROWS, LABELS)
    assert (pickle.loads(pickle.dumps(search)).predict(ROWS) == search.predict(ROWS)).all()


def test_a_seed_and_a_concurrency_give_the_same_points() -> None:
    one, other = searching().fit(ROWS, LABELS), searching(concurrency=2, n_jobs=1).fit(ROWS, LABELS)
    assert one.cv_results_["params"] == other.cv_results_["params"]


def test_an_exhausted_space_ends_the_search() -> None:
    search = searching(tuner="GridSearch", trials=50)
    search.space = {"C": space.choice([1, 2]), "kernel": space.choice(["rbf", "linear"])}
    assert len(search.fit(ROWS, LABELS).cv_results_["params"]) == 4


class TwoProposals(Tuner):
    """Proposes twice."""

    left = 2

    def update_search_space(self, search_space: Any) -> None:
        """Do nothing."""

    def generate_parameters(self, parameter_id: int, **_: Any) -> Any:
        if self.left == 0:
            raise NoMoreTrialError
        self.left -= 1
        return {"C": self.left + 1}

    def receive_trial_result(self, parameter_id: int | None, parameters: Any, value: Any, **_: Any) -> None:
        """Do nothing."""


def test_each_fit_has_a_new_copy_of_the_tuner() -> None:
    search = searching(tuner=TwoProposals(), random_state=None)
    for _ in range(2):
        assert len(search.fit(ROWS, LABELS).search_result_) == 2
    search.tuner.left = 0
    with pytest.raises(Conflict, match="the tuner proposes no parameters"):
        search.fit(ROWS, LABELS)


def test_parameters_that_cannot_be_fitted_are_failed_trials() -> None:
    exceptions = pytest.importorskip("sklearn.exceptions")
    search = searching(tuner="GridSearch", trials=9, concurrency=1)
    search.space = {"C": space.choice([1, -1, 2])}
    with pytest.warns(exceptions.FitFailedWarning, match="no fit succeeded with 1 sets"):
        search.fit(ROWS, LABELS)
    assert sorted(trial.state.value for trial in search.search_result_) == ["FAILED", "SUCCEEDED", "SUCCEEDED"]
    search.space = {"C": space.uniform(-2, -1)}
    with pytest.warns(exceptions.FitFailedWarning), pytest.raises(ValueError, match="All the 3 fits failed"):
        search.fit(ROWS, LABELS)


def test_several_scores_need_the_name_of_one() -> None:
    search = searching(scoring=["accuracy", "recall"], refit="recall").fit(ROWS, LABELS)
    assert search.best_score_ == max(search.cv_results_["mean_test_recall"])
    with pytest.raises(Conflict, match="refit must be the name"):
        searching(scoring=["accuracy", "recall"], refit=False).fit(ROWS, LABELS)
    with pytest.raises(Conflict, match="trials and concurrency must be at least 1, not 0"):
        searching(trials=0).fit(ROWS, LABELS)
