"""Prints the results of commands: tables and colours on a terminal, the same as plain lines into a pipe, or JSON.

rich is imported only for a terminal. Text from elsewhere (names, parameters, messages) loses its control
characters first: a trial's message must not be able to move the cursor.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from nnilite._cli.command_line import printable
from nnilite._unprintable import UNPRINTABLE

if TYPE_CHECKING:
    from rich.console import Console

COLOURS = {
    "WAITING": "yellow",
    "RUNNING": "cyan",
    "SUCCEEDED": "green",
    "DONE": "green",
    "FAILED": "red",
    "ERROR": "red",
    "EARLY_STOPPED": "magenta",
    "USER_CANCELED": "bright_black",
    "SYS_CANCELED": "bright_black",
    "STOPPED": "bright_black",
}


LONG_LIST = 100
"""A list of more items than this is printed as JSON with an item on each line."""


_NOT_ASCII = re.compile(f"{UNPRINTABLE.pattern}|[^\x00-\x7f]")


def is_terminal() -> bool:
    """Return whether standard output is a terminal."""
    return sys.stdout.isatty()


def console() -> Console:
    """Return rich's console on standard output, set not to change the text."""
    from rich.console import Console

    return Console(markup=False, emoji=False, highlight=False)


def show_json(data: Any) -> None:
    """Print JSON for scripts: one document, stable order; NaN and infinities as strings, as on the wire.

    Each item of a long list is on a line of its own: Python writes that ten times as fast as the indented form.
    """
    from nnilite._running.manager_connection import write_strict_json

    if isinstance(data, list) and len(data) > LONG_LIST:
        text = "[\n" + ",\n".join(map(write_strict_json, data)) + "\n]"
    else:
        text = write_strict_json(data, indent=4)
    is_utf8 = (sys.stdout.encoding or "utf-8").lower() == "utf-8"
    escaped = UNPRINTABLE if is_utf8 else _NOT_ASCII  # the other encodings lack most characters
    print(escaped.sub(_spell_character, text))


