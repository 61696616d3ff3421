"""Files from workers: whatever they are named and however they are sent, nothing outside of their folder changes."""

from __future__ import annotations

import contextlib
import gc
import hashlib
import io
import os
import shutil
import subprocess
import tarfile
import tempfile
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nnilite import foreign_files
from nnilite._keeper.enclosed import EnclosedFolder, UnsafeName, parts_of, stays_inside
from nnilite._keeper.tree_removal import remove_tree
from nnilite.disk_room import NoRoom, reserve_bytes
from nnilite.errors import NotFound, ServiceError
from nnilite.foreign_files import copy_folder, list_below, listed, open_below, save_stream
from nnilite.services.keeper_folder import copy_attempt, copy_attempt_file, list_attempt
from nnilite.ssh.download import unpack_stream
from nnilite.ssh.errors import LinkLost, MachineError
from packed_files import Member, file, link, packed, snapshot


class Sent:
    """What a machine sends, in pieces as the network cuts them."""

    def __init__(self, data: bytes, piece: int = 700) -> None:
        self._stream, self._piece = io.BytesIO(data), piece

    def rest(self) -> bytes:
        return b""

    def read(self) -> bytes:
        return self._stream.read(self._piece)


@contextlib.contextmanager
def checked_surroundings() -> Iterator[Path]:
    """Give a target deep in a tree, and check that the rest of the tree stays as it is."""
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder, "1/2/3/4/5/6/target")
        target.mkdir(parents=True)
        for name in ("NAME", "1/2/3/secret", "1/2/3/4/5/6/beside"):
            Path(folder, name).write_text("as it was")
        before = {name: facts for name, facts in snapshot(Path(folder)).items() if not name.startswith(str(target))}
        yield target
        after = {name: facts for name, facts in snapshot(Path(folder)).items() if not name.startswith(str(target))}
        assert after == before
        links = [path for path in target.rglob("*") if path.is_symlink()]
        assert not links
        assert not [path for path in target.rglob("*") if path.lstat().st_mode & 0o7000]


CHAIN = [
    link("a", "p/q/n/n/n/n/n/n/n"),
    link("b", "a/../../../../../../NAME"),
    link("p", "s"),
    link("s/q", "../r"),
    link("r/n", "../r"),
    file("s/x"),
    file("r/x"),
]


def test_a_chain_of_links_from_an_earlier_fetch_leads_no_later_one_out() -> None:
    with checked_surroundings() as target:
        unpack_stream(Sent(packed(*CHAIN)), target)
        unpack_stream(Sent(packed(file("b", b"owned"))), target)
        assert (target / "b").read_bytes() == b"owned"


def test_links_that_an_earlier_version_has_made_are_replaced_and_not_followed(tmp_path: Path) -> None:
    with checked_surroundings() as target:
        (target / "b").symlink_to("../../../../../../NAME")
        (target / "folder").symlink_to("..")
        (target / "trial.stdout").symlink_to("../beside")
        unpack_stream(Sent(packed(file("b"), file("folder/beside"), file("trial.stdout"))), target)
        assert (target / "folder/beside").read_bytes() == b"x"


def test_a_second_fetch_after_an_ordinary_link_succeeds() -> None:
    with checked_surroundings() as target:
        for _ in range(2):
            unpack_stream(Sent(packed(file("epoch-7"), link("best", "epoch-7"))), target)
        unpack_stream(Sent(packed(file("best/deeper"), file("epoch-7/x"))), target)
        assert sorted(path.name for path in target.rglob("*")) == ["best", "deeper", "epoch-7", "x"]


def test_the_folder_of_an_attempt_with_links_is_copied_twice(tmp_path: Path) -> None:
    source, outside = tmp_path / "source", tmp_path / "outside"
    source.mkdir()
    outside.write_text("as it was")
    (source / "latest").symlink_to("epoch-7")
    (source / "out").symlink_to(outside)
    copy_attempt(source, tmp_path / "copy")
    (source / "out").unlink()
    (source / "out").write_text("owned")
    copy_attempt(source, tmp_path / "copy")
    assert outside.read_text() == "as it was"
    assert [path.name for path in (tmp_path / "copy").iterdir()] == ["out"]


