"""What of a code directory is sent, and what is said of the rest."""

from __future__ import annotations

import gzip
import json
import os
import socket
import stat
import tarfile
import tempfile
from contextlib import contextmanager
from pathlib import Path

import pytest

from nnilite import codedir
from nnilite.codedir import PackageLimits, list_files, pack
from nnilite.errors import CodeDirError

HOSTILE = [
    "a b.py",
    'it\'s "q".py',
    "$HOME `id`.py",
    "new\nline.py",
    "-rf",
    "ünï.py",
    "\\back",
    os.fsdecode(b"\xff.py"),
]


@pytest.fixture
def code(tmp_path):
    root = tmp_path / "my co'de $x\n"
    root.mkdir()
    return root


def put(root: Path, path: str, text: str | bytes = "x") -> Path:
    place = root / path
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(text if isinstance(text, bytes) else text.encode())
    return place


def paths(root: Path) -> list[str]:
    return [file.path for file in list_files(root).files]


@contextmanager
def ordinary_user():
    """Root can read everything; be somebody else for a while."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


# what is listed


def test_an_empty_code_directory_is_an_empty_list(code):
    assert paths(code) == []


def test_a_missing_code_directory_is_named(tmp_path):
    with pytest.raises(CodeDirError, match=r"no such place does not exist"):
        list_files(tmp_path / "no such place")


def test_an_odd_name_of_a_missing_code_directory_can_be_printed(tmp_path):
    with pytest.raises(CodeDirError, match=r"no\\nplace does not exist"):
        list_files(tmp_path / "no\nplace")


def test_a_file_instead_of_a_directory_is_named(tmp_path):
    with pytest.raises(CodeDirError, match="is not a folder"):
        list_files(put(tmp_path, "trial.py"))


@pytest.mark.parametrize("name", HOSTILE)
def test_odd_names_are_listed_and_packed_as_they_are(code, tmp_path, name):
    put(code, f"sub/{name}", "odd")
    with tarfile.open(pack(code, tmp_path / "cache").archive) as archive:
        assert archive.getnames() == [f"sub/{name}"]
        assert archive.extractfile(f"sub/{name}").read() == b"odd"


def test_hidden_files_and_empty_files_are_listed(code):
    put(code, ".hidden", "")
    put(code, ".config/x", "")
    assert paths(code) == [".config/x", ".hidden"]


def test_an_empty_folder_is_listed_as_a_folder(code):
    (code / "out").mkdir()
    [folder] = list_files(code).files
    assert (folder.path, folder.size, stat.S_ISDIR(folder.mode)) == ("out", 0, True)


def test_a_folder_with_only_ignored_files_is_sent_empty(code):
    put(code, "out/old.log")
    put(code, ".nniignore", "*.log")
    assert paths(code) == [".nniignore", "out"]


def test_version_control_and_caches_are_left_out_by_default(code):
    for path in (".git/config", "a/__pycache__/b.pyc", "a/b.pyc", ".venv/bin/python", "a/b.py"):
        put(code, path)
    assert paths(code) == ["a/b.py"]


def test_a_line_takes_back_what_is_left_out_by_default(code):
    put(code, ".git/HEAD")
    put(code, ".nniignore", "!.git/\n")
    assert paths(code) == [".git/HEAD", ".nniignore"]


def test_the_folder_of_an_experiment_is_left_out_and_said(code):
    put(code, "experiments/ab12/nnilite.sqlite")
    put(code, "experiments/ab12/trials/x/0/trial.stdout")
    listing = list_files(code)
    assert "trial.stdout" not in str(listing.files)
    assert "experiments/ab12 is left out: it is the folder of an experiment" in listing.notes


def test_sockets_and_pipes_are_left_out_and_said(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "s"))
        listing = list_files(tmp_path)
    assert listing.files == ()
    assert sorted(note.split(" ")[0] for note in listing.notes) == ["pipe", "s"]


def test_modes_are_reduced_to_executable_or_not(code):
    put(code, "run.sh").chmod(0o4775)
    put(code, "a.py").chmod(0o600)
    assert {file.path: stat.S_IMODE(file.mode) for file in list_files(code).files} == {
        "run.sh": 0o755,
        "a.py": 0o644,
    }


# links


def test_a_link_inside_the_tree_stays_a_link(code):
    put(code, "a/b.py")
    (code / "c").mkdir()
    (code / "c/link.py").symlink_to("../a/b.py")
    assert list_files(code).files[1].target == "../a/b.py"


def test_an_absolute_link_inside_the_tree_becomes_relative(code, tmp_path):
    put(code, "data/x")
    (code / "d").symlink_to(code / "data")
    package = pack(code, tmp_path / "cache")
    assert [(file.path, file.target) for file in package.files] == [("d", "data"), ("data/x", None)]
    with tarfile.open(package.archive) as archive:
        assert archive.getmember("d").linkname == "data"


def test_a_link_to_the_root_itself_does_not_make_an_endless_walk(code):
    (code / "sub").mkdir()
    (code / "sub/self").symlink_to("..")
    assert [(file.path, file.target) for file in list_files(code).files] == [("sub/self", "..")]


@pytest.mark.parametrize("target", ["nowhere", "loop", "/no/such/place", "../../../../../../../../nope"])
def test_a_link_to_nothing_is_left_out_and_said(code, target):
    (code / "loop").symlink_to(target)
    listing = list_files(code)
    assert listing.files == ()
    assert "loop is left out: it is a link to" in listing.notes[0]


def test_a_link_to_a_file_outside_is_sent_as_a_file_and_said(code, tmp_path):
    put(tmp_path, "outside.py", "shared")
    (code / "a.py").symlink_to("../outside.py")
    [file] = list_files(code).files
    assert (file.path, file.size, file.target) == ("a.py", 6, None)
    with tarfile.open(pack(code, tmp_path / "cache").archive) as archive:
        assert archive.extractfile("a.py").read() == b"shared"


def test_a_link_to_a_folder_outside_is_left_out_and_said(code, tmp_path):
    put(tmp_path, "images/1.png")
    (code / "data").symlink_to(tmp_path / "images")
    listing = list_files(code)
    assert listing.files == ()
    assert listing.notes == (f"data is left out: it is a link to {tmp_path}/images, outside the code directory",)


def test_a_link_to_something_left_out_is_left_out_too(code):
    put(code, "big/model.bin")
    put(code, ".nniignore", "/big/")
    (code / "model").symlink_to("big/model.bin")
    listing = list_files(code)
    assert [file.path for file in listing.files] == [".nniignore"]
    assert "which is left out" in listing.notes[0]


def test_a_link_chain_leads_to_its_end(code):
    put(code, "x.py")
    (code / "b").symlink_to("x.py")
    (code / "sub").mkdir()
    (code / "sub/a").symlink_to("../b")
    assert {file.path: file.target for file in list_files(code).files if file.target} == {
        "b": "x.py",
        "sub/a": "../x.py",
    }


# unreadable


@pytest.mark.parametrize("name", ["secret.txt", "folder/"])
def test_what_cannot_be_read_is_named(tmp_path, name):
    for folder in (tmp_path, *tmp_path.parents):
        if folder == Path(tempfile.gettempdir()):
            break
        folder.chmod(0o755)
    place = put(tmp_path, "code/secret.txt") if name == "secret.txt" else tmp_path / "code/folder"
    if name == "folder/":
        place.mkdir(parents=True)
    place.chmod(0)
    with (
        ordinary_user(),
        pytest.raises(CodeDirError, match=f"cannot read {name} .*or leave it out by a line"),
    ):
        list_files(tmp_path / "code")
    place.chmod(0o755)


# the cap


def test_exactly_the_allowed_number_of_files_is_packed(code, tmp_path):
    for number in range(20):
        put(code, f"{number}.py")
    assert len(pack(code, tmp_path / "cache", PackageLimits(20)).files) == 20
    with pytest.raises(CodeDirError, match="has 20 files"):
        pack(code, tmp_path / "cache", PackageLimits(19))


def test_exactly_the_allowed_size_is_packed(code, tmp_path):
    put(code, "a", b"x" * 600)
    put(code, "b", b"x" * 400)
    assert pack(code, tmp_path / "cache", PackageLimits(max_bytes=1000)).total_bytes == 1000
    with pytest.raises(CodeDirError, match="Largest: a"):
        pack(code, tmp_path / "cache", PackageLimits(max_bytes=999))


def test_the_default_cap_is_that_of_nni():
    assert PackageLimits() == PackageLimits(2000, 300 * 1024 * 1024)


def test_ignored_files_do_not_count(code):
    for number in range(30):
        put(code, f"data/{number}.png")
    put(code, ".nniignore", "data/")
    assert list_files(code, PackageLimits(1)).total_bytes == 5


def test_the_lines_that_the_error_names_do_help(code):
    put(code, "data/raw *[x]/big.bin", b"x" * 3000)
    for number in range(40):
        put(code, f"shots/{number}.png", b"x" * 10)
        put(code, f"{number}.csv")
    put(code, "trial.py")
    with pytest.raises(CodeDirError) as caught:
        list_files(code, PackageLimits(5, 1000))
    lines = [line[2:] for line in str(caught.value).splitlines() if line.startswith("  ")]
    put(code, ".nniignore", "\n".join(lines))
    left = [file.path for file in list_files(code, PackageLimits(5, 1000)).files]
    assert left == [".nniignore", "data/raw *[x]", "trial.py"]


def test_the_error_names_the_deepest_folder_that_matters(code):
    for number in range(30):
        put(code, f"data/raw/images/{number}.png")
    put(code, "data/readme.txt")
    with pytest.raises(
        CodeDirError, match=r"Largest: data/raw/images/ \(30 files, [^)]*\)\.(?s:.*)\n  /data/raw/images/\n"
    ):
        list_files(code, PackageLimits(10))


def test_folders_that_only_their_numbers_tell_apart_share_a_line(code):
    for number in range(30):
        put(code, f"logs [old]/run{number}_a/model.bin")
        put(code, f"step{number}/x")
    for other in ("step7 kept/x", "trial.py"):
        put(code, other)
    with pytest.raises(CodeDirError) as caught:
        list_files(code, PackageLimits(10))
    lines = [line for line in str(caught.value).splitlines() if line.startswith("  ")]
    assert lines[0] == r"  /logs \[old]/run[0-9]*_a/"
    assert not any("step[0-9]" in line for line in lines), "that would leave out `step7 kept`, too"
    put(code, ".nniignore", lines[0].strip())
    assert not any("run" in str(file.path) for file in list_files(code, PackageLimits(100)).files)


# the package


def test_the_list_is_what_is_in_the_archive(code, tmp_path):
    for path in ("a.py", "sub/b.py", "sub/deep/c.py", "big/x.ckpt", "sub/y.ckpt"):
        put(code, path)
    put(code, ".nniignore", "*.ckpt\nbig/\n")
    (code / "empty").mkdir()
    package = pack(code, tmp_path / "cache")
    with tarfile.open(package.archive) as archive:
        assert archive.getnames() == [file.path for file in package.files]
    assert sum(file.size for file in package.files) == package.total_bytes


def test_equal_code_gives_equal_bytes_anywhere_at_any_time(tmp_path):
    made = []
    for place in ("one", "other place/deep"):
        put(tmp_path / place, "b/x.py", "same")
        put(tmp_path / place, "a.sh", "same").chmod(0o700)
        os.utime(tmp_path / place / "a.sh", (len(place), 10 * len(place)))
        made.append(pack(tmp_path / place, tmp_path / f"cache {len(place)}"))
    assert made[0].hash == made[1].hash
    assert made[0].archive.read_bytes() == made[1].archive.read_bytes()
    assert made[0].archive.name == f"{made[0].hash}.tar.gz"


def test_the_archive_tells_nothing_of_its_owner_and_time(code, tmp_path):
    put(code, "a.py")
    archive = pack(code, tmp_path / "cache").archive
    with tarfile.open(archive) as opened:
        entry = opened.getmember("a.py")
    assert (entry.mtime, entry.uid, entry.gid, entry.uname, entry.gname) == (0, 0, 0, "", "")
    assert archive.read_bytes()[4:8] == b"\0\0\0\0"


@pytest.mark.parametrize("change", ["bytes", "name", "mode", "link"])
def test_the_hash_tells_any_change(code, tmp_path, change):
    place = put(code, "a.py", "one")
    before = pack(code, tmp_path / "cache").hash
    {
        "bytes": lambda: place.write_text("two"),
        "name": lambda: place.rename(code / "b.py"),
        "mode": lambda: place.chmod(0o755),
        "link": lambda: (code / "l").symlink_to("a.py"),
    }[change]()
    assert pack(code, tmp_path / "cache").hash != before


def test_names_and_bytes_cannot_be_mistaken_for_each_other(tmp_path):
    put(tmp_path / "one", "a", "bc")
    put(tmp_path / "two", "ab", "c")
    cache = tmp_path / "cache"
    assert pack(tmp_path / "one", cache).hash != pack(tmp_path / "two", cache).hash


def test_a_cache_inside_the_code_directory_does_not_pack_itself(code):
    put(code, "a.py")
    put(code, "exp/x1/nnilite.sqlite")
    first = pack(code, code / "exp/x1/code")
    assert pack(code, code / "exp/x1/code").hash == first.hash


# unchanged code


@pytest.fixture
def no_packing(monkeypatch):
    def forbid():
        def refuse(*_):
            raise AssertionError("was packed again")

        monkeypatch.setattr(codedir.code_package, "_write", refuse)

    return forbid


def age(root: Path, monkeypatch) -> None:
    """Let the code be older than the time in which an edit may not show in a file's times."""
    monkeypatch.setattr(codedir.code_package.time, "time", lambda: max(p.stat().st_ctime for p in root.rglob("*")) + 60)


