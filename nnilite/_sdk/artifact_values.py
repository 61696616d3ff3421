"""From a value to the file of an artifact: its kind, the ending of its name, and its bytes.

The kinds are those that the page shows: image, table, figure, text; any other file can only be downloaded.
"""

from __future__ import annotations

import os

from nnilite._cpython import dumps, loads

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Made = tuple[str, str, bytes]

MOST_BYTES = 5_000_000
_MAGIC = (
    (b"\x89PNG\r\n\x1a\n", ".png"),
    (b"\xff\xd8\xff", ".jpg"),
    (b"GIF87a", ".gif"),
    (b"GIF89a", ".gif"),
)
_TEXTS = (".txt", ".log", ".md")


def make(value: Any) -> Made:
    """Return kind, ending and bytes of the file for a value. Raises: TypeError, ValueError, OSError."""
    if isinstance(value, os.PathLike):
        return _make_from_file(os.fspath(value))
    if isinstance(value, str):
        return "text", ".txt", value.encode("utf-8", "replace")
    if isinstance(value, (bytes, bytearray)):
        return _make_from_bytes(bytes(value))
    # matplotlib's figures, and PIL's images
    save = getattr(value, "savefig", None) or (hasattr(value, "getbands") and value.save)
    return ("image", ".png", _save(save)) if save else _make_from_data(value)


def _make_from_bytes(data: bytes) -> Made:
    ending = find_image_ending(data)
    if not ending:
        raise TypeError("these bytes are not PNG, JPEG, GIF or WebP; write other files yourself, and give their path")
    return "image", ending, data


def _make_from_data(value: Any) -> Made:
    """Return the file of a figure or a table. Raises: TypeError."""
    if callable(getattr(value, "to_plotly_json", None)):
        value = loads(value.to_json()) if callable(getattr(value, "to_json", None)) else value.to_plotly_json()
    if _is_figure(value):
        return "figure", ".json", _json({"data": value["data"], "layout": value.get("layout") or {}})
    table = _make_table(value)
    if table is None:
        raise TypeError(
            f"a {type(value).__name__} cannot be shown; give a text, a table (a list of rows), an image, "
            "a figure of plotly, or the pathlib.Path of a file"
        )
    return "table", ".json", _json(table)


def find_image_ending(data: bytes) -> str:
    """Return the usual ending of the image that these bytes begin; "" if they begin none that browsers show."""
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return ".webp"
    return next((ending for magic, ending in _MAGIC if data.startswith(magic)), "")


def _make_from_file(path: str) -> Made:
    with open(path, "rb") as file:
        data = file.read(MOST_BYTES + 1)
    ending = os.path.splitext(path)[1].lower()
    image = find_image_ending(data)
    if image:
        return "image", image, data
    if ending in (".csv", ".tsv"):
        table = _read_csv(data, "\t" if ending == ".tsv" else ",")
        return ("text", ".txt", data) if table is None else ("table", ".json", _json(table))
    if ending == ".json" and len(data) <= MOST_BYTES:
        value = loads(data.decode("utf-8"))
        return make(value) if _is_figure(value) or _make_table(value) else ("text", ".txt", data)
    if ending in _TEXTS:
        return "text", ".txt", data
    return "file", ending if ending[1:].isalnum() else ".bin", data


def _is_figure(value: Any) -> bool:
    return (
        isinstance(value, dict) and isinstance(value.get("data"), list) and set(value) <= {"data", "layout", "frames"}
    )


def _make_table(value: Any) -> dict[str, Any] | None:
    """Return columns and rows of a table; None if the value is none."""
    if hasattr(value, "columns") and callable(getattr(value, "itertuples", None)):  # pandas
        return {
            "columns": [str(name) for name in value.columns],
            "rows": [list(row) for row in value.itertuples(index=False)],
        }
    if isinstance(value, dict) and value and all(isinstance(column, (list, tuple)) for column in value.values()):
        height = max(map(len, value.values()))
        rows = [
            [column[place] if place < len(column) else None for column in value.values()] for place in range(height)
        ]
        return {"columns": [str(name) for name in value], "rows": rows}
    if not isinstance(value, (list, tuple)) or not value:
        return None
    if all(isinstance(row, dict) for row in value):
        names = list(dict.fromkeys(name for row in value for name in row))
        return {"columns": [str(name) for name in names], "rows": [[row.get(name) for name in names] for row in value]}
    if all(isinstance(row, (list, tuple)) for row in value):
        width = max(map(len, value))
        rows = [[*row, *[None] * (width - len(row))] for row in value]
        return {"columns": [str(place) for place in range(width)], "rows": rows}
    return None


def _read_csv(data: bytes, delimiter: str) -> dict[str, Any] | None:
    """Return columns and rows; None if Python reads no table there, as with a field of over 131,072 characters."""
    import csv
    import io

    try:
        lines = list(csv.reader(io.StringIO(data.decode("utf-8", "replace")), delimiter=delimiter))
    except csv.Error:
        return None
    width = max(map(len, lines), default=0)
    filled = [[*line, *[""] * (width - len(line))] for line in lines]
    return {"columns": filled[0] if filled else [], "rows": filled[1:]}


def _json(value: Any) -> bytes:
    from nnilite import _plain

    try:
        return dumps(value, lambda one: _plain_or_text(one, _plain)).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise TypeError(f"it is not JSON: {error}") from error


def _plain_or_text(value: Any, plain: Any) -> Any:
    """Return a cell as JSON has it: dates and other objects are texts."""
    try:
        return plain(value)
    except TypeError:
        return str(value)


def _save(save: Any) -> bytes:
    import io

    target = io.BytesIO()
    save(target, format="png")
    return target.getvalue()
