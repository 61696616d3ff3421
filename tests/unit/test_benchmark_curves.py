"""The fitted exponent and the picture of a benchmark's curve."""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks import curves

SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize("power", [0.0, 1.0, 1.5, 2.0])
def test_the_exponent_of_a_power_is_found(power: float) -> None:
    points = [(size, 3 * size**power) for size in (10.0, 100.0, 5000.0)]
    assert curves.Curve("a", "trials", "s", points).exponent == pytest.approx(power)


def test_one_size_has_no_exponent() -> None:
    with pytest.raises(ValueError, match="two sizes"):
        _ = curves.Curve("a", "trials", "s", [(10, 1), (10, 2)]).exponent


def test_points_are_where_they_should_be() -> None:
    picture = curves.svg(curves.Curve("a < b", "trials", "s", [(100, 1), (10, 0.1), (1000, 10)]))
    root = ElementTree.fromstring(picture)
    places = [(float(one.attrib["cx"]), float(one.attrib["cy"])) for one in root.iter(f"{SVG}circle")]
    left, right, low = curves.LEFT, curves.WIDTH - curves.RIGHT, curves.HEIGHT - curves.BOTTOM
    corners = [(left, low), ((left + right) / 2, (low + curves.TOP) / 2), (right, curves.TOP)]
    assert places == [pytest.approx(corner) for corner in corners]
    words = {one.text for one in root.iter(f"{SVG}text")}
    assert {"trials", "s", "a < b: exponent 1.00", "10", "1000", "0.1"} <= words
    assert len(picture) < 30_000


def test_equal_values_can_be_drawn() -> None:
    picture = curves.svg(curves.Curve("a", "trials", "s", [(10, 1), (100, 1)]))
    assert len(list(ElementTree.fromstring(picture).iter(f"{SVG}circle"))) == 2


SMALL = {
    "packing": (2, 8),
    "proposals": (2, 8),
    "startup": (1, 2),
    # Fewer may have ended on a busy machine before anybody has begun to count what they take.
    "trials": (40, 80),
    "intake": (500, 1000),
    "scale": (2, 4),
    "heartbeats": (5, 20),
}


@pytest.mark.process
@pytest.mark.parametrize(
    "name",
    # The others start managers and trials for some seconds: `make bench`, which is theirs, is no daily run either.
    [pytest.param(name, marks=() if name in ("packing", "proposals") else pytest.mark.long) for name in SMALL],
)
def test_each_curve_is_measured_at_its_sizes(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    module = importlib.import_module(f"benchmarks.{name}")
    monkeypatch.setenv("NNILITE_HOME", str(tmp_path))  # set by the benchmark, and put back in the end
    monkeypatch.setenv("PYTHONPATH", os.environ.get("PYTHONPATH", ""))
    monkeypatch.setattr(module, "SIZES", SMALL[name])
    if name == "startup":
        monkeypatch.setattr(module, "ROUNDS", 2)
    if name == "heartbeats":
        monkeypatch.setattr(module, "EVERY_S", 0.1)
        monkeypatch.setattr(module, "WARM_S", 0.5)
        monkeypatch.setattr(module, "WINDOW_S", 2.0)
    curve = module.curve()
    assert tuple(size for size, _ in curve.points) == SMALL[name]
    assert all(value > 0 for _, value in curve.points)
    if name == "heartbeats":
        assert [load.answers >= load.trials for load in module.measured()] == [True] * 2
