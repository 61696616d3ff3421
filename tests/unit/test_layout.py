"""The layout of the sources: packages that say what is in them, and classes that can be taken in at a glance."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from nnilite._cli.nnictl import COMMANDS

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ("nnilite", "training_services", "tuners")
PACKAGES = sorted(path.parent for source in SOURCES for path in (ROOT / source).rglob("__init__.py"))
METHODS_MAX = 25
FLAT_MAX = 15
INTERFACES = {
    "TrainingService",
    "BatchService",
    "JobWatch",
    "Tuner",
    "Assessor",
}  # what plugins implement: a method counts in the class that has it
BY_NATURE = {
    "nnilite/experiment.py:Experiment": "NNI's class, method by method, which programs of NNI's users call",
    "nnilite/testing/service_contract.py:ServiceContract": "each method is a test",
}
WITH_BASES = {
    "nnilite/_running/manager_client.py:Client": "a method for each request; its base has the connection",
    "nnilite/testing/bench.py:ServiceBench": "what a test of a plugin may do with its service",
    "tuners/nnilite_basic/_pbt.py:PBTTuner": "a tuner with the hooks of LearningTuner, a public base class",
    "tuners/nnilite_optuna/_cmaes.py:CMAESTuner": "as PBTTuner",
    "tuners/nnilite_optuna/_study.py:OptunaTuner": "as PBTTuner",
    "tuners/nnilite_sklearn/_surrogate.py:SurrogateTuner": "as PBTTuner",
}
"""Classes that have more than 25 methods with those of their bases in this repository, and so have their subclasses."""


def test_modules_lie_in_rooms_by_subject() -> None:
    flat = [path.stem for path in (ROOT / "nnilite").glob("*.py") if not path.stem.startswith("__")]
    assert len(flat) <= FLAT_MAX, f"give what belongs to one subject a package: {sorted(flat)}"


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_package_says_what_each_of_its_modules_is(package: Path) -> None:
    docstring = ast.get_docstring(ast.parse((package / "__init__.py").read_text())) or ""
    listed = {
        word for words in re.findall(r"^ *([\w, ]+?)  +\S", docstring, re.MULTILINE) for word in words.split(", ")
    }
    missing = sorted(name for name in modules_of(package) if name not in listed)
    assert not missing, f"the docstring of {package.name} has no line for: {', '.join(missing)}"


def modules_of(package: Path) -> Iterator[str]:
    for path in package.iterdir():
        if path.suffix == ".py" and path.stem not in ("__init__", "__main__"):
            yield path.stem
        elif (path / "__init__.py").exists():
            yield path.name


def test_classes_have_at_most_25_methods() -> None:
    sizes = dict(classes())
    allowed = {name: sizes[name] for name in BY_NATURE}
    too_large = {name: size for name, size in sizes.items() if size > allowed.get(name, METHODS_MAX)}
    assert not too_large, f"split these along what they do: {too_large}"


def test_classes_have_at_most_25_methods_with_those_of_their_bases() -> None:
    excused = {name.partition(":")[2] for name in {**BY_NATURE, **WITH_BASES}}
    too_large = {
        name: len(methods)
        for name, methods in with_bases()
        if len(methods) > METHODS_MAX and not excused & {name.partition(":")[2], *ancestors(name.partition(":")[2])}
    }
    assert not too_large, f"make parts of these, which they have and do not inherit: {too_large}"


def test_no_class_is_excused_without_need() -> None:
    sizes, whole = dict(classes()), {name: len(methods) for name, methods in with_bases()}
    needless = [name for name in BY_NATURE if sizes.get(name, 0) <= METHODS_MAX]
    needless += [name for name in WITH_BASES if whole.get(name, 0) <= METHODS_MAX]
    assert not needless, f"take these off the lists above: {needless}"


@cache
def definitions() -> dict[str, tuple[str, frozenset[str], tuple[str, ...]]]:
    """The file, the methods and the bases of each class by its name, of which there is one (see below)."""
    found = {}
    for file, one in classes_of_files():
        found[one.name] = (file, frozenset(one.methods), one.bases)
    return found


def ancestors(name: str) -> set[str]:
    """The bases of a class that stand in this repository, and theirs."""
    known = definitions()
    bases = {base for base in known[name][2] if base in known and base != name}
    return bases.union(*map(ancestors, bases))


def with_bases() -> Iterator[tuple[str, set[str]]]:
    """All classes, as file:name, with the methods that they have or inherit, but for those of `INTERFACES`."""
    known = definitions()
    for name, (file, methods, _) in known.items():
        yield f"{file}:{name}", methods.union(*(known[one][1] for one in ancestors(name) - INTERFACES))


def classes() -> Iterator[tuple[str, int]]:
    """All classes, as file:name, with the number of their methods."""
    for file, one in classes_of_files():
        yield f"{file}:{one.name}", len(one.methods)


def test_a_private_name_of_a_module_is_used_in_it() -> None:
    unused = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in (path for source in SOURCES for path in (ROOT / source).rglob("*.py"))
        for name in module_at(path).private_names
        if len(re.findall(rf"\b{name}\b", path.read_text())) == 1
    ]
    assert not unused, f"remove these, or use them: {unused}"


def private_names(module: ast.Module) -> Iterator[str]:
    """The names with one underscore that the statements of a module itself make."""
    for node in module.body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names = [node.name]
        else:
            stored = (one for one in ast.walk(node) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store))
            names = [one.id for one in stored] if isinstance(node, (ast.Assign, ast.AnnAssign)) else []
        yield from (name for name in names if re.fullmatch(r"_[A-Za-z0-9]\w*", name))


def classes_of_files() -> Iterator[tuple[str, ClassFacts]]:
    for path in (path for source in SOURCES for path in (ROOT / source).rglob("*.py")):
        yield from ((str(path.relative_to(ROOT)), one) for one in module_at(path).classes)


class ClassFacts(NamedTuple):
    name: str
    methods: tuple[str, ...]
    bases: tuple[str, ...]


class ModuleFacts(NamedTuple):
    classes: tuple[ClassFacts, ...]
    functions: tuple[str, ...]
    private_names: tuple[str, ...]
    imports: tuple[tuple[str, str], ...]


@cache
def module_at(path: Path) -> ModuleFacts:
    """What these tests ask of a file. Its tree is not kept: garbage is looked for in all trees again and again."""
    tree = ast.parse(path.read_text())
    nodes = list(ast.walk(tree))
    return ModuleFacts(
        classes=tuple(class_at(node) for node in nodes if isinstance(node, ast.ClassDef)),
        functions=functions_in(tree.body),
        private_names=tuple(private_names(tree)),
        imports=tuple(
            (str(node.module), alias.name) for node in nodes if isinstance(node, ast.ImportFrom) for alias in node.names
        ),
    )


def class_at(node: ast.ClassDef) -> ClassFacts:
    bases = [base.value if isinstance(base, ast.Subscript) else base for base in node.bases]
    words = [base.attr if isinstance(base, ast.Attribute) else getattr(base, "id", "") for base in bases]
    return ClassFacts(node.name, functions_in(node.body), tuple(words))


def functions_in(body: list[ast.stmt]) -> tuple[str, ...]:
    return tuple(one.name for one in body if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef)))


PARTS_OF_PLUGINS = {"api", "checks", "config", "convert", "delivery", "log", "service", "start", "status", "watch"}
PARTS_ON_WORKERS = {"attempt", "checkpoints", "gpus"}
IN_THE_CORE = {
    "nnilite/services/delivery.py": "what every `_delivery` of a plugin begins with",
    "nnilite/service.py": "what every `_service` of a plugin implements",
    "nnilite/ssh/errors.py": "the errors of that package, as `nnilite/errors.py` has those of all",
}


def test_a_class_has_a_name_of_its_own() -> None:
    places: dict[str, set[str]] = {}
    for name, _ in classes():
        file, _, word = name.partition(":")
        places.setdefault(word.lstrip("_"), set()).add(file)
    shared = {word: sorted(files) for word, files in places.items() if len(files) > 1}
    assert not shared, f"one word stands for several things: {shared}"


def test_a_module_has_a_name_of_its_own_unless_it_is_the_same_part_of_another_plugin() -> None:
    places: dict[str, set[str]] = {}
    for package in PACKAGES:
        for path in (path for path in package.glob("*.py") if not is_called_by_others(path)):
            places.setdefault(path.stem.lstrip("_"), set()).add(str(path.relative_to(ROOT)))
    shared = {word: files for word, files in places.items() if len(files) > 1 and not is_one_part(word, files)}
    assert not shared, f"one word stands for several things: {shared}"


def test_a_variable_says_what_it_holds() -> None:
    """`told` may be a message, settings, a count or a reason, and each of these has a word."""
    named = re.compile(r"\b(?:told|untold|said)\b(?= = | := |\[|\.\w)")
    paths = (path for source in SOURCES for path in (ROOT / source).rglob("*.py"))
    found = [f"{path.relative_to(ROOT)}: {one[0]}" for path in paths for one in named.finditer(path.read_text())]
    assert not found, f"give these the names of what they hold: {found}"


PUBLIC_TWINS = {
    "environment": "both are documented for plugins, each in a module that says of what",
    "front": "`nnilite.plot.front` draws what `nnilite.tuning.objectives.front` finds; both are documented",
}


def test_a_function_that_crosses_modules_of_the_core_has_a_name_of_its_own() -> None:
    """Functions count that are imported by their bare names; `spec.load` and `config.load` say what they load."""
    modules = {dotted_name(path): module_at(path) for path in (ROOT / "nnilite").rglob("*.py")}
    own = {(name, function) for name, module in modules.items() for function in module.functions}
    places: dict[str, set[str]] = {}
    for source, name in (found for module in modules.values() for found in module.imports if found in own):
        places.setdefault(name, set()).add(source)
    assert len(places) > 100
    shared = {name: found for name, found in places.items() if len(found) > 1 and name not in PUBLIC_TWINS}
    assert not shared, f"one word stands for several things: {shared}"


def dotted_name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def is_called_by_others(path: Path) -> bool:
    """Whether its name is prescribed: by Python, by NNI, by the command of nnictl that it is, or by what it is of."""
    if str(path.relative_to(ROOT)) in IN_THE_CORE:
        return True
    return (
        path.stem.startswith("__")
        or {"_nni_shim", "_nni_modules"} & set(path.parts)
        or (path.parent.name == "_cli" and path.stem in COMMANDS)
    )


def is_one_part(word: str, files: set[str]) -> bool:
    return word in PARTS_OF_PLUGINS | PARTS_ON_WORKERS and all(file.startswith("training_services/") for file in files)
