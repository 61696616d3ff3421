"""Commands made of templates.

    qsub -N {name}[[ -q {queue}]] {options} script

`{field}` becomes the field's value as words of the shell, quoted where it has to be, so that nothing of it is a
command. Text in `[[ ]]` is left out if one of its fields has no value.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence

from nnilite.errors import ConfigError, Place

Value = str | int | Sequence[str] | None


class ShellWords(str):
    """Words of the shell, which are quoted already."""

    __slots__ = ()


_OPTIONAL = re.compile(r"\[\[((?:(?!\[\[).)*?)\]\](?!\])", re.DOTALL)
_FIELD = re.compile(r"\{([A-Za-z][A-Za-z0-9]*)\}")
_QUOTED = re.compile(r"""\\.|'[^']*(?:'|\Z)|"(?:\\.|[^"\\])*(?:"|\Z)""", re.DOTALL)
"""A sign after a backslash, or a text in quotes."""
_KEYWORD = r"(?:do|done|else|fi|for|if|in|then|while)\b"
_PROGRAM = re.compile(
    rf"(?:^|[|&;({{]|\b(?:do|if|then|else)\b)[^\S\n]*(?!{_KEYWORD})([a-z_][\w.+-]*)(?=[\s;|)&]|$)", re.MULTILINE
)


def render(template: str, values: Mapping[str, Value]) -> str:
    """Return a shell command.

    >>> render("qsub[[ -q {queue}]][[ -l gpu={gpus}]] {options} script", {"queue": "a b", "gpus": None, "options": []})
    "qsub -q 'a b'  script"
    """

    def optional(match: re.Match[str]) -> str:
        part = match.group(1)
        return part if all(values.get(name) is not None for name in find_fields(part)) else ""

    return _FIELD.sub(lambda found: _quote_words(values.get(found.group(1))), _OPTIONAL.sub(optional, template))


def _quote_words(value: Value) -> str:
    if value is None or isinstance(value, ShellWords):
        return value or ""
    return shlex.quote(str(value)) if isinstance(value, (str, int)) else shlex.join(value)


def find_fields(template: str) -> set[str]:
    """Return the names of the fields in a template."""
    return set(_FIELD.findall(template))


def find_programs(templates: Sequence[str]) -> list[str]:
    """Return the programs that templates call, for a look whether they are there.

    >>> find_programs(["printf x | condor_submit -terse", "condor_q {ids}"])
    ['condor_q', 'condor_submit', 'printf']
    """
    return sorted({name for template in templates for name in _PROGRAM.findall(template)})


def check_template(template: str, values: Mapping[str, Value], place: Place) -> None:
    """Check a template. Raises: ConfigError for an unknown field, one without a value, or one in quotes."""
    known = ", ".join(sorted(values))
    for name in sorted(find_fields(template)):
        if name not in values:
            raise ConfigError(f"there is no field {{{name}}}; there are {known}, and your `values`", place)
    for name in sorted(find_fields(_OPTIONAL.sub("", template))):
        if values[name] is None:
            raise ConfigError(f"{{{name}}} has no value: set it, or write [[ ]] around what is left out then", place)
    for name in _find_quoted(template):
        raise ConfigError(f"{{{name}}} is in quotes; remove them: values are quoted as they are put in", place)


def _find_quoted(template: str) -> Iterator[str]:
    """Return the fields that stand between quotes of the shell."""
    for found in _QUOTED.finditer(template):
        if not found.group().startswith("\\"):
            yield from _FIELD.findall(found.group())
