"""Print how large the house is and how much a change touches, to compare with an earlier commit.

scripts/house_figures.py           of the files in this folder
scripts/house_figures.py f6cf8a7   of a commit
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ("nnilite", "training_services", "tuners")
FILE_MAX, METHODS_MAX = 500, 25
OPTION = "trialGpuNumber"
# What plugins implement: a method counts in the class that has it, as in tests/unit/test_layout.py.
INTERFACES = {"TrainingService", "BatchService", "JobWatch", "Tuner", "Assessor"}
PLATFORM = "dlts"  # one that many lists would name, if they named platforms

Files = dict[str, str]  # the text of each file, by its path


def read_folder() -> Files:
    listed = subprocess.run(["git", "ls-files", "*.py", "*.toml"], cwd=ROOT, capture_output=True, text=True, check=True)
    paths = ((name, ROOT / name) for name in listed.stdout.splitlines())
    return {name: path.read_text("utf-8") for name, path in paths if path.exists()}


def read_commit(commit: str) -> Files:
    def run(*words: str, given: str = "") -> bytes:
        return subprocess.run(["git", *words], cwd=ROOT, input=given.encode(), capture_output=True, check=True).stdout

    names = run("ls-tree", "-r", "--name-only", commit).decode().splitlines()
    names = [name for name in names if name.endswith((".py", ".toml"))]
    answer, files = run("cat-file", "--batch", given="".join(f"{commit}:{name}\n" for name in names)), {}
    for name in names:
        head, _, answer = answer.partition(b"\n")
        size = int(head.split()[-1])
        files[name], answer = answer[:size].decode(), answer[size + 1 :]
    return files


def class_sizes(files: Files) -> Iterator[tuple[str, int, int]]:
    """Yield each class with the number of its methods, and the number with those of its bases in these files."""
    known: dict[str, tuple[set[str], list[str]]] = {}
    for text in files.values():
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ClassDef):
                methods = {one.name for one in node.body if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)}
                bases = [base.value if isinstance(base, ast.Subscript) else base for base in node.bases]
                known[node.name] = methods, [getattr(base, "attr", getattr(base, "id", "")) for base in bases]

    def whole(name: str, seen: frozenset[str] = frozenset()) -> set[str]:
        methods, bases = known[name]
        seen |= {name} | INTERFACES
        above = [whole(base, seen) for base in bases if base in known and base not in seen]
        return methods.union(*above)

    for name, (methods, _) in known.items():
        yield name, len(methods), len(whole(name))


def measure(files: Files) -> Iterator[tuple[str, int]]:
    """Yield each figure."""
    ours = {name: text for name, text in files.items() if name.startswith(SOURCES) and name.endswith(".py")}
    sizes = list(class_sizes(ours))
    plugins = {name: text for name, text in ours.items() if name.startswith("training_services/")}
    lines = {name: text.count("\n") for name, text in files.items() if name.endswith(".py")}
    flat = [name for name in ours if re.fullmatch(r"nnilite/(?!__)\w+\.py", name)]
    yield "lines of training services", sum(lines[name] for name in plugins)
    yield "... without batch", sum(lines[name] for name in plugins if "nnilite_batch" not in name)
    yield "lines of the core", sum(lines[name] for name in ours if name.startswith("nnilite/"))
    yield "modules that lie flat in nnilite", len(flat)
    yield f"files of over {FILE_MAX} lines", sum(count > FILE_MAX for count in lines.values())
    yield f"classes of over {METHODS_MAX} methods", sum(own > METHODS_MAX for _, own, _ in sizes)
    yield "... with those of their bases", sum(whole > METHODS_MAX for _, _, whole in sizes)
    yield f"files that spell {OPTION}", sum(OPTION in text for text in ours.values())
    naming = [line for line in files["pyproject.toml"].splitlines() if PLATFORM in line.lower()]
    yield f"lines of pyproject.toml that name a platform ({PLATFORM})", len(naming)


def main() -> None:
    files = read_commit(sys.argv[1]) if sys.argv[1:] else read_folder()
    for name, figure in measure(files):
        print(f"{figure:8,}  {name}")


if __name__ == "__main__":
    main()
