"""Quantities as people write them."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnilite.units import (
    PathRule,
    cure_for_number,
    format_duration,
    format_size,
    parse_duration_s,
    parse_gpu_indices,
    parse_memory_mb,
    parse_secret,
    parse_size_bytes,
)


@pytest.mark.parametrize(
    ("written", "seconds"),
    [("10m", 600), ("0.5h", 1800), ("1 H", 3600), ("2.5M", 150), (90, 90), ("1d", 86400), (" 3s ", 3), ("1e2s", 100)],
)
def test_a_duration_is_read_in_all_of_nni_s_spellings(written, seconds):
    assert parse_duration_s(written) == seconds


@pytest.mark.parametrize(("written", "seconds"), [("0.1s", 1), ("1.1h", 3960), ("0.0001d", 9)])
def test_a_duration_is_rounded_up_to_whole_seconds_and_no_further(written, seconds):
    assert parse_duration_s(written) == seconds


@pytest.mark.parametrize(
    ("written", "reason"),
    [
        ("90", "has no unit"),
        ("1h30", "is not a number with a unit"),
        ("10min", "unknown unit 'min'"),
        ("1-12:00:00", "is written as on a clock; write 36h"),
        ("01:30:00", "write 90m"),
        ("1:30", "is not a number with a unit"),  # of hours or of minutes
        (0, "above 0"),
        ("0s", "above 0"),
        (-1, "above 0"),
        ("-1h", "above 0"),
        (1.5, "neither a whole number nor text"),
        (True, "neither"),
        (None, "neither"),
        ("", "not a number"),
        ("1e999999999d", "is too large"),
        ("-1e999999999h", "above 0"),
        ("1.2.3h", "not a number"),
    ],
)
def test_a_bad_duration_gets_a_sentence(written, reason):
    with pytest.raises(ValueError, match=reason):
        parse_duration_s(written)


@given(st.integers(1, 10**9))
def test_a_duration_in_seconds_reads_the_same_with_and_without_unit(seconds):
    assert parse_duration_s(f"{seconds}s") == parse_duration_s(seconds) == seconds


@pytest.mark.parametrize(
    ("written", "megabytes"), [("4gb", 4096), ("1TB", 1024**2), (512, 512), ("1kb", 1), ("1.5 GB", 1536)]
)
def test_a_bare_memory_size_is_in_megabytes(written, megabytes):
    assert parse_memory_mb(written) == megabytes


def test_a_memory_size_as_text_needs_a_unit():
    with pytest.raises(ValueError, match="'512' has no unit; the units are tb, gb, mb, kb, b"):
        parse_memory_mb("512")


@pytest.mark.parametrize(("written", "size"), [("300mb", 300 * 1024**2), (1000, 1000), ("0.5kb", 512), ("1b", 1)])
def test_a_bare_size_is_in_bytes(written, size):
    assert parse_size_bytes(written) == size


@pytest.mark.parametrize(("written", "indices"), [(0, [0]), ("0,1", [0, 1]), (" 3 , 2", [3, 2]), ([1, 0], [1, 0])])
def test_gpu_indices_are_a_number_a_list_or_text(written, indices):
    assert parse_gpu_indices(written) == indices


@pytest.mark.parametrize("written", ["0,0", [1, 1], -1, "a", "", [0, "1"], 1.0, True, None, "0;1"])
def test_bad_gpu_indices_get_a_sentence(written):
    with pytest.raises(ValueError, match=r"is not a list of GPU numbers|names a GPU twice"):
        parse_gpu_indices(written)


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0s"), (59.9, "59s"), (303, "5m 03s"), (3720, "1h 02m"), (183600, "2d 03h")]
)
def test_a_duration_is_shown_in_two_units(seconds, text):
    assert format_duration(seconds) == text


@pytest.mark.parametrize(
    ("size", "text"), [(17, "17 B"), (1536, "1.5 KB"), (300 * 1024**2, "300 MB"), (2 * 1024**4, "2.0 TB")]
)
def test_a_size_is_shown_in_the_unit_that_fits(size, text):
    assert format_size(size) == text


def test_a_secret_comes_from_the_environment_and_does_not_show_in_repr():
    secret = parse_secret("a${env:TOKEN}b", {"TOKEN": "$1 'x'"})
    assert secret == "a$1 'x'b"
    assert "x" not in repr(secret)


def test_a_secret_names_the_variable_that_is_missing():
    with pytest.raises(ValueError, match="environment variable 'TOKEN' is not set"):
        parse_secret("${env:TOKEN}", {})


def test_a_resolved_secret_is_not_resolved_again():
    once = parse_secret("${env:A}", {"A": "${env:B}"})
    assert parse_secret(once, {}) == "${env:B}"


def test_a_path_is_relative_to_its_base_whatever_its_name(tmp_path):
    odd = tmp_path / 'it\'s $HOME\n "x"'
    odd.mkdir()
    assert PathRule.DIRECTORY.resolve(odd.name, tmp_path) == odd.resolve()


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"the file '.*gone' does not exist"):
        PathRule.FILE.resolve("gone", tmp_path)


def test_a_name_that_is_much_alike_is_named_as_another_system_would_find_it(tmp_path):
    (tmp_path / "Search_Space.json").touch()
    (tmp_path / "src").mkdir()
    with pytest.raises(ValueError, match=r"does not exist; did you mean 'Search_Space.json'\?"):
        PathRule.FILE.resolve("search_space.json", tmp_path)
    with pytest.raises(ValueError, match=r"does not exist; did you mean 'src'\?"):
        PathRule.DIRECTORY.resolve("SRC", tmp_path)
    with pytest.raises(ValueError, match=r"gone/src' does not exist$"):
        PathRule.FILE.resolve("gone/src", tmp_path)


def test_the_home_folder_is_known_in_paths(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert PathRule.ANY.resolve("~/x", Path("/")) == tmp_path.resolve() / "x"


@pytest.mark.parametrize("value", ["", 3, None, "a\0b"])
def test_what_is_no_path_gets_a_sentence(value, tmp_path):
    with pytest.raises(ValueError, match=r"is not a (usable )?path"):
        PathRule.ANY.resolve(value, tmp_path)


WINDOWS = {
    "D:\\work\\exps": "one of this machine",
    "d:/work": "one of this machine",
    "\\\\server\\share": "one of this machine",
    ".\\exps": "'./exps'",
    "..\\exps": "'../exps'",
}


@pytest.mark.parametrize(("value", "written"), WINDOWS.items())
@pytest.mark.parametrize("rule", PathRule)
def test_a_path_of_windows_is_refused_with_what_to_write(tmp_path, rule, value, written):
    with pytest.raises(ValueError, match=f"is a path of Windows; write {written}"):
        rule.resolve(value, tmp_path)


def test_a_key_file_is_there_or_its_public_half_is(tmp_path):
    with pytest.raises(ValueError, match=r"the file '.*id_gone' does not exist"):
        PathRule.KEY.resolve("id_gone", tmp_path)
    for name in ("id_rsa", "id_agent.pub"):
        (tmp_path / name).write_text("x")
    assert PathRule.KEY.resolve("id_rsa", tmp_path) == tmp_path / "id_rsa"
    assert PathRule.KEY.resolve("id_agent", tmp_path) == tmp_path / "id_agent"


@pytest.mark.parametrize(
    ("value", "whole", "cure"),
    [
        ("0.1", False, "; write 0.1 without quotes"),
        (" 1e-5 ", False, "; write 1.0e-5 without quotes"),
        ("1/8", False, "; write 0.125 without quotes"),
        ("10%", False, "; write 0.1 without quotes"),
        ("0,001", False, "; write 0.001 without quotes"),
        ("-1,25", False, "; write -1.25 without quotes"),
        ("1,000", False, ""),
        ("16", False, "; write 16 without quotes"),
        ("1e3", True, "; write 1000 without quotes"),
        (2.0, True, "; write 2"),
        ("2.5", True, ""),
        (2.5, True, ""),
        ("1/0", False, ""),
        ("9e999", False, ""),
        ("999999999**99", False, ""),
        ("ten", False, ""),
        (None, False, ""),
        (True, True, ""),
    ],
)
def test_a_number_in_quotes_is_answered_with_what_to_write(value, whole, cure):
    assert cure_for_number(value, whole=whole) == cure


@pytest.mark.parametrize(
    ("written", "cure"),
    [("1h30m", "write 90m"), ("1d 12h", "write 36h"), ("1 hour", "did you mean 1h?"), ("30min", "did you mean 30m?")],
)
def test_a_duration_in_other_spellings_is_written_out_and_that_works(written: str, cure: str) -> None:
    with pytest.raises(ValueError, match="; ") as caught:
        parse_duration_s(written)
    assert str(caught.value).endswith(cure)
    assert parse_duration_s(cure.split()[-1].strip("?")) > 0
