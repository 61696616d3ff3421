"""Tables, images, figures and texts of a trial, as files with an index."""

from __future__ import annotations

import json
import struct
import zlib
from pathlib import Path
from typing import Any

import pytest

import nnilite
from nnilite._sdk.artifact_values import MOST_BYTES, find_image_ending


def make_png() -> bytes:
    """A picture of one red point."""

    def piece(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + piece(b"IHDR", head) + piece(b"IDAT", zlib.compress(b"\0\xff\0\0")) + piece(b"IEND", b"")
    )


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NNI_OUTPUT_DIR", str(tmp_path / "it's $OUT"))
    return tmp_path / "it's $OUT" / "artifacts"


def index(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "index.jsonl").read_text().splitlines()]


class PlotlyFigure:
    def to_plotly_json(self) -> dict[str, Any]:
        return {"data": [{"type": "bar", "y": [1, 2]}], "layout": {"title": {"text": "t"}}}


class Frame:
    """What a pandas DataFrame has that matters."""

    columns = ("a", "b")

    def itertuples(self, index: bool) -> list[tuple[Any, ...]]:
        assert not index
        return [(1, "x"), (2, None)]


class Drawn:
    """A figure of matplotlib."""

    def savefig(self, target: Any, format: str) -> None:
        target.write(make_png())


@pytest.mark.parametrize(
    ("value", "kind", "read"),
    [
        ("plain <b>text</b>", "text", "plain <b>text</b>"),
        ([[1, 2], [3]], "table", {"columns": ["0", "1"], "rows": [[1, 2], [3, None]]}),
        ([{"a": 1}, {"b": 2}], "table", {"columns": ["a", "b"], "rows": [[1, None], [None, 2]]}),
        ({"a": [1, 2], "b": (3,)}, "table", {"columns": ["a", "b"], "rows": [[1, 3], [2, None]]}),
        (Frame(), "table", {"columns": ["a", "b"], "rows": [[1, "x"], [2, None]]}),
        (PlotlyFigure(), "figure", {"data": [{"type": "bar", "y": [1, 2]}], "layout": {"title": {"text": "t"}}}),
        ({"data": [{"y": [1]}]}, "figure", {"data": [{"y": [1]}], "layout": {}}),
    ],
)
def test_a_value_becomes_a_file_of_its_kind(folder: Path, value: Any, kind: str, read: Any) -> None:
    path = nnilite.log_artifact("a name / with \n all", value)
    assert path.parent == folder
    found = path.read_text()
    assert (found if kind == "text" else json.loads(found)) == read
    (entry,) = index(folder)
    assert {**entry, "time": 0} == {
        "name": "a name / with \n all",
        "file": path.name,
        "kind": kind,
        "bytes": path.stat().st_size,
        "time": 0,
    }


@pytest.mark.parametrize("value", [make_png(), bytearray(make_png()), Drawn()])
def test_images_are_kept_as_they_are(folder: Path, value: Any) -> None:
    path = nnilite.log_artifact("points", value)
    assert path.read_bytes() == make_png()
    assert path.suffix == ".png"


@pytest.mark.parametrize(
    ("name", "content", "kind"),
    [
        ("picture.dat", make_png(), "image"),
        ("rows.csv", b"a,b\n1,2\n3\n", "table"),
        ("long.csv", b"a,b\n1," + b"2" * 140_000, "text"),
        ("rows.json", b'[{"a": 1}]', "table"),
        ("odd.json", b'{"a": 1}', "text"),
        ("notes.md", b"# words", "text"),
        ("page.html", b"<script>alert(1)</script>", "file"),
        ("drawing.svg", b"<svg onload='alert(1)'/>", "file"),
        ("weights.pt", b"\0\1", "file"),
    ],
)
def test_files_are_known_by_their_content(folder: Path, tmp_path: Path, name: str, content: bytes, kind: str) -> None:
    (tmp_path / name).write_bytes(content)
    nnilite.log_artifact("it", tmp_path / name)
    assert [one["kind"] for one in index(folder)] == [kind]


@pytest.mark.parametrize(
    ("name", "value", "error", "words"),
    [
        ("x", object(), TypeError, "a object cannot be shown"),
        ("x", b"GIF or so", TypeError, "not PNG, JPEG, GIF or WebP"),
        ("x", "y" * (MOST_BYTES + 1), ValueError, "more than 5,000,000 bytes"),
        ("", "y", ValueError, "1 to 100 characters"),
        (3, "y", TypeError, "must be a text, not int"),
    ],
    ids=["no value", "no image", "large", "no name", "odd name"],
)
def test_what_cannot_be_shown_is_refused_and_leaves_nothing(
    folder: Path, name: Any, value: Any, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        nnilite.log_artifact(name, value)
    assert not folder.exists()


def test_the_last_value_of_a_name_takes_the_place_of_the_first(folder: Path) -> None:
    first = nnilite.log_artifact("it", "one")
    assert nnilite.log_artifact("it", "two") == first
    assert first.read_text() == "two"
    assert nnilite.log_artifact("It", "three") != first
    assert sorted(path.name for path in folder.iterdir() if path.suffix == ".new") == []
    assert [one["name"] for one in index(folder)] == ["it", "it", "It"]


def test_without_a_manager_the_file_is_in_a_folder_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NNI_OUTPUT_DIR", raising=False)
    monkeypatch.setattr(nnilite, "_trial", nnilite._ThisTrial())
    path = nnilite.log_artifact("it", "one")
    assert path.read_text() == "one"
    assert path.parent == nnilite.log_artifact("other", "two").parent


def test_a_program_that_clears_its_environment_keeps_artifacts_at_their_place(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nnilite, "_trial", nnilite._ThisTrial())
    (tmp_path / "parameter.cfg").write_text('{"parameter_id": 0, "parameters": {}}')
    monkeypatch.setenv("NNI_PLATFORM", "local")
    monkeypatch.setenv("NNI_SYS_DIR", str(tmp_path))
    nnilite.get_next_parameter()
    for name in ("NNI_PLATFORM", "NNI_SYS_DIR", "NNI_OUTPUT_DIR"):
        monkeypatch.delenv(name)
    assert nnilite.log_artifact("it", "one").parent == folder


def test_only_images_that_browsers_show_count_as_images() -> None:
    heads = [
        make_png(),
        b"\xff\xd8\xff\xe0",
        b"GIF89a",
        b"RIFF\0\0\0\0WEBPVP8 ",
        b"<svg",
        b"BM",
        b"RIFF\0\0\0\0WAVE",
        b"",
    ]
    assert [find_image_ending(head) for head in heads] == [".png", ".jpg", ".gif", ".webp", "", "", "", ""]
