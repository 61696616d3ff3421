"""What a job loads before the start of its trial, which waits for it."""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import io
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import nnilite._keeper as keeper_sources
from keeper_bench import Bench, pythons, zipapp
from nnilite._keeper import BEFORE_START, code_archive
from nnilite.codedir import pack as pack_code
from nnilite.services.bootstrap import Instructions, Supply, command, pack, with_bytecode

pytestmark = pytest.mark.process

# To import any of these takes milliseconds, or tens of them where an image has no bytecode of the standard library.
DEAR = {"base64", "collections", "contextlib", "enum", "functools", "hashlib", "http.client", "json", "re", "selectors"}
DEAR |= {
    "shutil",
    "signal",
    "socket",
    "ssl",
    "subprocess",
    "tarfile",
    "tempfile",
    "threading",
    "typing",
    "urllib.parse",
}
TELL = "import os, sys; os.fork = lambda: (print(*sys.modules), sys.stdout.flush(), os._exit(0))\n"


@pytest.fixture(params=pythons())
def bench(request, tmp_path):
    with Bench(tmp_path, request.param) as bench:
        yield bench


def job(bench, tmp_path, keeper, before=""):
    """Run a job with a small package of code by the bench's Python, as the shell of `services.bootstrap` does."""
    mount = tmp_path / "mount"
    mount.mkdir()
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "value.txt").write_text("12")
    package = pack_code(tmp_path / "code", tmp_path / "packed")
    for name, data in (("keeper", pack(keeper)), ("code", package.archive.read_bytes())):
        (mount / name).write_bytes(data)
    spec = json.loads(bench.spec('[ "$(cat value.txt)" = 12 ]').read_text())
    digest, supply = hashlib.sha256(keeper).hexdigest(), Supply(file="keeper", packed=True)
    instructions = Instructions(spec, supply, digest, Supply(file="code"), package.hash)
    (mount / "spec").write_bytes(instructions.packed())
    loader, *words = command(str(mount), str(tmp_path / "work"))[3:]
    run = [bench.python, "-I", "-S", "-c", before + loader, *words]
    return subprocess.run(run, capture_output=True, text=True, timeout=60, check=False)


def changed(keeper, change):
    """The keeper with the content of some of its files changed."""
    target = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(keeper)) as old, zipfile.ZipFile(target, "w") as new:
        for name in old.namelist():
            new.writestr(name, change(name, old.read(name)))
    return target.getvalue()


def test_a_trial_waits_for_no_module_that_only_its_end_and_its_reports_need(bench, tmp_path):
    done = job(bench, tmp_path, zipapp().read_bytes(), before=TELL)
    loaded = set(done.stdout.split())
    assert "nnilite._keeper.command_start" in loaded, done.stderr
    assert loaded & DEAR == set()
    ours = {name.rpartition(".")[2] for name in loaded if name.startswith("nnilite._keeper.")}
    assert ours <= {*BEFORE_START, "bootstrap_program"}


def test_a_keeper_with_bytecode_runs_a_job_by_any_python(bench, tmp_path):
    done = job(bench, tmp_path, with_bytecode(zipapp().read_bytes()))
    assert done.returncode == 0, done.stderr
    assert [end.code for end in bench.callback.exits] == [0]


def test_bytecode_is_what_runs_where_it_fits(tmp_path):
    def without_sources(name, data):
        return b"no source" if name[:-3].rpartition("/")[2] in BEFORE_START and name.startswith("nnilite/_k") else data

    keeper = changed(with_bytecode(zipapp().read_bytes()), lambda n, d: without_sources(n, d) if n[-1] == "y" else d)
    with Bench(tmp_path) as bench:
        done = job(bench, tmp_path, keeper)
        assert done.returncode == 0, done.stderr


