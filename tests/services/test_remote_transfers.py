"""Transfers to a host's cache that come at the same time, as those of two experiments with the same code."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from nnilite_remote._worker import transfer

STEM = "code.tar.gz.0123456789abcdef"


@pytest.fixture
def abandoned(tmp_path: Path) -> Path:
    path = tmp_path / f"{STEM}.1-1.part"
    path.write_text("a part")
    return path


def test_a_transfer_goes_on_where_an_earlier_one_broke_off(abandoned: Path) -> None:
    part, path = transfer._part(str(abandoned.parent), STEM)
    with part:
        assert (path, part.read()) == (str(abandoned), b"a part")


def test_a_file_that_its_transfer_completes_meanwhile_is_not_written_to(
    abandoned: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = fcntl.flock

    def complete(file: int, how: int) -> None:
        if abandoned.exists():
            abandoned.rename(abandoned.with_name("code.tar.gz"))
        lock(file, how)

    monkeypatch.setattr(fcntl, "flock", complete)
    part, path = transfer._part(str(abandoned.parent), STEM)
    with part:
        part.write(b"another")
    assert abandoned.with_name("code.tar.gz").read_text() == "a part"
    assert Path(path).read_text() == "another"


def test_a_part_that_goes_while_it_is_looked_at_is_no_error(abandoned: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    abandoned.unlink()
    monkeypatch.setattr(os, "listdir", lambda _: [abandoned.name])
    part, _ = transfer._part(str(abandoned.parent), STEM)
    with part:
        assert part.read() == b""