names = st.one_of(
    st.sampled_from(["a", "b", "p", "s/q", "r/n", "a/b", "s", "trial.stdout", ".", "./a", "a/", "..", "../x", "/tmp"]),
    st.lists(st.sampled_from(["a", "b", "p", "q", "..", ".", "", "\udcff", "x" * 300]), min_size=1, max_size=6).map(
        "/".join
    ),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=6),
)
targets = st.one_of(names, st.sampled_from(["../../../../NAME", "../beside", "/etc/passwd", "a/../../beside", ".."]))
kinds = st.sampled_from([tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, b"3", b"6", b"S", b"?"])
members = st.tuples(names, kinds, targets, st.sampled_from([b"", b"owned", b"o" * 1500]))
SLOW = settings(deadline=None, max_examples=60, suppress_health_check=list(HealthCheck))


@SLOW
@given(st.lists(st.lists(members, max_size=6), min_size=1, max_size=4))
def test_no_members_of_any_fetches_reach_outside(fetches: list[list[Member]]) -> None:
    with checked_surroundings() as target:
        for fetch in fetches:
            with contextlib.suppress(MachineError):
                unpack_stream(Sent(packed(*(one if one[1] in b"0?S" else (*one[:3], b"") for one in fetch))), target)


@SLOW
@given(st.binary(max_size=600), st.integers(0, 2000), st.lists(members, max_size=3))
def test_damaged_streams_raise_what_is_declared(noise: bytes, at: int, sent: list[Member]) -> None:
    data = bytearray(packed(*(one if one[1] in b"0?S" else (*one[:3], b"") for one in sent)))
    data[at : at + len(noise)] = noise
    with checked_surroundings() as target, contextlib.suppress(MachineError):
        unpack_stream(Sent(bytes(data)), target)


@SLOW
@given(st.lists(st.lists(members, max_size=5), min_size=1, max_size=3))
def test_no_folder_of_a_shared_storage_reaches_outside(states: list[list[Member]]) -> None:
    with checked_surroundings() as target, tempfile.TemporaryDirectory() as storage:
        for state in states:
            source = Path(storage, "source")
            shutil.rmtree(source, ignore_errors=True)
            source.mkdir()
            for name, kind, aim, content in state:
                # What cannot be made, such as a file in a file, is left out.
                with contextlib.suppress(OSError, ValueError):
                    make(source, name, kind, aim, content)
            copy_attempt(source, target)


def make(source: Path, name: str, kind: bytes, aim: str, content: bytes) -> None:
    path = source.joinpath(*parts_of(name))
    with EnclosedFolder(str(source)) as folder:
        if kind == tarfile.SYMTYPE:
            path.symlink_to(aim)
        elif kind == tarfile.DIRTYPE:
            folder.make_folder(name)
        elif kind == tarfile.FIFOTYPE:
            os.mkfifo(path)
        else:
            folder.write(name, iter([content, b""]).__next__, 0o7777)


@pytest.mark.parametrize("name", ["/a", "../a", "a/../../b", "a\0b", "x" * 256, "a/" * 101 + "b", "\ud800", "é" * 200])
def test_names_that_no_file_may_have_are_refused(name: str, tmp_path: Path) -> None:
    with EnclosedFolder(str(tmp_path)) as folder:
        for use in (folder.make_folder, folder.open, folder.look, lambda n: folder.write(n, lambda: b"")):
            with pytest.raises(UnsafeName):
                use(name)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("name", "target", "stays"),
    [
        ("latest", "epoch-7", True),
        ("a/b/latest", "../../epoch-7", True),
        ("latest", "../epoch-7", False),
        ("a/latest", "b/../../../x", False),
        ("latest", "a/../b", False),
        ("latest", "/etc", False),
        ("latest", "", False),
    ],
)
def test_a_link_is_kept_only_if_no_chain_of_such_links_leads_out(name: str, target: str, stays: bool) -> None:
    assert stays_inside(name, target) is stays


relative = st.lists(st.sampled_from(["a", "b", "c", "..", "."]), min_size=1, max_size=5).map("/".join)