def test_the_sources_are_what_runs_where_bytecode_is_that_of_another_python(tmp_path):
    def of_another(name, data):
        assert not name.endswith(".pyc") or data.startswith(importlib.util.MAGIC_NUMBER)
        return b"\0\0\r\n" + data[4:16] + b"nonsense" if name.endswith(".pyc") else data

    with Bench(tmp_path) as bench:
        done = job(bench, tmp_path, changed(with_bytecode(zipapp().read_bytes()), of_another))
        assert done.returncode == 0, done.stderr


def test_the_keeper_is_sent_without_docstrings_and_comments_and_with_all_lines_in_their_places():
    with zipfile.ZipFile(zipapp()) as keeper:
        sent = {
            name: keeper.read(name).decode()
            for name in keeper.namelist()
            if name.startswith(("nnilite/_keeper", "nnilite/_cp")) and name.endswith(".py")
        }
    assert sent.pop("nnilite/_keeper/__init__.py")  # it is made for it
    folder = Path(keeper_sources.__file__).parent.parent.parent
    assert len(sent) > 20
    for name, text in sent.items():
        own = (folder / name).read_text("ascii")
        assert len(text.splitlines()) == len(own.splitlines())
        assert ast.dump(for_run_time(ast.parse(text))) == ast.dump(for_run_time(bare(own)))
        assert "_cpython" in name or "if TYPE_CHECKING:" not in text


def for_run_time(tree: ast.Module) -> ast.Module:
    """The tree without imports for type checkers."""
    marks = ("TYPE_CHECKING = False", "if TYPE_CHECKING:")
    tree.body = [node for node in tree.body if not (ast.unparse(node).startswith(marks) and not has_else(node))]
    return tree


def has_else(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and bool(node.orelse)


def bare(source: str) -> ast.Module:
    """The tree of a program whose docstrings are empty."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(node) is not None:
            node.body[0].value.value = ""
    return tree


@pytest.mark.parametrize("plain", [True, False])
def test_small_archives_are_read_as_tarfile_reads_them(tmp_path, plain):
    code = tmp_path / "code"
    (code / "a" / "b").mkdir(parents=True)
    (code / "a" / "run.sh").write_text("echo")
    (code / "a" / "run.sh").chmod(0o755)
    (code / ("x" * 90)).mkdir()
    (code / ("x" * 90) / ("y" * 90)).write_bytes(bytes(1000))
    (code / "link").symlink_to("a/run.sh")
    if not plain:
        (code / "\u00fc").write_text("not ASCII")
    path = str(pack_code(code, tmp_path / "packed").archive)
    assert facts(code_archive.entries(path)) == facts(code_archive._read_by_tarfile(path))


def facts(entries):
    return [(e.name, e.kind, e.mode, e.size, e.linkname, e.data.read() if e.data else None) for e in entries]


def test_a_trial_gets_no_file_that_its_keeper_has_inherited(tmp_path):
    reader, writer = os.pipe()
    try:
        with Bench(tmp_path) as bench:
            spec = bench.spec("ls /proc/self/fd")
            run = [sys.executable, "-I", "-S", str(zipapp()), "run", str(spec)]
            assert subprocess.run(run, pass_fds=[reader, writer], timeout=60, check=False).returncode == 0
            # 3 is the folder that `ls` reads.
            assert bench.text("stdout").split() == ["0", "1", "2", "3"]
    finally:
        os.close(reader)
        os.close(writer)


@pytest.mark.parametrize(
    ("what", "sentence"),
    [({"code": {"in_place": "/nowhere"}}, "No such file or directory: '/nowhere'"), ({"env": {"A": "\0"}}, "null")],
)
@pytest.mark.parametrize("text", ["ls", "ls; true"])
def test_what_keeps_a_command_from_its_start_is_said(tmp_path, what, sentence, text):
    with Bench(tmp_path) as bench:
        assert bench.run(text, **what) == 4
        assert "the trial command cannot be started in " in bench.callback.exits[0].message
        assert sentence in bench.callback.exits[0].message
