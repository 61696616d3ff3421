"""The own `dataclass`: what it makes behaves as what Python's makes."""

from __future__ import annotations

import ast
import copy
import dataclasses
import inspect
import pickle
from collections.abc import Callable
from dataclasses import FrozenInstanceError, field
from pathlib import Path
from typing import Any, ClassVar

import pytest

from nnilite import data_classes

ROOT = Path(__file__).resolve().parents[2]
WORKERS = ("nnilite/_keeper", "nnilite/_sdk", "nnilite/_nni_shim")  # their Python may be older
BOTH = pytest.mark.parametrize("dataclass", [data_classes.dataclass, dataclasses.dataclass], ids=["own", "python"])
Maker = Callable[..., Any]


def make_point(dataclass: Maker) -> Any:
    @dataclass(frozen=True)
    class Point:
        x: float
        y: float = 0.0
        names: list[str] = field(default_factory=list, compare=False)
        hidden: str = field(default="", repr=False)
        count: ClassVar[int] = 3
        fixed: int = field(default=7, init=False)

        @property
        def sum(self) -> float:
            return self.x + self.y

    return Point


@data_classes.dataclass(frozen=True)
class Kept:
    """At the top of a module, for pickle."""

    x: int
    y: tuple[int, ...] = ()


@BOTH
def test_an_object_has_its_fields(dataclass: Maker) -> None:
    point = make_point(dataclass)(1, names=["a"])
    assert (point.x, point.y, point.names, point.hidden, point.fixed, point.sum) == (1, 0.0, ["a"], "", 7, 1.0)
    assert repr(point).endswith("Point(x=1, y=0.0, names=['a'], fixed=7)")
    assert dataclasses.asdict(point) == {"x": 1, "y": 0.0, "names": ["a"], "hidden": "", "fixed": 7}
    assert type(point).__match_args__ == ("x", "y", "names", "hidden")


@BOTH
def test_a_default_factory_makes_a_value_for_each_object(dataclass: Maker) -> None:
    kind = make_point(dataclass)
    assert kind(1).names is not kind(1).names


@BOTH
@pytest.mark.parametrize("words", [((), {}), ((1,), {"z": 2}), ((1, 2, [], "", 7), {}), ((1,), {"x": 2})])
def test_wrong_arguments_are_refused(dataclass: Maker, words: tuple[tuple[Any, ...], dict[str, Any]]) -> None:
    kind = make_point(dataclass)
    for _ in range(2):  # the first object is made in another way
        with pytest.raises(TypeError, match=r"Point.__init__\(\)"):
            kind(*words[0], **words[1])


@BOTH
def test_equal_fields_make_equal_objects_with_equal_hashes(dataclass: Maker) -> None:
    kind, other = make_point(dataclass), make_point(dataclass)
    assert kind(1, 2) == kind(1, 2.0, ["not compared"])
    assert hash(kind(1, 2)) == hash(kind(1, 2.0))
    assert kind(1, 2) != kind(1, 3)
    assert kind(1) != other(1)
    assert kind(1).__eq__(1) is NotImplemented
    nan = float("nan")
    assert hash(kind(nan)) == hash(kind(nan))


@BOTH
def test_one_field_or_none_can_be_compared(dataclass: Maker) -> None:
    @dataclass(frozen=True)
    class One:
        x: int

    @dataclass
    class Nothing:
        pass

    assert One(1) == One(1) != One(2)
    assert hash(One(1)) == hash((1,))
    assert Nothing() == Nothing()
    assert repr(Nothing()).endswith("Nothing()")


@BOTH
def test_a_frozen_object_cannot_be_changed(dataclass: Maker) -> None:
    point = make_point(dataclass)(1)
    for name in ("x", "new"):
        with pytest.raises(FrozenInstanceError, match="cannot assign to field"):
            setattr(point, name, 2)
    with pytest.raises(FrozenInstanceError, match="cannot delete field 'x'"):
        del point.x
    assert point.x == 1


@BOTH
def test_an_object_that_can_be_changed_has_no_hash(dataclass: Maker) -> None:
    @dataclass
    class Open:
        x: int = 0

    one = Open()
    one.x = 2
    assert one == Open(2)
    with pytest.raises(TypeError, match="unhashable"):
        hash(one)


