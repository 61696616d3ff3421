"""For plugins that turn what another program runs into configurations of nnilite: `nnictl config convert --from NAME`.

A converter is a function under the entry point group `nnilite.config_converters`; the entry point's name is what comes
after `--from`. The command reads the file (YAML, JSON or TOML), finds the line of a ConfigError by its field, and
prints the result; so a converter neither reads nor prints.

    def convert(document: Mapping[str, Json]) -> Conversion:
        if "searcher" not in document:
            raise ConfigError("is missing", Place(field="searcher"))
        return Conversion({"trialCommand": document["entrypoint"]}, ("labels: nnilite has no labels",))
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nnilite.records import Json

__all__ = ["Conversion", "Converter"]


@dataclass(frozen=True)
class Conversion:
    """The outcome for one file."""

    config: Mapping[str, Json]
    """A configuration, or a part of one; its keys as in the YAML, in the order in which they are printed."""
    notes: Sequence[str] = ()
    """What could not be converted, and what is still to be written: a sentence each, without a full stop."""
    comments: Sequence[str] = ()
    """What was changed, a line each. They are printed above the YAML as its comments."""


Converter = Callable[[Mapping[str, Any]], Conversion]
"""From the document in a file to its conversion. Raises: ConfigError, with a dotted path of the document as field."""
