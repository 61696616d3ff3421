"""`.nniignore` means what git means: hand-picked cases, and any others compared with git itself."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nnilite.codedir import list_files

TREE = [
    "a.py",
    "a.txt",
    "b/a.py",
    "b/c.txt",
    "b/keep/a.txt",
    "b/keep/d/e.py",
    "data/raw/x",
    "data/x",
    "x",
    "b/x",
    "[z]",
    "q r",
]


def build(root: Path, ignores: dict[str, str], tree=TREE) -> Path:
    for path in tree:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text("x")
    for folder, text in ignores.items():
        (root / folder).mkdir(parents=True, exist_ok=True)
        (root / folder / ".nniignore").write_bytes(text.encode())
    return root


def kept(root: Path) -> set[str]:
    """What is listed, without the ignore files and the empty folders (which git does not know)."""
    listed = (file for file in list_files(root).files if not (root / file.path).is_dir())
    return {file.path for file in listed if not file.path.endswith(".nniignore")}


CASES = {
    "a folder anywhere": ("keep/", {"b/keep/a.txt", "b/keep/d/e.py"}),
    "an anchored file": ("/x", {"x"}),
    "a name anywhere": ("x", {"x", "b/x", "data/x", "data/raw/x"}),
    "a slash inside anchors": ("keep/a.txt", set()),
    "two stars": ("**/keep/**/e.py", {"b/keep/d/e.py"}),
    "all but python": (
        "*\n!*/\n!*.py",
        {"a.txt", "b/c.txt", "b/keep/a.txt", "data/raw/x", "data/x", "x", "b/x", "[z]", "q r"},
    ),
    "contents but one": ("/b/**\n!/b/keep/\n!/b/keep/a.txt", {"b/a.py", "b/c.txt", "b/x", "b/keep/d/e.py"}),
    "not from a folder that is out": ("data/\n!data/x", {"data/raw/x", "data/x"}),
    "brackets": ("\\[z]\n[q]*", {"[z]", "q r"}),
    "windows line ends": ("/x\r\na.txt\r\n", {"x", "a.txt", "b/keep/a.txt"}),
    "a byte order mark": ("\ufeff/x\n", {"x"}),
    "comments and blank lines": ("# x\n\n   \n/x\n", {"x"}),
    "trailing spaces": ("/x   \nq\\ r", {"x", "q r"}),
    "a broken pattern is nothing": ("[a-\n[[:odd:]]\nx\\\n/x", {"x"}),
    "sets of characters": ("[[:lower:]]\n![!x]", {"x", "b/x", "data/x", "data/raw/x"}),
    "sets with a bracket or a line": ("[]q[] r\n[w-y]\n!/[]-_x]", {"q r", "b/x", "data/x", "data/raw/x"}),
    "a slash after a backslash": ("b\\/x", {"b/x"}),
}


@pytest.mark.parametrize("name", CASES)
def test_a_root_file_leaves_out_what_git_would(tmp_path, name):
    text, gone = CASES[name]
    assert kept(build(tmp_path, {"": text})) == set(TREE) - gone


def test_a_nested_file_is_about_its_own_folder(tmp_path):
    build(tmp_path, {"b": "/x\n/keep/d/\n*.txt"})
    assert set(TREE) - kept(tmp_path) == {"b/x", "b/c.txt", "b/keep/a.txt", "b/keep/d/e.py"}


def test_a_nested_file_wins_over_the_root(tmp_path):
    build(tmp_path, {"": "*.txt", "b": "!*.txt", "b/keep": "a.txt"})
    assert set(TREE) - kept(tmp_path) == {"a.txt", "b/keep/a.txt"}


def test_a_name_with_a_line_end_is_matched_whole(tmp_path):
    build(tmp_path, {"": "x\n*.log"}, ["x\n", "a\nb.log", "d\n/x"])
    assert kept(tmp_path) == {"x\n"}


def git_keeps(root: Path) -> set[str]:
    """The answer of git, with the same default ignores switched off by names that do not occur."""
    subprocess.run(["git", "init", "-q", str(root)], check=True, timeout=60)
    command = ["git", "-C", str(root), "-c", "core.excludesFile=/dev/null", "ls-files", "-z", "--others"]
    out = subprocess.run([*command, "--exclude-per-directory=.nniignore"], check=True, capture_output=True, timeout=60)
    shutil.rmtree(root / ".git")
    return {name for name in out.stdout.decode().split("\0") if name and not name.endswith(".nniignore")}


NAMES = st.sampled_from(["a", "b", "ab", "a.py", "x y", "[b]", "b.txt"])
PATHS = st.lists(st.lists(NAMES, min_size=1, max_size=4).map("/".join), min_size=1, max_size=10)
ATOMS = [
    "a",
    "b",
    "ab",
    "a.py",
    "*",
    "**",
    "*.py",
    "?",
    "[ab]",
    "[!a]",
    "x\\ y",
    "\\[b]",
    "a*",
    "*b*",
    "b.txt",
    "***",
    "[a-x]*",
    "[^]a]",
    "[[:alpha:]]?*",
    "*a*b*",
    "[b-a]",
    "a\\",
]
PATTERNS = st.builds(
    lambda bang, slash, parts, end: bang + slash + "/".join(parts) + end,
    st.sampled_from(["", "", "!"]),
    st.sampled_from(["", "", "/"]),
    st.lists(st.sampled_from(ATOMS), min_size=1, max_size=3),
    st.sampled_from(["", "", "/"]),
)
IGNORES = st.dictionaries(st.sampled_from(["", "a", "b", "a/b", "ab"]), st.lists(PATTERNS, max_size=5), max_size=3)


def files_only(paths: list[str]) -> list[str]:
    """Those paths that can exist together: none is a folder of another."""
    folders = {"/".join(p.split("/")[:n]) for p in paths for n in range(1, p.count("/") + 1)}
    return [p for p in paths if p not in folders]


@pytest.mark.process
@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
@settings(max_examples=120)
@given(PATHS, IGNORES)
def test_any_rules_mean_what_they_mean_to_git(tmp_path_factory, paths, ignores):
    root = tmp_path_factory.mktemp("tree")
    texts = {folder: "\n".join(lines) for folder, lines in ignores.items()}
    tree = files_only([*paths, *(f"{folder}/.nniignore".lstrip("/") for folder in texts)])
    build(root, {}, tree)
    for folder, text in texts.items():
        if (root / folder).is_dir():
            (root / folder / ".nniignore").write_text(text)
    assert kept(root) == git_keeps(root)
    shutil.rmtree(root)
