"""Shows the progress of long work, on one line of the terminal that goes away when the work ends, be it by Ctrl-C.

The line is on standard error, so that no result is ever mixed with it. There is none where standard error is not a
terminal, none with --json, and none for work that ends within a second: then rich is not even imported.

    with progress_line.shown("Saving", SIZE) as work:
        work.expect(3_000_000)
        work.advance(1_000_000)
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, BinaryIO

from nnilite._cli import screen
from nnilite.units import format_size

if TYPE_CHECKING:
    from rich.table import Table

PATIENCE_S = 1.0
"""Work that ends within this time is not shown."""

_PER_SECOND = 5
_WIDTH = 30
_SOON_S = 2.0  # the time that is left is not guessed before
_CHUNK = 1 << 20


def format_trials(amount: float) -> str:
    """Format a number of trials: "120 trials"."""
    return f"{amount:.0f} trials"


SIZE = format_size
"""Format an amount in bytes."""


class Work:
    """How much there is to do, as far as that is known, and how much of it is done."""

    def __init__(self, name: str, format_amount: Callable[[float], str]) -> None:
        self.name = name
        self.total = 0
        self.done = 0
        self._format_amount = format_amount
        self._began = time.monotonic()

    def expect(self, amount: int) -> None:
        """Add to the total amount."""
        self.total += amount

    def advance(self, amount: int = 1) -> None:
        """Add to the amount done."""
        self.done += amount

    def show_at(self, done: int, total: int) -> None:
        """Set the amount done and the total."""
        self.done, self.total = done, total

    def goes_on(self, name: str) -> None:
        """Start a step of unknown length."""
        self.name, self.total, self.done = name, 0, 0

    def copy(self, source: BinaryIO, write: Callable[[bytes], object]) -> None:
        """Hand a file to `write`, piece by piece, and count its bytes."""
        while piece := source.read(_CHUNK):
            write(piece)
            self.advance(len(piece))

    def picture(self) -> Table:
        """Return the line that is shown now."""
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        done, total = min(self.done, self.total), self.total
        row = Table.grid(padding=(0, 1))
        bar = ProgressBar(total or None, done, width=_WIDTH, pulse=not total, complete_style="green")
        row.add_row(Text(self.name), bar, Text(self.progress()))
        return row

    def progress(self) -> str:
        """Return how much is done, and how much time has passed or is left."""
        passed = time.monotonic() - self._began
        if not self.total:
            text = f"{self._format_amount(self.done)}, " if self.done else ""
            return f"{text}{screen.span(passed)}"
        done = min(self.done, self.total)
        text = f"{self._format_amount(done)} of {self._format_amount(self.total)}"
        if not 0 < done < self.total or passed < _SOON_S:
            return text
        return f"{text}, {screen.span(passed / done * (self.total - done))} left"


@contextmanager
def shown(name: str, format_amount: Callable[[float], str] = SIZE, *, quiet: bool = False) -> Iterator[Work]:
    """Show work while the block runs. `format_amount` formats an amount of it, `quiet` shows nothing."""
    work = Work(name, format_amount)
    if quiet or not sys.stderr.isatty():
        yield work
        return
    line = _ProgressLine(work)
    line.wait()
    try:
        yield work
    finally:
        line.end()


class _ProgressLine:
    """The line on the terminal, which a thread of its own begins after a while."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._ended = threading.Event()
        # As a daemon, the line never keeps the process from ending.
        self._thread = threading.Thread(target=self._run, daemon=True)

    def wait(self) -> None:
        """Begin to wait for the time when the work has become long."""
        self._thread.start()

    def end(self) -> None:
        """Remove the line."""
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        if self._ended.wait(PATIENCE_S):
            return
        from rich.console import Console
        from rich.live import Live

        with ExitStack() as opened:
            # Standard output stays what it is: it may be a file with the results.
            live = Live(
                console=Console(stderr=True, markup=False, emoji=False, highlight=False),
                get_renderable=self._work.picture,
                refresh_per_second=_PER_SECOND,
                transient=True,
                redirect_stdout=False,
            )
            opened.enter_context(live)
            self._ended.wait()
