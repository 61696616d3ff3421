"""Hides secrets, found by the names of their fields, even in a config whose shape is wrong."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from nnilite.config._fields import as_mapping, normalize_name
from nnilite.records import Json
from nnilite.units import HIDDEN, SecretText

_TELLING = ("password", "passwd", "passphrase", "secret", "token", "accesskey", "apikey", "credential")
_SUSPECT = (*_TELLING, "credentials", "key")
"""Ends of names whose values no error may quote, such as those of `azureKey` and `storageAccountKey`."""

_IN_TEXT = re.compile(r"(?is)((?:password|passwd|passphrase|secret|token|credentials?|_?key)['\"]*\s*[:=]).+")
_NAMED = re.compile(r"(?is)((?:(?<![a-z])pwd|(?-i:_PASS)|authorization)['\"]*\s*[:=]|\bbearer ).+")
# Keys of GitHub, GitLab, Hugging Face, OpenAI, Slack, AWS, Google, npm, PyPI and Docker by their beginnings,
# and JSON web tokens.
_BY_SHAPE = re.compile(
    r"\b(?:gh[oprsu]_|github_pat_|glpat-|hf_|sk-|xox[abeoprs]-|AKIA|ASIA|AIza|npm_|pypi-|dckr_pat_|eyJ)[\w.=-]{12,}"
)
_IN_ADDRESS = re.compile(r"(://[^/\s:@]*:)[^/\s@]+@")
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")


def without_secrets(value: Json) -> Json:
    """JSON without secrets: texts are hidden if their key says that they are secret."""
    if isinstance(value, Mapping):
        return {
            key: HIDDEN if isinstance(item, str) and normalize_name(key).endswith(_TELLING) else without_secrets(item)
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [without_secrets(item) for item in value]
    return HIDDEN if isinstance(value, SecretText) else value


def masked(raw: Any, path: Sequence[str | int] = ()) -> Any:
    """Return the value at `path` in a form that an error may quote."""
    raw = as_mapping(raw)
    if any(isinstance(part, str) and _is_suspect(part) for part in path):
        return HIDDEN
    if isinstance(raw, Mapping):
        return {
            masked_text(key) if isinstance(key, str) else key: masked(item, (str(key),)) for key, item in raw.items()
        }
    if isinstance(raw, (list, tuple)):
        # A subclass, such as a named tuple, may not be made from its items, so it is hidden as a whole.
        return type(raw)(masked(item) for item in raw) if type(raw) in (list, tuple) else HIDDEN
    return masked_text(raw) if isinstance(raw, str) else raw


def masked_space(space: Json) -> Json:
    """Return a search space in a form that errors may quote.

    A parameter may be called `token`, but then it is an object.
    """
    if isinstance(space, Mapping):
        return {key: _mask_parameter(str(key), item) for key, item in space.items()}
    if isinstance(space, list):
        return [masked_space(item) for item in space]
    return masked_text(space) if isinstance(space, str) else space


def _mask_parameter(name: str, item: Json) -> Json:
    is_secret = not isinstance(item, Mapping) and normalize_name(name).endswith(_TELLING)
    return HIDDEN if is_secret else masked_space(item)


def masked_text(text: str) -> str:
    """Return a text without secrets that a user may have put into it, as in `password:x` or `https://me:x@host`."""
    for pattern, shown in (
        (_IN_TEXT, rf"\g<1>{HIDDEN}"),
        (_NAMED, rf"\g<1>{HIDDEN}"),
        (_IN_ADDRESS, rf"\g<1>{HIDDEN}@"),
        (_BY_SHAPE, HIDDEN),
    ):
        text = pattern.sub(shown, text)
    return text


def masked_problem(problem: str, line: str) -> str:
    """Return a parser's message on a line, without its quotations if that line has a secret."""
    return problem if masked_text(line) == line else _QUOTED.sub(HIDDEN, problem)


def fault_of(parse: Callable[[Any], Any], raw: Any, path: Sequence[str | int], message: str) -> str:
    """Return the message of `parse` on `raw`; if that could show a secret, its message on the masked value."""
    # YAML makes this of a name in braces, such as {your_server} in the examples of NNI.
    if isinstance(raw, Mapping) and list(raw.values()) == [None]:
        return f"must be your own value in place of {{{masked_text(str(next(iter(raw))))}}}"
    shown = masked(raw, path)
    if shown == raw:
        return message
    try:
        parse(shown)
    except ValueError as error:
        return str(error)
    return "cannot be used as it is; it is not shown, since it may hold a secret"


def _is_suspect(name: str) -> bool:
    return normalize_name(name).endswith(_SUSPECT)
