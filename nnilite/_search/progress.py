"""Shows how far a run of a search is: in a notebook by an output that is renewed, else by some lines."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Protocol

from nnilite._notebook import live_output
from nnilite.records import Json, Trial, TrialState

if TYPE_CHECKING:
    from nnilite._search.search_result import SearchResult

_PARTS = 10
_VALUE_MAX = 100  # characters


class HasResult(Protocol):
    def result(self) -> SearchResult:
        """Return what is known so far."""


class SearchProgress:
    """The progress of one run. `most`: how many trials the search will have in all, if all goes well.

    `wanted` None shows it in notebooks only, True elsewhere as well, by a line on standard error for each tenth.
    """

    def __init__(self, search: HasResult, most: int | None, wanted: bool | None) -> None:
        self._search = search
        self._most = most
        self._live = live_output.LiveOutput(self._page) if wanted is not False and live_output.is_here() else None
        self._tells = wanted is True and self._live is None
        self._counts: Counter[TrialState] = Counter()
        self._shown = 0

    def begin(self) -> None:
        if self._live is not None:
            self._live.show()

    def show_end(self, trial: Trial) -> None:
        """Note that one more trial has ended."""
        self._counts[trial.state] += 1
        if self._live is not None:
            self._live.show()
        elif self._tells and self._counts.total() >= self._shown + max(1, (self._most or 100) // _PARTS):
            self._print_line()

    def over(self) -> None:
        """Show the end. Some trials may have ended since the last time."""
        if self._live is not None:
            self._live.show(last=True)
        elif self._tells and self._counts.total() > self._shown:
            self._print_line()

    def _page(self) -> str:
        from nnilite._notebook import html

        result = self._search.result()
        return html.result(result.trials, result.front, self._most)

    def _print_line(self) -> None:
        self._shown = self._counts.total()
        result = self._search.result()
        ended = sum(trial.state.ended for trial in result.trials)
        of = f"/{self._most}" if self._most else ""
        failed = self._counts[TrialState.FAILED]
        best = tell_best(result.best.value, result.best.id) if result.best else ""
        live_output.write_line(f"{ended}{of} trials ended{f', {failed} failed' if failed else ''}{best}")


def tell_best(value: Json, trial: str) -> str:
    """Return the end of a line of progress. A result may be a dictionary of any size: its first numbers tell enough."""
    text = str(value)
    return f", best {text if len(text) <= _VALUE_MAX else f'{text[:_VALUE_MAX]}...'} (trial {trial})"
