"""Reads single annotations of NNI: what each says, or what is wrong with it."""

from __future__ import annotations

import ast
import difflib
import math
from dataclasses import dataclass, field

from nnilite._nni.program_text import parse_python
from nnilite.errors import SpaceError
from nnilite.records import Json
from nnilite.space import SearchSpace

MARK = "@nni."
REPORTS = ("report_intermediate_result", "report_final_result", "get_next_parameter")
"""Annotations that are calls already."""

_ARGUMENTS = {
    "choice": (),
    "randint": ("lower", "upper"),
    **dict.fromkeys(("uniform", "loguniform"), ("low", "high")),
    **dict.fromkeys(("quniform", "qloguniform"), ("low", "high", "q")),
    **dict.fromkeys(("normal", "lognormal"), ("mu", "sigma")),
    **dict.fromkeys(("qnormal", "qlognormal"), ("mu", "sigma", "q")),
}
"""The types of parameters that an annotation may have, with the names of their arguments."""
_ARCHITECTURES = ("mutable_layers", "mutable_layer", "training_update", "dynamic")
_NAMES = ("variable", "function_choice", *REPORTS)


class AnnotationError(Exception):
    """What is wrong with an annotation, as the end of a sentence that begins with it."""


@dataclass(frozen=True)
class Choices:
    """A parameter that an annotation describes."""

    name: str
    """The variable or function that it is for, as text."""
    kind: str
    """The word in the parameter's name: its type, or `function_choice`."""
    parameter: dict[str, Json]
    options: list[tuple[Json, ast.expr]] = field(default_factory=list)
    """Of a choice whose options are not all plain values: each with what stands for it in the search space."""


def find_annotation(statement: ast.stmt) -> str:
    """Return the call that a statement stands for, without `@`; "" if it is not an annotation."""
    if not (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)):
        return ""
    value = statement.value.value
    return value.strip()[1:] if isinstance(value, str) and value.strip().startswith(MARK) else ""


def read_call(annotation: str) -> tuple[str, ast.Call]:
    """Return the name of the annotation, and its call. Raises: AnnotationError."""
    try:
        # In parentheses, lines may be broken and indented everywhere.
        parsed = parse_python(f"({annotation}\n)", "eval")
    except (SyntaxError, ValueError) as error:
        raise AnnotationError(f"is not Python: {getattr(error, 'msg', error)}") from None
    call = parsed.body if isinstance(parsed, ast.Expression) else parsed
    if not isinstance(call, ast.Call):
        raise AnnotationError("is not a call")
    name = _find_function(call)
    if name in _ARCHITECTURES:
        raise AnnotationError(f"nni.{name} searches architectures, which nnilite does not")
    if name not in _NAMES:
        close = difflib.get_close_matches(name, _NAMES, n=1)
        meant = f"did you mean nni.{close[0]}?" if close else f"NNI has nni.{', nni.'.join(_NAMES)}"
        raise AnnotationError(f"nni.{name} is unknown; {meant}")
    if name in REPORTS[:2] and len(call.args) + len(call.keywords) != 1:
        raise AnnotationError(f"nni.{name} needs one value to report")
    return name, call


def read_variable(call: ast.Call) -> Choices:
    """Read `nni.variable(nni.TYPE(...), name=VARIABLE)`. Raises: AnnotationError."""
    name = _find_name(call)
    kind = call.args[0] if len(call.args) == 1 else None
    if not isinstance(kind, ast.Call) or _find_function(kind) not in _ARGUMENTS:
        raise AnnotationError(f"needs one of {', '.join(f'nni.{one}' for one in _ARGUMENTS)}")
    word = _find_function(kind)
    if word != "choice":
        values = [_read_number(argument) for argument in _order_arguments(kind, word)]
        return Choices(name, word, _check(word, [0, *values] if (word, len(values)) == ("randint", 1) else values))
    if kind.keywords:
        raise AnnotationError("nni.choice takes options without keywords")
    written = {ast.unparse(argument): argument for argument in kind.args}
    options = [(_find_stand_in(argument), argument) for argument in written.values()]
    parameter = _check("choice", [stand_in for stand_in, _ in options])
    return Choices(name, word, parameter, [] if all(map(_is_plain, written.values())) else options)


def read_function_choice(call: ast.Call) -> Choices:
    """Read `nni.function_choice(CALL, ..., name=FUNCTION)`. Raises: AnnotationError."""
    options = {ast.unparse(argument): argument for argument in call.args}
    return Choices(_find_name(call), "function_choice", _check("choice", list(options)), list(options.items()))


# ------------------------------------------------------------ the parts of a call


def _find_function(call: ast.Call) -> str:
    function = call.func
    if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name) and function.value.id == "nni":
        return function.attr
    raise AnnotationError(f"{ast.unparse(function)} is not a function of nni")


def _find_name(call: ast.Call) -> str:
    if [keyword.arg for keyword in call.keywords] != ["name"]:
        raise AnnotationError("needs the one keyword `name`")
    name = call.keywords[0].value
    return name.value if isinstance(name, ast.Constant) and isinstance(name.value, str) else ast.unparse(name)


def _order_arguments(kind: ast.Call, word: str) -> list[ast.expr]:
    """Return the arguments of a type in order, those with keywords, too."""
    names = _ARGUMENTS[word][len(kind.args) :]
    given = {keyword.arg: keyword.value for keyword in kind.keywords}
    if not given:
        return kind.args
    if set(given) != set(names):
        raise AnnotationError(f"nni.{word} takes {', '.join(_ARGUMENTS[word])}")
    return [*kind.args, *(given[name] for name in names)]


def _read_number(argument: ast.expr) -> float:
    value = _evaluate(argument)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise AnnotationError(f"{ast.unparse(argument)} must be written as a number")
    return value


def _find_stand_in(argument: ast.expr) -> Json:
    """Return what stands for an option in the search space: the value of a literal, or its text in the program."""
    if isinstance(argument, ast.Starred):
        raise AnnotationError(f"{ast.unparse(argument)} must be written as single options")
    value: Json = _evaluate(argument) if _is_plain(argument) else ast.unparse(argument)
    return value


def _is_plain(argument: ast.expr) -> bool:
    """Whether an option is written as a value that JSON has, too."""
    value = _evaluate(argument)
    if value is None:
        return isinstance(argument, ast.Constant)
    return isinstance(value, (str, bool, int)) or (isinstance(value, float) and math.isfinite(value))


def _evaluate(argument: ast.expr) -> object:
    """Return the value of a literal; None for anything else."""
    try:
        value: object = ast.literal_eval(argument)
    except (ValueError, TypeError, SyntaxError):
        return None
    return value


def _check(kind: str, values: list[Json]) -> dict[str, Json]:
    parameter: dict[str, Json] = {"_type": kind, "_value": values}
    try:
        SearchSpace.parse({"x": parameter})
    except SpaceError as error:
        raise AnnotationError(f"cannot be a parameter: {error.message}") from None
    return parameter
