"""The program of a trial that calls a user's function: it is copied into the function's folder, and runs on workers.

It reads `call.json` and `function.pickle` from its own folder. It needs the SDK and the standard library, Python 3.8
or later.
If something would make every trial fail, such as a missing module, it writes a line that begins with `REFUSED`, and the
calling program ends its run with that sentence.
"""

from __future__ import annotations

import json
import os
import pickle
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, NoReturn

REFUSED = "[nnilite cannot run this function] "
NOTED = "[nnilite] "
RESULTS = "results"
"""The folder, among the trial's files, of results that are not JSON."""

_HERE = os.path.dirname(os.path.abspath(__file__))
_REFUSED_CODE = 78  # EX_CONFIG of sysexits.h
_TERMINATED_CODE = 143  # a shell's exit code for a program ended by SIGTERM


def main() -> None:
    with open(os.path.join(_HERE, "call.json"), encoding="utf-8") as file:
        call = json.load(file)
    # Where the code was sent, its copy lies around this folder; else it is where the caller has it.
    root = os.path.dirname(_HERE) if call["sent"] else call["root"]
    _set_path(call, root)
    _check_python(call)
    _tell_differences(call)
    import nnilite

    _show_sources(call, root)
    function = _load(call)
    reported: list[Any] = []

    def report(value: Any) -> None:
        nnilite.report_intermediate_result(value)
        reported[:] = [value]

    parameters = nnilite.get_next_parameter()
    try:
        value = function(parameters, report) if call["takes_report"] else function(parameters)
    except Exception as error:  # noqa: BLE001  the user's own code, whose traceback is shown as if it had no caller
        if type(error).__name__ == "TrialStopped" and reported:  # it ends itself, with what it has reached
            nnilite.report_final_result(reported[0])
            return
        sys.stdout.flush()
        sys.stderr.write("".join(_traceback(error, call, root)))
        missing = _find_missing(error)
        if missing:  # an import in the function's body, which other trials may not reach
            _say("{}.".format(_lacks(missing, call)))
        sys.stderr.flush()
        sys.exit(1)
    if nnilite._trial.stop.answered:  # it has ended before its time, so this is not its result
        sys.exit(_TERMINATED_CODE)
    nnilite.report_final_result(_result(value, call["objectives"]))


def _set_path(call: dict[str, Any], root: str) -> None:
    """Let this program import what the caller could, of what is here."""
    if os.path.abspath(sys.path[0]) == _HERE:
        del sys.path[0]
    inside = [os.path.join(root, *place.split("/")) if place else root for place in call["inside"]]
    outside = [] if call["sent"] else [place for place in call["outside"] if place not in sys.path]
    sys.path[:0] = inside
    sys.path += outside
    os.environ["PYTHONPATH"] = os.pathsep.join([*inside, *filter(None, [os.environ.get("PYTHONPATH")])])


def _check_python(call: dict[str, Any]) -> None:
    there, here = call["python"], _version()
    if call["by_value"] and there.split(".")[:2] != here.split(".")[:2]:
        _refuse(
            "it was sent as compiled code of Python {}, which Python {} ({}) cannot read. Define it in a module that "
            "can be imported, or name a Python {} for trials: run(function, python='/path/of/python')".format(
                there, here, sys.executable, ".".join(there.split(".")[:2])
            )
        )


def _tell_differences(call: dict[str, Any]) -> None:
    """Write one line on versions that differ from those of the calling program."""
    from importlib import metadata

    found = []
    if call["python"].split(".")[:2] != _version().split(".")[:2]:
        found.append("Python {} ({} in your program)".format(_version(), call["python"]))
    for name, there in sorted(call["packages"].items()):
        try:
            here = metadata.version(name)
        except metadata.PackageNotFoundError:
            found.append(f"no {name} ({there} in your program)")
            continue
        if here != there:
            found.append(f"{name} {here} ({there})")
    if found:
        _say(NOTED + "this worker has " + ", ".join(found))


def _import_sent_cloudpickle() -> None:
    """Import the cloudpickle that was sent with the function: one that is installed here may not read its pickles."""
    library = os.path.join(_HERE, "library")
    if os.path.isdir(library):
        for name in [name for name in sys.modules if name.partition(".")[0] == "cloudpickle"]:
            del sys.modules[name]  # it was preloaded
        sys.path.insert(0, library)
        import cloudpickle  # noqa: F401

        sys.path.remove(library)


def _load(call: dict[str, Any]) -> Callable[..., Any]:
    path = os.path.join(_HERE, "function.pickle")
    try:
        _import_sent_cloudpickle()
        with open(path, "rb") as file:
            function = pickle.load(file)
    except ImportError as error:
        missing = getattr(error, "name", None)
        if not missing:
            _refuse(f"its modules cannot be imported on the worker: {error}")
        _refuse(_lacks(missing, call))
    except Exception as error:  # noqa: BLE001  whatever the user's modules raise while they are imported
        sys.stderr.write("".join(_traceback(error, call, os.path.dirname(_HERE))))
        from nnilite._sdk.safe_text import safe_error_text

        _refuse(f"it cannot be loaded on the worker: {safe_error_text(error)}")
    if not callable(function):
        _refuse(f"{path} holds a {type(function).__name__}, which cannot be called")
    return function  # type: ignore[no-any-return]