@SLOW
@given(st.lists(st.tuples(relative, relative), max_size=8))
def test_whatever_links_are_kept_all_resolve_inside(links: list[tuple[str, str]]) -> None:
    with tempfile.TemporaryDirectory() as root:
        with EnclosedFolder(root) as folder:
            for name, target in links:
                with contextlib.suppress(UnsafeName):
                    folder.link(name, target)
        inside = os.path.realpath(root)
        for path in Path(root).rglob("*"):
            assert os.path.commonpath([os.path.realpath(path), inside]) == inside


def test_no_header_makes_the_manager_hold_a_large_part_in_memory(tmp_path: Path) -> None:
    header = tarfile.TarInfo("x")
    for kind in (b"x", b"L", b"g"):
        header.type, header.size = kind, 1 << 33
        sent = Sent(header.tobuf(tarfile.GNU_FORMAT) + b"1" * 10_000_000, 1 << 20)
        tracemalloc.start()
        with pytest.raises(LinkLost, match="header"):
            unpack_stream(sent, tmp_path / "t")
        assert tracemalloc.get_traced_memory()[1] < 4_000_000
        tracemalloc.stop()


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_all_that_other_programs_write_is_read(tmp_path: Path, form: int) -> None:
    source, names = tmp_path / "source", ["a/b", "d" * 90 + "/" + "e" * 90, "ü", "z" * 98, "\udcff"]
    names += ["n" * 200] if form != tarfile.USTAR_FORMAT else []
    for name in names:
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_bytes(name.encode("utf-8", "surrogateescape") * 400)
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w|", format=form) as archive:
        archive.add(source, ".")
    unpack_stream(Sent(buffer.getvalue()), tmp_path / "copy")
    for name in names:
        assert (tmp_path / "copy" / name).read_bytes() == (source / name).read_bytes()


@pytest.mark.process
def test_the_archive_of_gnu_tar_is_read(tmp_path: Path) -> None:
    program = shutil.which("tar")
    if program is None:
        pytest.skip("there is no tar")
    (tmp_path / "s/deep").mkdir(parents=True)
    (tmp_path / "s/deep" / ("long" * 50)).write_bytes(os.urandom(100_000))
    data = subprocess.run([program, "-C", str(tmp_path / "s"), "-cf", "-", "."], capture_output=True, check=True).stdout
    unpack_stream(Sent(data), tmp_path / "copy")
    assert hashlib.sha256((tmp_path / "copy/deep" / ("long" * 50)).read_bytes()).digest() == (
        hashlib.sha256((tmp_path / "s/deep" / ("long" * 50)).read_bytes()).digest()
    )


def test_a_fetch_that_breaks_off_leaves_whole_files_and_no_piece(tmp_path: Path) -> None:
    data = packed(file("first", b"1" * 1000), file("second", b"2" * 100_000))
    with pytest.raises(LinkLost, match="breaks off"):
        unpack_stream(Sent(data[:50_000]), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["first"]


def test_output_that_has_grown_here_is_not_cut_by_an_older_copy(tmp_path: Path) -> None:
    (tmp_path / "trial.stdout").write_text("one two three")
    unpack_stream(Sent(packed(file("trial.stdout", b"one two"))), tmp_path)
    assert (tmp_path / "trial.stdout").read_text() == "one two three"


def test_too_many_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(foreign_files, "MOST_ENTRIES", 3)
    with pytest.raises(MachineError, match="more than 3 files"):
        unpack_stream(Sent(packed(*(file(f"f{number}") for number in range(5)))), tmp_path)


def test_folders_that_one_name_stands_for_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(foreign_files, "MOST_ENTRIES", 100)
    deep = [(f"{number}/" + "d/" * 40, tarfile.DIRTYPE, "", b"") for number in range(5)]
    with pytest.raises(MachineError, match="more than 100 files"):
        unpack_stream(Sent(packed(*deep)), tmp_path)
    assert sum(1 for _ in tmp_path.rglob("*")) <= 100


def test_a_folder_and_what_is_in_it_count_once_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(foreign_files, "MOST_ENTRIES", 20)
    members = [one for n in range(10) for one in ((f"d{n}", tarfile.DIRTYPE, "", b""), file(f"d{n}/x"))]
    unpack_stream(Sent(packed(*members)), tmp_path)
    assert sum(1 for _ in tmp_path.rglob("*")) == 20


def test_what_is_put_in_the_place_of_output_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "trial.stdout").write_text("kept here")
    unpack_stream(
        Sent(packed(file("trial.stdout/x"), ("trial.stdout", tarfile.DIRTYPE, "", b""), file("other"))), tmp_path
    )
    assert (tmp_path / "trial.stdout").read_text() == "kept here"
    assert (tmp_path / "other").exists()