@BOTH
def test_without_eq_an_object_equals_itself_alone(dataclass: Maker) -> None:
    @dataclass(frozen=True, eq=False)
    class One:
        x: int

    one = One(1)
    assert one == one != One(1)
    assert hash(one) != hash(One(1))


@BOTH
def test_fields_by_keyword_alone_come_in_any_order(dataclass: Maker) -> None:
    @dataclass(frozen=True, kw_only=True)
    class Named:
        x: int = 1
        y: int

    assert (Named(y=2).x, Named(y=2, x=3).x) == (1, 3)
    with pytest.raises(TypeError):
        Named(2)  # type: ignore[call-arg]


@BOTH
def test_post_init_sees_the_fields(dataclass: Maker) -> None:
    @dataclass
    class Doubled:
        x: int
        twice: int = field(init=False)

        def __post_init__(self) -> None:
            self.twice = 2 * self.x

    assert Doubled(3).twice == 6


@BOTH
def test_methods_of_the_class_itself_are_kept(dataclass: Maker) -> None:
    @dataclass
    class Own:
        x: int

        def __repr__(self) -> str:
            return "mine"

    assert repr(Own(1)) == "mine"
    assert Own(1) == Own(1)


@BOTH
@pytest.mark.parametrize("derive", [data_classes.dataclass, dataclasses.dataclass], ids=["own", "python"])
def test_a_frozen_class_can_be_derived(dataclass: Maker, derive: Maker) -> None:
    base: Any = make_point(dataclass)

    @derive(frozen=True)
    class Deep(base):  # type: ignore[misc]
        z: int = 5

    deep = Deep(1, z=6)
    assert (deep.x, deep.z, deep.sum) == (1, 6, 1.0)
    assert deep == Deep(1, z=6) != Deep(1)
    assert deep != base(1)
    with pytest.raises(FrozenInstanceError):
        deep.z = 3
    with pytest.raises(TypeError, match="cannot inherit non-frozen"):
        derive(type("Open", (base,), {}))


@BOTH
def test_a_class_that_is_derived_without_fields_can_be_made(dataclass: Maker) -> None:
    base: Any = make_point(dataclass)

    class Named(base):  # type: ignore[misc]
        def __init__(self, name: str) -> None:
            super().__init__(1)
            object.__setattr__(self, "name", name)

    assert (Named("a").x, Named("a").name) == (1, "a")
    assert base(2).x == 2


@BOTH
def test_a_text_of_an_object_that_holds_itself_ends(dataclass: Maker) -> None:
    @dataclass
    class Holder:
        inner: Any = None

    one = Holder()
    one.inner = one
    assert repr(one).endswith("Holder(inner=...)")


def test_copies_are_equal() -> None:
    kept = Kept(1, (2,))
    assert pickle.loads(pickle.dumps(kept)) == kept
    assert copy.deepcopy(kept) == kept == dataclasses.replace(kept, x=1)
    assert dataclasses.replace(kept, y=()) == Kept(1)


@BOTH
def test_the_signature_is_known_once_there_is_an_object(dataclass: Maker) -> None:
    kind = make_point(dataclass)
    kind(1)
    assert list(inspect.signature(kind).parameters) == ["x", "y", "names", "hidden"]


def test_other_options_are_left_to_python() -> None:
    @data_classes.dataclass(order=True)
    class Ordered:
        x: int

    assert Ordered(1) < Ordered(2)


def test_no_module_takes_pythons_own() -> None:
    found = {
        str(path.relative_to(ROOT))
        for folder in ("nnilite", "training_services", "tuners")
        for path in (ROOT / folder).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_bytes()))
        if isinstance(node, ast.ImportFrom) and node.module == "dataclasses"
        if {"dataclass", "InitVar", "KW_ONLY"} & {name.name for name in node.names}
    }
    found.discard("nnilite/data_classes/__init__.py")
    assert not {one for one in found if not one.startswith(WORKERS)}, "take `dataclass` from nnilite.data_classes"
