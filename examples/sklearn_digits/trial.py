"""Train a support vector machine on images of digits and report its accuracy, fold by fold and in the end."""

from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.model_selection import StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.svm import SVC

import nnilite


def main() -> None:
    parameters = {"C": 1.0, "gamma": 0.001, "kernel": "rbf", "degree": 3, "components": 32}
    parameters.update(nnilite.get_next_parameter())  # {} when run by hand, without a search
    components = int(parameters.pop("components"))
    images, labels = load_digits(return_X_y=True)
    images = images / 16.0 * 8.0
    scores = []
    for train, test in StratifiedKFold(5, shuffle=True, random_state=0).split(images, labels):
        model = make_pipeline(PCA(components, random_state=0), SVC(**parameters))
        model.fit(images[train], labels[train])
        scores.append(model.score(images[test], labels[test]))
        nnilite.report_intermediate_result(sum(scores) / len(scores))
    nnilite.report_final_result(sum(scores) / len(scores))


if __name__ == "__main__":
    main()
