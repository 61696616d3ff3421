"""The folder that trials get: the function, the program that calls it and, where code is sent, the user's code.

It lies in the experiment's own folder. Training services that run trials in the user's folder itself get only the
function by it, others a copy of the code directory as it is now, with the same rules and limits as for commands.
"""

from __future__ import annotations

import json
import shlex
import shutil
import sys
import sysconfig
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from nnilite._functions import call_program
from nnilite._functions.pickled import MAIN_MODULES, PickledFunction, packages_of, pickle_function
from nnilite._search.function_arguments import name_of, takes_report, unwrap
from nnilite.codedir import DEFAULT_IGNORES, PackageLimits, list_files
from nnilite.errors import Conflict

NAME = "function"
"""The folder's name within that of the experiment."""

INNER = "nnilite_function"
"""The function's part of the code that is sent."""

_PROGRAM = "call.py"


@dataclass(frozen=True)
class CalledFunction:
    """A function that trials call. `root`: the user's code directory; `python`: what starts Python on workers.

    `sent`: the code is sent to workers, as everywhere but where trials run in the folder itself.
    """

    function: PickledFunction
    name: str
    takes_report: bool
    objectives: Sequence[str]
    root: Path
    sent: bool
    python: str | None = None

    def command(self, experiment: Path) -> str:
        """Return the trial command. `experiment`: the folder of the experiment."""
        if self.sent:
            return f"{self.python or 'python3'} {INNER}/{_PROGRAM}"
        return f"{self.python or shlex.quote(sys.executable)} {shlex.quote(str(experiment / NAME / _PROGRAM))}"

    def code_directory(self, experiment: Path) -> Path:
        return experiment / NAME if self.sent else self.root

    def write(self, experiment: Path, limits: PackageLimits) -> None:
        """Write the folder, in the place of one that is there. Raises: CodeDirError, OSError."""
        draft, folder = experiment / f"{NAME}.new", experiment / NAME
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(mode=0o700)
        inner = draft
        if self.sent:
            _copy(self.root, draft, limits)
            inner = draft / INNER
            if inner.exists():
                raise Conflict(f"{self.root / INNER} is in the way of nnilite's own folder in the code; rename it.")
            inner.mkdir()
        program = Path(call_program.__file__).read_text("utf-8")
        (inner / _PROGRAM).write_text(program, "utf-8")
        (inner / "function.pickle").write_bytes(self.function.data)
        (inner / "call.json").write_text(json.dumps(self._facts(), indent=1), "utf-8")
        if self.function.by_value:
            _copy_cloudpickle(inner / "library")
        shutil.rmtree(folder, ignore_errors=True)
        draft.rename(folder)

    def _facts(self) -> dict[str, Any]:
        inside, outside = _path_entries(self.root)
        return {
            "name": self.name,
            "takes_report": self.takes_report,
            "objectives": list(self.objectives),
            "sent": self.sent,
            "root": str(self.root),
            "inside": inside,
            "outside": outside,
            "by_value": self.function.by_value,
            "python": "{}.{}.{}".format(*sys.version_info),
            "packages": packages_of(self.function.modules) if self.sent or self.python else {},
            "sources": dict(self.function.sources),
            "files": [self.function.file] if self.function.file else [],
        }


def prepare_function(
    function: Callable[..., Any],
    objectives: Sequence[str],
    *,
    root: Path | None,
    sent: bool,
    python: str | None = None,
    searched: Container[object] = (),
) -> CalledFunction:
    """Prepare a function for trials. `root`: the code directory; None: where the function's module lies.

    `searched` has the names of the parameters.

    Raises: Conflict if the function cannot be called or sent, or needs modules that are not in the code directory.
    """
    wants_report = takes_report(function, searched)
    made = pickle_function(function)
    place = (root or code_root(function)).absolute()
    if sent:
        _check_modules(made, place)
    return CalledFunction(made, name_of(function), wants_report, objectives, place, sent, python)


def code_root(function: Callable[..., Any]) -> Path:
    """Return the folder from which the function's module is imported; the current one if it was typed in."""
    module = getattr(unwrap(function), "__module__", None) or "__main__"
    for name in (module, "__main__"):
        found = _root_of(name)
        if found is not None and not _is_installed(found):
            return found
    return Path.cwd()


def _root_of(name: str) -> Path | None:
    module = sys.modules.get(name)
    file = getattr(module, "__file__", None)
    if not file:
        return None
    path = Path(file).absolute()
    spec = getattr(module, "__spec__", None)
    dotted = spec.name if name in MAIN_MODULES and spec is not None else name
    # The script of `python -m package.module` and any module of a package are imported from above the package.
    levels = dotted.count(".") + (path.name == "__init__.py")
    return path.parents[min(levels, len(path.parents) - 1)]


def _is_installed(path: Path) -> bool:
    if {"site-packages", "dist-packages"} & set(path.parts):
        return True
    standard = sysconfig.get_paths()
    return any(path.is_relative_to(standard[key]) for key in ("stdlib", "platstdlib"))


def _check_modules(function: PickledFunction, root: Path) -> None:
    """Check that modules of the user's own, which are installed nowhere, travel. Raises: Conflict."""
    for name in sorted(function.modules):
        top = name.partition(".")[0]
        found = None if top in MAIN_MODULES else _root_of(top)
        if found is None or _is_installed(found) or top in ("nnilite", *sys.builtin_module_names):
            continue
        if not found.is_relative_to(root) and not _is_a_distribution(top):
            raise Conflict(
                f"the function needs the module {name} ({sys.modules[top].__file__}), which is not in the code "
                f"directory {root}. Give a code directory that has both: run(..., code_directory='...')."
            )


def _is_a_distribution(top: str) -> bool:
    from importlib import metadata

    return top in metadata.packages_distributions()


def _path_entries(root: Path) -> tuple[list[str], list[str]]:
    """Return the folders from which this program imports: those in `root`, relative to it, and the others."""
    inside, outside = [""], []
    for entry in sys.path:
        path = Path(entry or ".").absolute()
        if path.is_relative_to(root) and not _is_installed(path):
            place = path.relative_to(root).as_posix()
            inside += [place] if place not in (".", *inside) else []
        else:
            outside.append(str(path))
    return inside, outside


def _copy(root: Path, target: Path, limits: PackageLimits) -> None:
    """Copy what of a code directory is sent. Raises: CodeDirError."""
    listed = list_files(root, limits)
    # The rules of ignore files have been applied.
    kept = tuple(file for file in listed.files if Path(file.path).name != ".nniignore")
    replace(listed, files=kept).copy(target)
    # All that has been copied is wanted, also what a rule of the user's takes back.
    (target / ".nniignore").write_text("".join(f"!{rule}\n" for rule in DEFAULT_IGNORES), "utf-8")


def _copy_cloudpickle(target: Path) -> None:
    import cloudpickle

    folder = Path(cloudpickle.__file__).parent
    shutil.copytree(folder, target / "cloudpickle", ignore=shutil.ignore_patterns("__pycache__"))
