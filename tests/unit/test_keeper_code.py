"""The trial's working copy: what codedir packs arrives as it was, and no archive can reach out of its folder."""

from __future__ import annotations

import hashlib
import io
import tarfile

import pytest

from keeper_bench import Bench
from nnilite import codedir
from nnilite._keeper import working_copy


@pytest.fixture
def package(tmp_path):
    code = tmp_path / 'co de "$x"'
    (code / "sub" / "empty").mkdir(parents=True)
    (code / "train.py").write_text("print('trained')")
    (code / "run.sh").write_text('#!/bin/sh\necho ran in $(basename "$PWD")\n')
    (code / "run.sh").chmod(0o755)
    (code / "sub" / "na\nme").write_bytes(b"\0\1")
    (code / "sub" / "link").symlink_to("../train.py")
    return codedir.pack(code, tmp_path / "cache")


def tree(folder):
    return {
        path.relative_to(folder).as_posix(): str(path.readlink())
        if path.is_symlink()
        else (path.read_bytes() if path.is_file() else None, path.stat().st_mode & 0o100)
        for path in sorted(folder.rglob("*"))
    }


def test_a_package_is_unpacked_as_it_was(package, tmp_path):
    working_copy.unpack(str(package.archive), str(tmp_path / "copy"))
    assert tree(tmp_path / "copy") == tree(package.root)


@pytest.mark.process
def test_a_trial_runs_in_its_own_copy(package, tmp_path):
    with Bench(tmp_path) as bench:
        assert bench.run("./run.sh; touch new", code={"archive": str(package.archive)}) == 0
        assert bench.text("stdout") == "ran in code\n"
        assert (bench.folder / "code" / "new").exists()
        assert not (package.root / "new").exists()


@pytest.mark.process
def test_a_trial_can_run_in_a_folder_of_the_user(tmp_path):
    with Bench(tmp_path) as bench:
        bench.run("touch new; echo $NNI_CODE_DIR", code={"in_place": str(tmp_path)})
        assert (tmp_path / "new").exists()
        assert bench.text("stdout") == f"{tmp_path}\n"


@pytest.mark.process
def test_a_package_is_fetched_from_the_manager_through_trouble(package, tmp_path):
    with Bench(tmp_path) as bench:
        bench.callback.package = package.archive.read_bytes()
        bench.callback.script = ["lose", "lose"]
        assert bench.run("./run.sh", code={"download": package.hash}) == 0
        assert bench.text("stdout") == "ran in code\n"


@pytest.mark.process
def test_a_damaged_package_is_refused_and_said(package, tmp_path):
    data = bytearray(package.archive.read_bytes())
    data[len(data) // 2] ^= 0xFF
    package.archive.write_bytes(data)
    with Bench(tmp_path) as bench:
        assert bench.run("./run.sh", code={"archive": str(package.archive)}) == 4
        assert "is damaged" in bench.callback.exits[0].message
        assert not (bench.folder / "code").exists()


@pytest.mark.process
def test_a_package_that_is_not_there_is_said(tmp_path):
    with Bench(tmp_path) as bench:
        assert bench.run("true", code={"archive": str(tmp_path / ("a" * 64 + ".tar.gz"))}) == 4
        assert "No such file" in bench.callback.exits[0].message


def test_other_content_under_the_same_name_is_found_out(package, tmp_path):
    other = archive(tmp_path, [tarfile.TarInfo("x")], package.hash)
    with pytest.raises(working_copy.CodeError, match="content does not match its name"):
        working_copy.unpack(other, str(tmp_path / "copy"))
    assert not (tmp_path / "copy").exists()


def entry(name, kind=tarfile.REGTYPE, target=""):
    info = tarfile.TarInfo(name)
    info.type = kind
    info.linkname = target
    return info


def archive(folder, entries, name="a" * 64):
    path = folder / f"{name}.tar.gz"
    with tarfile.open(path, "w:gz", format=tarfile.PAX_FORMAT) as tar:
        for info in entries:
            tar.addfile(info, io.BytesIO())
    return str(path)


@pytest.mark.parametrize(
    "entries",
    [
        [entry("/absolute")],
        [entry("../out")],
        [entry("a/../../out")],
        [entry("link", tarfile.SYMTYPE, "/etc")],
        [entry("link", tarfile.SYMTYPE, "..")],
        [entry("a", tarfile.SYMTYPE, "."), entry("b", tarfile.SYMTYPE, "a/..")],
        [entry("link", tarfile.SYMTYPE, "../outside"), entry("link/file")],
        [entry("hard", tarfile.LNKTYPE, "/etc/passwd")],
        [entry("device", tarfile.CHRTYPE)],
        [entry("pipe", tarfile.FIFOTYPE)],
    ],
    ids=lambda entries: entries[-1].name,
)
def test_nothing_in_a_package_can_reach_out_of_it(tmp_path, entries):
    (tmp_path / "outside").mkdir()
    before = {path.name for path in tmp_path.iterdir()}
    path = archive(tmp_path, entries)
    with pytest.raises((working_copy.CodeError, OSError)):
        working_copy.unpack(path, str(tmp_path / "copy"))
    assert {path.name for path in tmp_path.iterdir()} - before == {f"{'a' * 64}.tar.gz"}
    assert list((tmp_path / "outside").iterdir()) == []


def test_the_hash_is_that_of_codedir(package, tmp_path):
    copy = tmp_path / f"{hashlib.sha256(b'other').hexdigest()}.tar.gz"
    copy.write_bytes(package.archive.read_bytes())
    with pytest.raises(working_copy.CodeError, match="does not match its name"):
        working_copy.unpack(str(copy), str(tmp_path / "copy"))
