"""Output files and their cap."""

from __future__ import annotations

import re

from nnilite._keeper.output import OutputFile


def written(path, data):
    with path.open("ab") as file:
        file.write(data)


def test_a_file_within_the_cap_is_left_alone(tmp_path):
    output = OutputFile(str(tmp_path / "out"), 10_000)
    written(tmp_path / "out", b"x" * 10_000)
    assert output.grown()
    output.cut()
    assert (tmp_path / "out").stat().st_size == 10_000


def test_cuts_keep_head_and_tail_and_count_what_is_missing(tmp_path):
    output = OutputFile(str(tmp_path / "out"), 10_000)
    total = b""
    for number in range(40):
        data = b"%05d\n" % number * 500
        total += data
        written(tmp_path / "out", data)
        output.grown()
        output.cut()
    content = (tmp_path / "out").read_bytes()
    head, left_out, tail = re.split(
        rb"\n\[nnilite: +(\d+) bytes of output left out here: over maxOutputSize\]\n", content
    )
    assert len(content) <= 10_000
    assert total.startswith(head)
    assert total.endswith(tail)
    assert len(head) + int(left_out) + len(tail) == len(total)


def test_the_first_half_of_the_cap_never_changes(tmp_path):
    output = OutputFile(str(tmp_path / "out"), 10_000)
    written(tmp_path / "out", b"0123456789" * 900)
    output.grown()
    before = output.read(0, output.stable)
    written(tmp_path / "out", b"x" * 50_000)
    output.grown()
    output.cut()
    assert output.read(0, output.stable) == before
    assert len(before) == 5_000


def test_the_last_lines_begin_with_a_whole_line(tmp_path):
    output = OutputFile(str(tmp_path / "out"), 0)
    written(tmp_path / "out", b"first line\nsecond line\n\xff third\n")
    assert output.last(23) == "second line\n\ufffd third"
    assert output.last(1000).startswith("first line")


def test_a_missing_file_is_empty(tmp_path):
    output = OutputFile(str(tmp_path / "out"), 100)
    assert not output.grown()
    output.cut()
    assert (output.read(0, 10), output.last(10)) == (b"", "")