def test_headers_without_a_file_have_an_end(tmp_path: Path) -> None:
    header = tarfile.TarInfo("x")
    header.type, header.size = b"x", 512
    one = header.tobuf(tarfile.GNU_FORMAT) + b"512 a=" + b"b" * 505 + b"\n"
    with pytest.raises(LinkLost, match="more than 8 headers"):
        unpack_stream(Sent(one * 1000, 1 << 20), tmp_path)


@pytest.mark.timeout(20)
@pytest.mark.parametrize("records", [b"12 path=abc\nwithout-length", b"12 path=abc\n0 a=b\n", b"2 a=b\n"])
def test_a_header_whose_records_have_no_length_is_damaged(records: bytes, tmp_path: Path) -> None:
    header = tarfile.TarInfo("x")
    header.type, header.size = b"x", len(records)
    with pytest.raises(LinkLost, match="one of its headers cannot be read"):
        unpack_stream(Sent(header.tobuf(tarfile.GNU_FORMAT) + records.ljust(512, b"\0")), tmp_path)


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk on which only the reserve is free."""
    facts = os.statvfs("/")
    free = reserve_bytes(facts.f_blocks * facts.f_frsize) // facts.f_frsize
    fields = [free if index in (3, 4) else value for index, value in enumerate(facts[:10])]
    monkeypatch.setattr(os, "statvfs", lambda path: os.statvfs_result(fields))


@pytest.mark.usefixtures("full")
def test_nothing_is_written_into_the_reserve_of_the_disk(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    (tmp_path / "source/file").write_text("x")
    with pytest.raises(MachineError, match="free some disk space"):
        unpack_stream(Sent(packed(file("a"))), tmp_path / "target")
    with pytest.raises(NoRoom):
        copy_attempt(tmp_path / "source", tmp_path / "target")
    with pytest.raises(NoRoom):
        save_stream(io.BytesIO(b"x").read, tmp_path / "saved")
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["file"]


def test_a_file_below_a_link_is_not_opened(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "trials/T").mkdir(parents=True)
    (tmp_path / "trials/T/0").symlink_to(tmp_path)
    (tmp_path / "trials/T/link").symlink_to(tmp_path / "secret")
    for path in ("T/0/secret", "T/link", "../secret", "T", "T/none", "/etc/passwd"):
        with pytest.raises(NotFound):
            open_below(tmp_path / "trials", path)


def test_a_list_names_links_as_text_and_no_more_than_its_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "link").symlink_to("/etc/passwd")
    (tmp_path / "a").write_text("four")
    os.mkfifo(tmp_path / "pipe")
    found = {one.path: (one.kind, one.size, one.target) for one in list_below(tmp_path)}
    assert found["link"][::2] == ("link", "/etc/passwd")
    assert (found["a"], found["pipe"][0]) == (("file", 4, ""), "special")
    monkeypatch.setattr(foreign_files, "LISTED_MAX", 2)
    assert [one.path for one in list_below(tmp_path)] == ["a", "link"]


def test_one_file_of_a_folder_is_copied_and_no_link(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    (source / "deep").mkdir(parents=True)
    (source / "deep/model").write_bytes(b"m" * 100)
    (source / "spec.json").write_text("secret")
    (source / "link").symlink_to("/etc/passwd")
    copy_attempt_file(source, "deep/model", target)
    assert (target / "deep/model").stat().st_mtime_ns == (source / "deep/model").stat().st_mtime_ns
    for path in ("link", "spec.json", "../source/deep/model", "none"):
        with pytest.raises(NotFound):
            copy_attempt_file(source, path, target)
    with pytest.raises(ServiceError, match="more than 10 B"):
        copy_attempt_file(source, "deep/model", target, 10)
    assert [one.path for one in list_attempt(source)] == ["deep/model", "link"]


def test_pieces_of_a_killed_process_are_removed(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep/.nnilite-0011.part").write_text("half")
    (tmp_path / "deep/.nnilite-mine").write_text("a trial's own")
    assert [one.path for one in list_below(tmp_path)] == ["deep/.nnilite-mine"]
    with EnclosedFolder(str(tmp_path)) as folder:
        folder.remove_drafts(100)
    assert [path.name for path in (tmp_path / "deep").iterdir()] == [".nnilite-mine"]


def test_a_file_takes_the_place_of_a_folder_and_a_folder_that_of_a_file(tmp_path: Path) -> None:
    with EnclosedFolder(str(tmp_path)) as folder:
        folder.write("x/y/z", iter([b"1", b""]).__next__)
        folder.write("x/y/w", iter([b"1", b""]).__next__)
        folder.write("x", iter([b"2", b""]).__next__)
        folder.write("x/y", iter([b"3", b""]).__next__)
    assert (tmp_path / "x/y").read_bytes() == b"3"


def test_a_folder_that_may_not_be_read_is_said(tmp_path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may read everything")
    (tmp_path / "source/closed").mkdir(parents=True, mode=0)
    with pytest.raises(ServiceError, match="closed"):
        copy_attempt(tmp_path / "source", tmp_path / "target")


def test_what_is_taken_is_counted(tmp_path: Path) -> None:
    (tmp_path / "s").mkdir()
    (tmp_path / "s/link").symlink_to("a")
    (tmp_path / "s/a").write_text("four")
    taken = copy_folder(tmp_path / "s", tmp_path / "t")
    assert (taken.size_bytes, taken.left_out) == (4, ["link"])


SIZES = ["1", -1, 1 << 70, float("nan"), True, None]
LISTS = [None, 3, {}, [1], [["a", 1, 1, "file"]], [["a", 1, 1, "door", ""]], [[1, 1, 1, "file", ""]]]


@pytest.mark.parametrize("entries", [*LISTS, *([["a", size, 1, "file", ""]] for size in SIZES)])
def test_a_list_that_is_none_is_refused(entries: object) -> None:
    with pytest.raises(ServiceError, match="its list of files"):
        listed(entries)


def nested(root: Path, depth: int) -> None:
    """Nest folders deeper than any path may be long, each with a file."""
    here = os.open(root, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("d" * 50, dir_fd=here)
        os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=here))
        inner = os.open("d" * 50, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.close(here)


def test_a_folder_is_removed_however_deep_a_trial_has_nested_others_in_it(tmp_path: Path) -> None:
    victim, outside = tmp_path / "a trial", tmp_path / "outside"
    (victim / "x").mkdir(parents=True)
    outside.mkdir()
    (outside / "kept").touch()
    (victim / "x" / "link").symlink_to(outside)
    (victim / "link").symlink_to(outside)
    os.mkfifo(victim / "x" / "pipe")
    nested(victim / "x", 3000)
    gc.collect()  # files of earlier tests are not closed in between then
    before = len(list(Path("/proc/self/fd").iterdir()))
    remove_tree(str(victim))
    remove_tree(str(victim))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["outside"]
    assert (outside / "kept").exists()
    assert len(list(Path("/proc/self/fd").iterdir())) <= before


def test_what_cannot_be_removed_is_an_error_and_all_else_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a trial" / "x" / "y").mkdir(parents=True)
    for name in ("x/y/held", "x/y/file", "x/file", "file"):
        (tmp_path / "a trial" / name).touch()
    unlink = os.unlink

    def refuse(name: str, **more: int) -> None:
        if name == "held":
            raise PermissionError(13, "Permission denied", name)
        unlink(name, **more)

    monkeypatch.setattr("nnilite._keeper.enclosed.os.unlink", refuse)
    with pytest.raises(PermissionError):
        remove_tree(str(tmp_path / "a trial"))
    assert [path.name for path in (tmp_path / "a trial").rglob("*") if path.is_file()] == ["held"]
