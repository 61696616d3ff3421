"""Reads a trial's reports.

The spool is a file of lines, and each line is one report. Two forms can be mixed:

    ME000123{"parameter_id": 0, "trial_job_id": "x", "type": "PERIODICAL", "sequence": 0, "value": "0.5"}
    intermediate 0.5                or: final 0.93, final {"default": 0.93, "loss": 0.2}, final nan
    attribute device "cpu"          a name without blanks, and JSON

The first is NNI's: the number is the length in bytes of the rest, with the line end. `value` is the metric as JSON
text; nnilite's SDK adds `time`, and `name` to a report of the type ATTRIBUTE. The second is for people and for programs
in any language.

A report's number is its place among the readable reports, metrics and attributes alike, and the number of an
intermediate result is its place among these, so both follow from the file alone. A line that was cut by a full disk is
left out, and a report that another process wrote behind it is still found. Unreadable lines are counted but have no
number.

A trial can put anything into its spool, also a file of many gigabytes without a line end. So lines that are not reports
are read up to a limit, over the whole file, and nothing is read behind that. The limit follows from the file alone,
too.
"""

from __future__ import annotations

import json
import math
import os
import re
from typing import IO, Any, Iterator, List, NamedTuple, Optional, Tuple

from .plain_file import NotRegularFile, open_regular

PERIODICAL = "PERIODICAL"
FINAL = "FINAL"
ATTRIBUTE = "ATTRIBUTE"

_HEAD = re.compile(rb"ME\d{6}(?=\{)")
_WORDS = {b"intermediate": PERIODICAL, b"final": FINAL}
_ATTRIBUTE_WORD = b"attribute"
_MAX_LINE_BYTES = 1 << 20  # a little more than the SDK and NNI's own SDK allow
_MAX_TIME_S = 1e11
_MAX_NAME = 100  # characters of an attribute's name
_MAX_JUNK_BYTES = 64 << 20
_JUNK_OF_A_LINE = 64  # what a line that is not a report counts at least, since an empty one takes time, too


class Report(NamedTuple):
    """One reported metric or attribute; `value` is JSON text."""

    number: int
    kind: str
    sequence: int
    value: str
    time: float
    name: str = ""  # the attribute's name


_Parsed = Tuple[str, str, Optional[float], str]  # kind, JSON text, time, name


class _Unreadable(ValueError):
    """A line is not a report."""