def _lacks(missing: str, call: dict[str, Any]) -> str:
    return (
        "the worker's Python ({}) has no module {!r}. Install it there, or put it into the code directory, which "
        "is {}, or name a Python that has it: run(function, python='/path/of/python')"
    ).format(sys.executable, missing, call["root"])


def _find_missing(error: BaseException | None) -> str:
    """Return the module whose lack is the error, or its cause; "" if it is another error."""
    while error is not None:
        if isinstance(error, ModuleNotFoundError):
            return error.name or ""
        error = error.__cause__
    return ""


def _result(value: Any, objectives: list[str]) -> Any:
    """Return what is reported: the result, with its parts in files if they are not JSON."""
    import nnilite

    if isinstance(value, dict):
        value = {str(name): _kept(str(name), part, name in objectives) for name, part in value.items()}
    wanted = _wanted(objectives)
    if not isinstance(value, dict) and objectives != ["default"]:
        _refuse(f"it returned {_shorten(value)}. {wanted}")
    if isinstance(value, dict) and not all(name in value for name in objectives):
        missing = [name for name in objectives if name not in value]
        _refuse("it returned a dict without {}: {}. {}".format(" and ".join(missing), _shorten(value), wanted))
    for number in [value[name] for name in objectives] if isinstance(value, dict) else [value]:
        try:
            plain = nnilite._number(number)
        except TypeError:
            plain = number
        if not isinstance(plain, (int, float)):
            _refuse(f"it returned {_shorten(number)}, which is not a number. {wanted}")
    return value


def _wanted(objectives: list[str]) -> str:
    if objectives == ["default"]:
        return "Return a number, or a dict with one under 'default'"
    return "Return a dict with numbers under {}".format(", ".join(objectives))


def _kept(name: str, part: Any, counts: bool) -> Any:
    """Return a part of a result, or the path of the file that has it if it is not JSON."""
    import nnilite

    if counts:
        return part
    try:
        return json.loads(nnilite._text(part))
    except (TypeError, ValueError, RecursionError):
        pass
    plain = "".join(sign if sign.isalnum() or sign in "-_." else "_" for sign in name).lstrip(".") or "result"
    folder = os.environ.get("NNI_OUTPUT_DIR") or "."
    path = f"{RESULTS}/{plain}.pickle"
    try:
        os.makedirs(os.path.join(folder, RESULTS), exist_ok=True)
        with open(os.path.join(folder, path), "wb") as file:
            _pickler().dump(part, file)
    except Exception as error:
        if isinstance(error, OSError):
            raise
        from nnilite._sdk.safe_text import safe_error_text

        _say(NOTED + f"the result {name!r} is not kept: {safe_error_text(error)}")
        return None
    return path


def _pickler() -> Any:
    try:
        import cloudpickle
    except ImportError:
        return pickle
    return cloudpickle


def _show_sources(call: dict[str, Any], root: str) -> None:
    """Let tracebacks show lines of files that are elsewhere here, or that only the calling program has."""
    import linecache

    sources = dict(call["sources"])
    if call["sent"]:
        prefix = call["root"] + os.sep
        for name in call["files"]:
            if name.startswith(prefix):
                text = _text_of(os.path.join(root, name[len(prefix) :]))
                if text is not None:
                    sources.setdefault(name, text)
    for name, text in sources.items():
        linecache.cache[name] = (len(text), None, text.splitlines(True), name)


def _text_of(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except (OSError, UnicodeDecodeError):
        return None


def _traceback(error: BaseException, call: dict[str, Any], root: str) -> Iterator[str]:
    """Yield the traceback without this program, with the names of files as the calling program has them."""
    import traceback

    # The first frame, if it is a file of ours, is the call from here.
    exception = traceback.TracebackException(type(error), error, error.__traceback__)
    for one in _chain(exception):
        kept = [frame for frame in one.stack if frame.filename not in (__file__, os.path.abspath(__file__))]
        one.stack[:] = kept
        for number, frame in enumerate(kept):
            if call["sent"] and frame.filename.startswith(root + os.sep):
                frame.line  # noqa: B018  read now, while the file's own name is known
                one.stack[number] = _renamed(frame, call["root"] + frame.filename[len(root) :])
    return exception.format()


def _chain(exception: Any) -> Iterator[Any]:
    seen = set()
    waiting = [exception]
    while waiting:
        one = waiting.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        waiting += [one.__cause__, one.__context__, *(getattr(one, "exceptions", None) or [])]


def _renamed(frame: Any, name: str) -> Any:
    frame.filename = name
    return frame


def _shorten(value: Any) -> str:
    from nnilite._sdk.safe_text import safe_repr

    return f"{safe_repr(value)} ({type(value).__name__})"


def _version() -> str:
    return "{}.{}.{}".format(*sys.version_info)


def _say(line: str) -> None:
    sys.stderr.write(line.replace("\n", " ") + "\n")
    sys.stderr.flush()


def _refuse(sentence: str) -> NoReturn:
    sys.stdout.flush()
    _say(REFUSED + sentence)
    sys.exit(_REFUSED_CODE)


if __name__ == "__main__":
    main()
