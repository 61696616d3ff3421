"""The page of an experiment with three objectives, in a real browser: all their pairs, and how the front has grown."""

from __future__ import annotations

import csv
import itertools
import math
import random
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from nnilite import Search
from nnilite._experiments import registry
from nnilite._running import launch
from nnilite._running.manager_client import Client
from nnilite.testing import eventually
from nnilite.tuning.objectives import front, gains, signs
from platforms.chromium import faults
from processes import send_signal

pytestmark = [pytest.mark.real, pytest.mark.timeout(240)]

OBJECTIVES = {"accuracy": "maximize", "size": "minimize", "latency": "minimize"}
SPACE = {
    "width": {"_type": "randint", "_value": [8, 257]},
    "depth": {"_type": "choice", "_value": [1, 2, 4, 8]},
    "share": {"_type": "uniform", "_value": [0, 1]},
}
TRIALS = 25


def train(parameters: dict[str, Any]) -> dict[str, float]:
    size = parameters["width"] * parameters["depth"] * (1 - 0.6 * parameters["share"])
    accuracy = 1 - 1 / (1 + size / 100) - 0.1 * parameters["share"]
    return {"accuracy": accuracy, "size": size, "latency": parameters["depth"] * 1.5 + parameters["width"] / 64}


@pytest.fixture(scope="module")
def experiment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Client]]:
    """The address of a search of 25 trials that is done, and a client of it."""
    folder = tmp_path_factory.mktemp("three goals")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NNILITE_HOME", str(folder / "home"))
        search = Search(SPACE, "NSGA2", optimize=OBJECTIVES, seed=1, storage=folder / "goals")
        search.run(train, trials=TRIALS, progress=False)
        entry = launch.view(registry.find("goals"), options=launch.ManagerOptions(port=0), detach=False)
        with Client(entry.url or "", launch.token(entry)) as client:
            yield entry.url or "", client
        send_signal(entry.pid, signal.SIGTERM)  # a viewer of a search has no other end
        eventually(lambda: not registry.is_alive(entry.directory))


def table(page: Any, title: str) -> list[dict[str, str]]:
    """The rows that the button CSV of a chart saves."""
    with page.expect_download() as download:
        page.get_by_role("region", name=title, exact=True).get_by_role("button", name="CSV").click()
    with Path(download.value.path()).open(newline="") as file:
        return list(csv.DictReader(file))


def hypervolume(points: Sequence[Sequence[float]], reference: Sequence[float]) -> float:
    """The volume by the cells of the grid that all coordinates make: slow, and in another way than the page's."""
    sides = [sorted({low, *column}) for low, column in zip(reference, zip(*points, strict=True), strict=True)]
    cells = itertools.product(*(itertools.pairwise(side) for side in sides))
    return sum(
        math.prod(high - low for low, high in cell)
        for cell in cells
        if any(all(one >= high for one, (_, high) in zip(point, cell, strict=True)) for point in points)
    )


def test_the_hypervolume_is_that_of_the_exported_trials(look: Any, experiment: Any) -> None:
    url, client = experiment
    page = look(f"{url}/#/charts/pareto")
    page.get_by_role("region", name="Hypervolume", exact=True).locator(".chart[data-ready]").wait_for()
    rows = table(page, "Hypervolume")
    trials = sorted(client.trials(states=["SUCCEEDED"]), key=lambda one: (one["ended"], one["sequence"]))
    assert [row["trial"] for row in rows] == [trial["id"] for trial in trials]
    assert len(rows) == TRIALS
    points = [gains(trial["value"], signs(OBJECTIVES)) or () for trial in trials]
    reference = [min(column) for column in zip(*points, strict=True)]
    expected = [hypervolume(points[: place + 1], reference) for place in range(TRIALS)]
    assert [float(row["hypervolume"]) for row in rows] == pytest.approx(expected, rel=1e-9)
    assert len(set(expected)) > 5


def test_each_pair_of_objectives_is_drawn_with_the_front_of_all(look: Any, experiment: Any) -> None:
    url, client = experiment
    best = {one["id"] for one in front(((one, one["value"]) for one in client.trials()), signs(OBJECTIVES))}
    page = look(f"{url}/#/charts/pareto")
    page.locator(".chart[data-ready]").nth(3).wait_for()
    for x, y in (("accuracy", "size"), ("accuracy", "latency"), ("size", "latency")):
        rows = table(page, f"{x} and {y}")
        assert {row["trial"] for row in rows if row["on the front"] == "true"} == best
        drawn = {(row["trial"], float(row[x]), float(row[y])) for row in rows}
        assert drawn == {(one["id"], one["value"][x], one["value"][y]) for one in client.trials()}


def test_a_front_that_the_search_is_not_for_has_no_hypervolume(look: Any, experiment: Any) -> None:
    page = look(f"{experiment[0]}/#/charts/pareto")
    curve = page.get_by_role("region", name="Hypervolume", exact=True)
    curve.wait_for()
    page.get_by_label("Goal of x").select_option("minimize")
    curve.wait_for(state="detached")
    assert page.locator(".chart").count() == 1
    page.get_by_label("Goal of x").select_option("maximize")
    curve.wait_for()


@pytest.mark.parametrize("size", [2, 3, 4])
def test_volumes_of_points_in_any_order_are_exact(look: Any, experiment: Any, size: int) -> None:
    """Equal points, points outside of the reference, and many that share a coordinate."""
    luck = random.Random(size)
    points = [[luck.randrange(7) for _ in range(size)] for _ in range(20)]
    points += points[:3]
    reference = [1] * size
    inside = [point for point in points if min(point) > 1]
    assert 3 < len(inside) < len(points)
    page = look(f"{experiment[0]}/")
    growth = "(file) => import(new URL(file, document.baseURI)).then((it) => it.growth)"
    asked = f"([file, points, low]) => ({growth})(file).then((found) => found(points, low))"
    found = page.evaluate(asked, ["lib/hypervolume.js", points, reference])
    for place, volume in enumerate(found):
        kept = [point for point in points[: place + 1] if min(point) > 1]
        assert volume == (hypervolume(kept, reference) if kept else 0)


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 400)])
def test_the_charts_fit_and_axe_finds_nothing(look: Any, experiment: Any, scheme: str, width: int) -> None:
    page = look(f"{experiment[0]}/#/charts/pareto", color_scheme=scheme, viewport={"width": width, "height": 850})
    page.locator(".chart[data-ready]").nth(3).wait_for()
    # The banner of an experiment that is viewed lies outside of the page's landmarks.
    assert [fault for fault in faults(page) if 'class="banner"' not in fault] == []
    eventually(lambda: page.evaluate("document.documentElement.scrollWidth <= innerWidth"))