def _spell_character(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\u{code:04x}" if code < 1 << 16 else json.dumps(found[0])[1:-1]


def show_table(columns: Sequence[str], rows: Sequence[Sequence[object]], empty: str, spare: Sequence[str] = ()) -> None:
    """Print rows under their columns, or the sentence `empty` if there are none.

    On a terminal that is too narrow, columns of `spare` are cut short or left out, the first one first: each row stays
    one line, and ids and addresses stay whole.
    """
    cells = [[clean(value) for value in row] for row in rows]
    if not cells:
        print(empty)
    elif is_terminal():
        _print_rich_table(columns, cells, spare)
    else:
        _print_plain_table(columns, cells)


def _print_rich_table(columns: Sequence[str], cells: Sequence[Sequence[str]], spare: Sequence[str]) -> None:
    from rich.table import Table
    from rich.text import Text

    out = console()
    widths = fitting(columns, cells, spare, out.width) if spare else {}
    table = Table(box=None, header_style="bold", pad_edge=False)
    for name in columns:
        if not spare:
            table.add_column(name)
        elif name in widths:
            table.add_column(name, no_wrap=True, overflow="ellipsis", min_width=widths[name], max_width=widths[name])
    shown = [place for place, name in enumerate(columns) if not spare or name in widths]
    for row in cells:
        table.add_row(*(Text(row[place], style=COLOURS.get(row[place], ""), overflow=_cut(spare)) for place in shown))
    # Ids and addresses stay whole even if they are wider than the terminal: people copy them.
    out.print(table, crop=not spare, soft_wrap=bool(spare))
    left = [name for name in columns if spare and name not in widths]
    if left:
        print(f"({', '.join(left)}: only in a wider terminal, or with --json)")


def _cut(spare: Sequence[str]) -> Literal["ellipsis", "fold"]:
    return "ellipsis" if spare else "fold"


_GAP = 2  # spaces between columns
_COMFORT = 24  # columns are cut to this width before others are cut further or left out
_LEAST = 12  # a column that is cut shorter says nothing


def _over(widths: Mapping[str, int], room: int) -> int:
    """Return how many characters the columns are too wide."""
    return sum(widths.values()) + _GAP * (len(widths) - 1) - room


def fitting(columns: Sequence[str], cells: Sequence[Sequence[str]], spare: Sequence[str], room: int) -> dict[str, int]:
    """Return the widths of the columns that fit into `room` characters; those of `spare` are cut or left out."""
    parts = zip(columns, *cells, strict=True)
    widths = {part[0]: max(map(len, part)) for part in parts}
    for name in reversed(spare):
        widths[name] = max(widths[name] - max(_over(widths, room), 0), min(_COMFORT, widths[name]))
    for name in spare:
        over = _over(widths, room)
        if over > 0:
            cut = widths[name] - over
            if cut >= min(_LEAST, widths[name]):
                widths[name] = cut
            else:
                del widths[name]
    return widths


def _print_plain_table(columns: Sequence[str], cells: Sequence[Sequence[str]]) -> None:
    widths = [max(map(len, column)) for column in zip(columns, *cells, strict=True)]
    for row in (columns, *cells):
        line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        print(line.rstrip())


def show_facts(facts: Mapping[str, object]) -> None:
    """Print names and values, one per line, aligned. Values that are None are left out."""
    known = {name: clean(value) for name, value in facts.items() if value is not None}
    width = max(map(len, known), default=0) + 2
    for name, value in known.items():
        print(f"{name + ':':{width}}{value}")


def clean(value: object) -> str:
    """Return one printable line of a value."""
    text = number(value) if isinstance(value, float) else "" if value is None else str(value)
    return printable(text).replace("\n", "\\n")


TRACEBACK = "Traceback (most recent call last):"


def brief(text: str) -> str:
    """Return the first line of a text and its error, the most important ones of an exit code with a traceback.

    An error that the first line has already is left out; a traceback may name its error's module, too.
    """
    from nnilite.records import find_error_line  # `nnictl --help` needs no records

    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    if len(lines) < 2:
        return clean(lines[0]) if lines else ""
    error = find_error_line(text)
    message = error.partition(": ")[2] or error
    return clean(lines[0] if lines[0].endswith(message) else f"{lines[0]}: {error}")


def show_traceback(text: str) -> None:
    """Print all lines of a text that has a traceback."""
    _, mark, lines = text.partition(TRACEBACK)
    for line in f"{mark}{lines}".splitlines():
        print(f"  {clean(line)}")


def number(value: float) -> str:
    """Format a number for people, with six significant digits."""
    return f"{value:.6g}"


WIDEST_METRIC = 100
"""How many characters of a metric are shown, as it may have a megabyte."""


def exact(value: float) -> str:
    """Return all digits of a number, without those that only binary fractions cause: 0.1 + 0.2 is 0.3, 40.0 is 40."""
    if value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    # A sum such as 0.1 + 0.2 needs 17 digits. One that needs one or two more than 15 was probably meant so.
    short, long = f"{value:.15g}", repr(value)
    return short if len(short) + 3 < len(long) else long


def metric(value: Any) -> str:
    """Format a metric on one line: the number, or a dict's `default` and the rest."""
    text = _metric(value)
    return text if len(text) <= WIDEST_METRIC else f"{text[:WIDEST_METRIC]}..."


def _metric(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{clean(key)}={_metric(part)}" for key, part in value.items())
    if isinstance(value, float):
        return number(value)
    return "" if value is None else clean(value)


def parameters(values: Any) -> str:
    """Format a set of parameters on one line: `lr=0.1 act=relu layer={size=3}`."""
    if not isinstance(values, dict):
        return clean(json.dumps(values, ensure_ascii=False) if isinstance(values, (list, bool)) else values)
    return " ".join(f"{clean(key)}={_parameter(part)}" for key, part in values.items())


def _parameter(value: Any) -> str:
    return f"{{{parameters(value)}}}" if isinstance(value, dict) else parameters(value)


def amount(count: int, things: str) -> str:
    """Return a number with what it counts: `1 trial` of 1 and `trials`."""
    return f"{count} {things.removesuffix('s') if count == 1 else things}"


def moment(seconds: float | None) -> str | None:
    """Format a time of day with its date, in this machine's time zone."""
    return None if seconds is None else time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))


def span(seconds: float | None) -> str | None:
    """Format a duration for people: `8.2s`, `4m 10s`, `1h 02m`, `3d 4h`."""
    if seconds is None:
        return None
    whole = round(seconds)
    if whole < 60:
        return f"{max(seconds, 0.0):.1f}s"
    if whole < 3600:
        return f"{whole // 60}m {whole % 60:02}s"
    if whole < 86400:
        return f"{whole // 3600}h {whole % 3600 // 60:02}m"
    return f"{whole // 86400}d {whole % 86400 // 3600}h"


def money(amount: float | None) -> str | None:
    """Format an amount in the currency of the config: two decimals, or more digits if it is very small."""
    if amount is None:
        return None
    return f"{amount:.2f}" if amount >= 1 or amount == 0 else f"{amount:.3g}"


def confirm(question: str) -> bool:
    """Ask a person. Any answer but yes means no, and so does a missing terminal."""
    if not sys.stdin.isatty():
        return False
    return input(f"{question} [y/N] ").strip().lower() in ("y", "yes")
