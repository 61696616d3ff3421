"""CPython's own JSON, and the fallback to `json`, on every Python of this machine that workers may have."""

from __future__ import annotations

import ast
import json
import math
import subprocess
import sys
from pathlib import Path

import pytest

import nnilite._cpython as cpython
from nnilite._keeper import bootstrap_source
from pythons import python_of

VERSIONS = [f"3.{minor}" for minor in range(8, 16)]
VALUES = [None, True, 1, -0.5, 1e300, math.inf, '\u00fc\ud800"\n', [], {}, {"a": [{}, [], {"b": math.inf}]}, {1: 2}]
# The module's own path and a text are the arguments. Prints whether the parts in C are used, and the text once more.
TWICE = """
import sys; sys.path[:0] = [sys.argv[1]]
import _cpython
print(_cpython._is_proven())
print(_cpython.dumps(_cpython.loads(sys.argv[2])))
print("json" in sys.modules, "hashlib" in sys.modules or not _cpython.sha256(b"a").hexdigest().startswith("ca978112"))
"""
ANOTHER_KIND = """
import sys, types; sys.path[:0] = [sys.argv[1]]
import _cpython
exec({source!r}, sys.modules.setdefault("_json", types.ModuleType("_json")).__dict__)
_cpython._is_proven()
del sys.modules["_json"]  # `json` needs the real one
"""
OF_ANOTHER_KIND = {
    "nothing": "",
    "a reader that takes more": "from json.decoder import c_scanstring\ndef make_scanner(): pass",
    "a reader that finds something else": "def make_scanner(options): return lambda text, at: ({}, len(text))",
    "a reader that returns something else": "def make_scanner(options): return lambda text, at: {}",
}


@pytest.fixture
def unproven(monkeypatch):
    monkeypatch.setattr(cpython, "_proven", [])


@pytest.fixture(params=VERSIONS)
def python(request):
    return python_of(request.param) or pytest.skip(f"there is no Python {request.param} on this machine")


def alone(python, program, *arguments):
    """Run a program that finds the module without its package, in which other modules need a newer Python."""
    run = [python, "-I", "-S", "-c", program, str(Path(cpython.__file__).parent), *arguments]
    return subprocess.run(run, capture_output=True, text=True, timeout=60, check=False)


def test_this_python_has_the_parts_in_c_that_are_known(unproven):
    assert cpython._is_proven() or sys.implementation.name != "cpython"


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("proven", [True, False])
def test_json_is_what_the_json_module_makes_of_it(monkeypatch, value, proven):
    monkeypatch.setattr(cpython, "_proven", [proven])
    assert cpython.dumps(value) == json.dumps(value)
    assert cpython.loads(f" {json.dumps(value)}\n") == json.loads(json.dumps(value))


@pytest.mark.parametrize("proven", [True, False])
def test_what_json_does_not_know_is_converted_or_refused(monkeypatch, proven):
    monkeypatch.setattr(cpython, "_proven", [proven])
    assert cpython.dumps([{1}], default=sorted) == "[[1]]"
    with pytest.raises(TypeError, match="set is not a value of JSON"):
        cpython.dumps({1})


@pytest.mark.process
@pytest.mark.parametrize("text", ["{", "", "{}x", "[", "-", "nan", '{"a" 1}', "[1,]", "'a'"])
def test_what_is_no_json_is_a_value_error_though_json_was_never_loaded(python, text):
    assert alone(python, TWICE, text).stderr.splitlines()[-1].startswith("json.decoder.JSONDecodeError: ")


@pytest.mark.process
def test_each_python_reads_and_writes_json_and_hashes_without_the_dear_modules(python):
    text = json.dumps([value for value in VALUES if value != {1: 2}])
    assert alone(python, TWICE, text).stdout.splitlines() == ["True", text, "False False"]


@pytest.mark.process
@pytest.mark.parametrize("source", OF_ANOTHER_KIND.values(), ids=OF_ANOTHER_KIND)
def test_a_python_with_parts_of_another_kind_uses_json(python, source):
    program = ANOTHER_KIND.format(source=source) + TWICE
    done = alone(python, program, '{"a": [1.5, "\\u00fc"]}')
    assert done.stdout.splitlines() == ["False", '{"a": [1.5, "\\u00fc"]}', "True False"], done.stderr


def test_the_bootstrap_defines_each_name_once():
    tree = ast.parse(bootstrap_source())
    names = [node.name for node in tree.body if isinstance(node, (ast.FunctionDef, ast.ClassDef))]
    assert {"loads", "sha256", "main"} <= set(names)
    assert len(set(names)) == len(names)


def test_private_modules_of_cpython_are_imported_nowhere_else():
    private = ("_json", "_sha2", "_sha256", "_signal", "_frozen_importlib_external")
    package = Path(cpython.__file__).parent
    lines = ((path, line.split()) for path in package.rglob("*.py") for line in path.read_text("utf-8").splitlines())
    found = {path.name for path, words in lines if words[:1] in (["import"], ["from"]) and words[1] in private}
    assert found == {"_cpython.py"}