class SpoolReader:
    """Reads the spool piece by piece. `count` is the number of the next report."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.restart()

    def restart(self) -> None:
        """Begin again with the first report."""
        self.offset = 0
        self.count = 0
        self.unreadable = 0
        self.example = ""  # the first unreadable line
        self.given_up = False  # whether nothing more is read, as there was too much else than reports
        self._junk_bytes = 0
        self._intermediates = 0
        self._in_long_line = False

    def remark(self) -> str:
        """Return a sentence on what could not be read so far; "" if there is nothing."""
        if not self.unreadable:
            return ""
        found = (
            "{} of the reported lines cannot be read, the first is {!r}; "
            'right are: intermediate 0.5, final 0.93, final {{"default": 0.93}}'
        ).format(self.unreadable, self.example)
        if self.given_up:
            found += "\n.nni/metrics has more than {} MB that are not reports: nothing is read after byte {}".format(
                _MAX_JUNK_BYTES >> 20, self.offset
            )
        return found

    def read(self, limit: int, limit_bytes: int, final: bool = False) -> List[Report]:
        """Return the next reports: at least one if there is any, and at most about `limit` of them or `limit_bytes`.

        A last line without an end counts only if `final`, when nothing more will be written. Raises: OSError if the
        file exists and cannot be read now, which differs from a file without reports.
        """
        reports: List[Report] = []
        if self.given_up:
            return reports
        try:
            with open_regular(self.path) as file:
                file.seek(self.offset)
                begin = self.offset
                written = os.fstat(file.fileno()).st_mtime
                for line in self._lines(file, final):
                    self._add(line, written, reports)
                    if len(reports) >= limit or (reports and self.offset - begin >= limit_bytes):
                        break
        except (FileNotFoundError, NotADirectoryError):  # nothing was reported, or the trial has deleted its folder
            return reports
        except NotRegularFile as error:
            if not self.unreadable:
                self._refuse(str(error.strerror).encode())
        except OSError:
            if not reports:
                raise
        return reports

    def _lines(self, file: IO[bytes], final: bool) -> Iterator[bytes]:
        while not self.given_up:
            line = file.readline(_MAX_LINE_BYTES)
            whole = line.endswith(b"\n")
            if not line or not (whole or final or len(line) == _MAX_LINE_BYTES):
                return
            self.offset += len(line)
            if self._in_long_line or (not whole and len(line) == _MAX_LINE_BYTES):
                if not self._in_long_line:
                    self._refuse(line)
                self._in_long_line = not whole
                self._count_junk(line)
            else:
                yield line

    def _add(self, line: bytes, written: float, reports: List[Report]) -> None:
        try:
            parsed = parse_line(line)
        except _Unreadable:
            self._refuse(line)
            parsed = None
        if parsed is None:
            self._count_junk(line)
            return
        kind, value, when, name = parsed
        sequence = 0
        if kind == PERIODICAL:
            sequence = self._intermediates
            self._intermediates += 1
        reports.append(Report(self.count, kind, sequence, value, written if when is None else when, name))
        self.count += 1

    def _count_junk(self, line: bytes) -> None:
        self._junk_bytes += max(len(line), _JUNK_OF_A_LINE)
        if self._junk_bytes > _MAX_JUNK_BYTES:
            self.given_up = True
            if not self.unreadable:  # empty lines are ignored, up to a limit
                self._refuse(line)

    def _refuse(self, line: bytes) -> None:
        self.unreadable += 1
        self.example = self.example or line[:80].decode("utf-8", "replace").strip()


def parse_line(line: bytes) -> Optional[_Parsed]:
    """Return kind, JSON text, time (None: unknown) and name of a report; None if the line is to be ignored.

    Raises: ValueError.
    """
    for head in _HEAD.finditer(line):
        record = _json(line[head.end() :])
        if isinstance(record, dict):
            return _of_nni(record)
    words = line.split(None, 1)
    if not words:
        return None
    if words[0].lower() == _ATTRIBUTE_WORD:
        return _of_attribute(line.split(None, 2)[1:])
    kind = _WORDS.get(words[0].lower())
    if kind is None or len(words) < 2:
        raise _Unreadable
    return kind, _value(words[1]), None, ""


def _of_attribute(words: List[bytes]) -> _Parsed:
    name = words[0].decode("utf-8", "replace") if words else ""
    if len(words) < 2 or len(name) > _MAX_NAME:
        raise _Unreadable
    return ATTRIBUTE, _value(words[1]), None, name


def _of_nni(record: Any) -> Optional[_Parsed]:
    kind, name = record.get("type"), record.get("name")
    if kind == ATTRIBUTE:
        if not isinstance(name, str) or len(name) > _MAX_NAME:
            raise _Unreadable
    elif kind not in (PERIODICAL, FINAL):
        return None  # NNI's multi-phase requests
    value = record.get("value")
    if not isinstance(value, str) or _json(value.encode("utf-8", "surrogatepass")) is _NOT_JSON:
        try:
            value = json.dumps(value)
        except RecursionError:
            raise _Unreadable from None
    return kind, value, _time(record.get("time")), name if kind == ATTRIBUTE else ""


def _time(value: Any) -> Optional[float]:
    if isinstance(value, (int, float)) and 0 <= value < _MAX_TIME_S:
        return float(value)
    return None


def _value(text: bytes) -> str:
    """Return the JSON text of a plain line's value. Numbers may be written as in other languages (nan, -inf, .5)."""
    value = _json(text)
    if value is _NOT_JSON:
        try:
            value = float(text)
        except ValueError:
            raise _Unreadable from None
        if math.isnan(value):
            value = math.nan
    return json.dumps(value)


_NOT_JSON = object()


def _json(text: bytes) -> Any:
    try:
        return json.loads(text.decode("utf-8", "surrogatepass"))
    except (ValueError, RecursionError):
        return _NOT_JSON
