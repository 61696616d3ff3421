"""How each model of `model_tables` is trained: parameters and halves of data in, answers to the other half out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

from benchmarks.model_data import NAMES, Split

if TYPE_CHECKING:
    import numpy as np

Parameters = dict[str, Any]
Parts = tuple["np.ndarray", "np.ndarray"]  # of what is trained on, and of what is not
MOST_ROUNDS = 20_000  # of a solver that does not end


@cache
def scaled(split: Split, scaling: str) -> Parts:
    from sklearn import preprocessing

    makers: dict[str, Callable[[], Any]] = {
        "none": lambda: preprocessing.FunctionTransformer(),
        "standard": preprocessing.StandardScaler,
        "minmax": preprocessing.MinMaxScaler,
        "robust": preprocessing.RobustScaler,
    }
    maker = makers[scaling]().fit(split.x)
    return maker.transform(split.x), maker.transform(split.test_x)


@lru_cache(maxsize=256)
def reduced(split: Split, scaling: str, components: int) -> Parts:
    """Return the first principal components."""
    from sklearn.decomposition import PCA

    x, test_x = scaled(split, scaling)
    maker = PCA(components, svd_solver="full").fit(x)
    return maker.transform(x), maker.transform(test_x)


def train_svm(p: Parameters, split: Split, stages: list[int]) -> Iterator[np.ndarray]:
    from sklearn.svm import SVC, SVR

    x, test_x = scaled(split, p.get("scaling", "standard"))
    settings = {"C": p["C"], "gamma": p["gamma"], "kernel": p.get("kernel", "rbf"), "max_iter": MOST_ROUNDS}
    model = SVR(**settings, epsilon=p["epsilon"]) if split.numbers else SVC(**settings)
    yield model.fit(x, split.y).predict(test_x)


def train_knn(p: Parameters, split: Split, stages: list[int]) -> Iterator[np.ndarray]:
    from sklearn.neighbors import KNeighborsClassifier

    x, test_x = reduced(split, p.get("scaling", "none"), p["components"])
    metric = p.get("metric") or ("manhattan", "euclidean")[p["norm"] - 1]
    fading = p.get("fading", 0)
    model = KNeighborsClassifier(
        p["neighbours"],
        metric=metric,
        weights=p.get("weights") or (lambda distances: (distances + 1e-9) ** -float(fading)),
        algorithm="brute",
    )
    yield model.fit(x, split.y).predict(test_x)


def train_forest(p: Parameters, split: Split, stages: list[int]) -> Iterator[np.ndarray]:
    """Train forests of growing size: a larger one contains the trees of a smaller one."""
    import numpy as np
    from sklearn.ensemble import ExtraTreesRegressor, RandomForestClassifier, RandomForestRegressor

    settings = {"max_depth": p["depth"], "min_samples_leaf": p["leaf"], "max_features": p["features"]}
    kinds = {"random": ExtraTreesRegressor, "best": RandomForestRegressor}
    kind = kinds[p["splits"]] if split.numbers else RandomForestClassifier
    model = kind(stages[-1], **settings, bootstrap=True, max_samples=p.get("share"), random_state=0)
    model.fit(split.x, split.y)
    test_x = split.test_x.astype(np.float32)
    answers = [tree.predict(test_x) if split.numbers else tree.predict_proba(test_x) for tree in model.estimators_]
    for count in stages:
        mean = np.mean(answers[:count], axis=0)
        yield mean if split.numbers else model.classes_[mean.argmax(axis=1)]


def train_boosting(p: Parameters, split: Split, stages: list[int]) -> Iterator[np.ndarray]:
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

    settings = {"learning_rate": p["rate"], "max_leaf_nodes": p["leaves"], "min_samples_leaf": p["leaf"]}
    settings |= {"max_iter": stages[-1], "early_stopping": False, "random_state": 0, "max_bins": 64}
    model = (
        HistGradientBoostingRegressor(**settings, loss=p["loss"])
        if split.numbers
        else HistGradientBoostingClassifier(**settings, l2_regularization=p["l2"])
    )
    for step, answer in enumerate(model.fit(split.x, split.y).staged_predict(split.test_x), 1):
        if step in stages:
            yield answer


def train_sgd(p: Parameters, split: Split, stages: list[int]) -> Iterator[np.ndarray]:
    from sklearn.linear_model import SGDClassifier

    x, test_x = scaled(split, "standard")
    settings = {"loss": p["loss"], "penalty": p["penalty"], "alpha": p["alpha"], "eta0": p["rate"]}
    model = SGDClassifier(**settings, learning_rate=p["schedule"], max_iter=20, tol=None, random_state=0)
    yield model.fit(x, split.y).predict(test_x)


@cache
def raised(split: Split, scaling: str, degree: int) -> Parts:
    """Return products of up to `degree` columns, each with variance 1."""
    from sklearn.preprocessing import PolynomialFeatures, StandardScaler

    x, test_x = scaled(split, scaling)
    maker = PolynomialFeatures(degree, include_bias=False).fit(x)
    x, test_x = maker.transform(x), maker.transform(test_x)
    level = StandardScaler().fit(x)
    return level.transform(x), level.transform(test_x)


def train_elastic(p: Parameters, split: Split, stages: list[int]) -> Iterator[np.ndarray]:
    from sklearn.linear_model import ElasticNet

    x, test_x = raised(split, p["scaling"], p["degree"])
    model = ElasticNet(alpha=p["alpha"], l1_ratio=p["ratio"], max_iter=100, selection="cyclic")
    yield model.fit(x, split.y).predict(test_x)


def train_ridge(p: Parameters, split: Split, stages: list[int]) -> Iterator[np.ndarray]:
    from sklearn.kernel_ridge import KernelRidge

    x, test_x = scaled(split, "standard")
    kernel = p["kernel"]
    more = {"degree": kernel["degree"], "coef0": kernel["shift"]} if kernel["_name"] == "poly" else {}
    model = KernelRidge(alpha=p["alpha"], kernel=kernel["_name"], gamma=kernel["gamma"], **more)
    yield model.fit(x, split.y).predict(test_x)


def train_mlp(p: Parameters, split: Split, stages: list[int]) -> Iterator[np.ndarray]:
    """Train a network; a stage is an epoch."""
    from sklearn.neural_network import MLPRegressor

    x, test_x = scaled(split, "standard")
    settings = {"learning_rate_init": p["rate"], "momentum": p["momentum"], "batch_size": 32}
    model = MLPRegressor(hidden_layer_sizes=(p["width"],) * p["layers"], solver="sgd", **settings, random_state=0)
    for epoch in range(1, stages[-1] + 1):
        model.partial_fit(x, split.y)
        if epoch in stages:
            yield model.predict(test_x)


def train_pipeline(p: Parameters, split: Split, stages: list[int]) -> Iterator[np.ndarray]:
    if split.key[0] in NAMES:
        x, test_x = _encoded(split, p["encoding"], p["kept"])
    else:
        reduction = p["reduction"]
        x, test_x = _prepared(split, p["scaling"], reduction["_name"], reduction.get("count", 0))
    yield _make_model(p["model"]).fit(x, split.y).predict(test_x)


@cache
def _encoded(split: Split, encoding: str, kept: int) -> Parts:
    """Return the columns of names that tell the most, as numbers."""
    import numpy as np
    from sklearn import preprocessing
    from sklearn.feature_selection import SelectKBest, mutual_info_classif

    ranks = SelectKBest(lambda x, y: mutual_info_classif(x, y, discrete_features=True), k=kept).fit(split.x, split.y)
    x, test_x = ranks.transform(split.x), ranks.transform(split.test_x)
    if encoding == "frequency":
        shares = [dict(zip(*np.unique(column, return_counts=True), strict=True)) for column in x.T]
        counted = [
            np.array([[share.get(value, 0) / len(x) for value, share in zip(row, shares, strict=True)] for row in part])
            for part in (x, test_x)
        ]
        return counted[0], counted[1]
    makers: dict[str, Callable[[], Any]] = {
        "ordinal": preprocessing.StandardScaler,
        "one-hot": lambda: preprocessing.OneHotEncoder(handle_unknown="ignore", sparse_output=False),
        "target": lambda: preprocessing.TargetEncoder(random_state=0),
    }
    maker = makers[encoding]()
    return maker.fit_transform(x, split.y), maker.transform(test_x)


@cache
def _prepared(split: Split, scaling: str, reduction: str, count: int) -> Parts:
    from sklearn.feature_selection import SelectKBest

    if reduction == "components":
        return reduced(split, scaling, count)
    x, test_x = scaled(split, scaling)
    if reduction == "nothing":
        return x, test_x
    maker = SelectKBest(k=count).fit(x, split.y)
    return maker.transform(x), maker.transform(test_x)


def _make_model(p: Parameters) -> Any:
    from sklearn.linear_model import LogisticRegression
    from sklearn.naive_bayes import GaussianNB
    from sklearn.neighbors import KNeighborsClassifier
    from sklearn.svm import SVC
    from sklearn.tree import DecisionTreeClassifier

    makers: dict[str, Callable[[], Any]] = {
        "svm": lambda: SVC(C=p["C"], gamma=p["gamma"], max_iter=MOST_ROUNDS),
        "neighbours": lambda: KNeighborsClassifier(p["count"], weights=p["weights"]),
        "tree": lambda: DecisionTreeClassifier(max_depth=p["depth"], min_samples_leaf=p["leaf"], random_state=0),
        "logistic": lambda: LogisticRegression(C=p["C"], max_iter=200),
        "bayes": lambda: GaussianNB(var_smoothing=p["smoothing"]),
    }
    return makers[p["_name"]]()


TRAININGS: dict[str, Callable[[Parameters, Split, list[int]], Iterator[np.ndarray]]] = {
    "svm": train_svm,
    "knn": train_knn,
    "forest": train_forest,
    "boosting": train_boosting,
    "sgd": train_sgd,
    "elastic": train_elastic,
    "ridge": train_ridge,
    "mlp": train_mlp,
    "pipeline": train_pipeline,
}
