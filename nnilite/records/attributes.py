"""What the code of a trial sets about it, within limits: every list of trials shows it."""

from __future__ import annotations

import json
from collections.abc import Mapping

from nnilite.records.record_types import ATTRIBUTE_NAME_MAX, Json

ATTRIBUTES_MAX = 100
ATTRIBUTES_CHARS_MAX = 10_000


def set_within_limits(known: Mapping[str, Json], name: str, value: Json) -> tuple[Mapping[str, Json], str]:
    """Return the attributes with one more or another value, and why it is refused; "" if it is not.

    Example: `set_within_limits({}, "device", "cpu")` is `({"device": "cpu"}, "")`.
    """
    if not 0 < len(name) <= ATTRIBUTE_NAME_MAX:
        return known, f"its name must have 1 to {ATTRIBUTE_NAME_MAX} characters"
    changed = {**known, name: value}
    if len(changed) > ATTRIBUTES_MAX:
        return known, f"a trial has at most {ATTRIBUTES_MAX} attributes"
    if len(json.dumps(changed)) > ATTRIBUTES_CHARS_MAX:
        return known, f"the attributes of a trial have at most {ATTRIBUTES_CHARS_MAX:,} characters as JSON"
    return changed, ""