def test_unchanged_code_is_neither_packed_nor_read_again(code, tmp_path, monkeypatch, no_packing):
    put(code, "a.py")
    age(code, monkeypatch)
    first = pack(code, tmp_path / "cache")
    no_packing()
    monkeypatch.setattr(codedir.code_package, "_digest", lambda _: pytest.fail("was read again"))
    assert pack(code, tmp_path / "cache") == first


def test_touched_but_equal_code_is_not_packed_again(code, tmp_path, no_packing):
    place = put(code, "a.py")
    first = pack(code, tmp_path / "cache")
    os.utime(place, (1, 1))
    no_packing()
    assert pack(code, tmp_path / "cache").hash == first.hash


def test_an_edit_right_after_packing_with_the_same_size_and_time_is_seen(code, tmp_path):
    place = put(code, "a.py", "one")
    facts = place.stat()
    first = pack(code, tmp_path / "cache")
    place.write_text("two")
    os.utime(place, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    assert pack(code, tmp_path / "cache").hash != first.hash


@pytest.mark.parametrize("text", ["", "{", "[]", '{"hash": 3}', "null"])
def test_a_broken_index_is_made_again(code, tmp_path, monkeypatch, text):
    put(code, "a.py")
    age(code, monkeypatch)
    first = pack(code, tmp_path / "cache")
    [index] = (tmp_path / "cache").glob("*.json")
    index.write_text(text)
    assert pack(code, tmp_path / "cache").hash == first.hash
    assert json.loads(index.read_text())["hash"] == first.hash


def test_a_removed_archive_is_made_again(code, tmp_path, monkeypatch):
    put(code, "a.py")
    age(code, monkeypatch)
    pack(code, tmp_path / "cache").archive.unlink()
    assert gzip.decompress(pack(code, tmp_path / "cache").archive.read_bytes())[:4] == b"a.py"


# files that change while they are packed


def meddle(monkeypatch, times: int, change) -> None:
    """Call `change` in the middle of reading, `times` times."""
    real = codedir.code_package._SourceFile.read
    left = [times]

    def read(self, n_bytes=codedir.code_package._CHUNK):
        if left[0]:
            left[0] -= 1
            change()
        return real(self, n_bytes)

    monkeypatch.setattr(codedir.code_package._SourceFile, "read", read)


def test_a_file_that_changes_once_is_packed_in_its_new_state(code, tmp_path, monkeypatch):
    place = put(code, "a.py", "old")
    meddle(monkeypatch, 1, lambda: place.write_text("new!"))
    with tarfile.open(pack(code, tmp_path / "cache").archive) as archive:
        assert archive.extractfile("a.py").read() == b"new!"


@pytest.mark.parametrize("growth", [1, 0, -1])
def test_a_file_that_keeps_changing_is_named(code, tmp_path, monkeypatch, growth):
    place = put(code, "train.log", "x" * 100)

    def alter():
        size = place.stat().st_size
        place.write_text("x" * (size + growth))
        os.utime(place, (0, place.stat().st_mtime + 1))

    meddle(monkeypatch, 9, alter)
    with pytest.raises(CodeDirError, match=r"train\.log keeps changing"):
        pack(code, tmp_path / "cache")
    assert not list(tmp_path.glob("cache/*"))


def test_a_file_that_vanishes_meanwhile_is_not_sent(code, tmp_path, monkeypatch):
    put(code, "a.py")
    place = put(code, "b.py")
    meddle(monkeypatch, 1, place.unlink)
    assert [file.path for file in pack(code, tmp_path / "cache").files] == ["a.py"]


def test_a_full_disk_is_said_and_leaves_nothing_behind(code, tmp_path, monkeypatch):
    put(code, "a.py")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(codedir.code_package, "_fill", full)
    with pytest.raises(CodeDirError, match=r"cannot write .*: No space left on device"):
        pack(code, tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []


def test_notes_and_errors_can_be_printed(code):
    name = os.fsdecode(b"bad\xff\nname")
    (code / name).symlink_to("nowhere")
    assert list_files(code).notes[0].startswith("bad\\udcff\\nname is left out")


def test_what_nnilite_keeps_of_all_experiments_is_not_sent(tmp_path: Path) -> None:
    """With it a worker would have the token of the page of all experiments."""
    for name in ("trial.py", "home/.nnilite/ab12.json", "home/.nnilite/hub/token"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert [file.path for file in codedir.list_files(tmp_path).files] == ["home", "trial.py"]
