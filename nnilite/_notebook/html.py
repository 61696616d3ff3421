"""What notebooks show of experiments, trials and results: small tables without scripts. All text in them is escaped."""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from nnilite._unprintable import escape_unprintable

_OPEN = ("WAITING", "RUNNING", "UNKNOWN")
_ROWS = 20
_BAR = (
    '<div style="background:#8884;border-radius:4px;height:8px;max-width:30em;margin:4px 0">'
    '<div style="background:#2a8a54;border-radius:4px;height:8px;width:{share:.1f}%"></div></div>'
)


def escape(text: str) -> str:
    r"""Return a text for HTML; control characters and the like are shown.

    >>> escape("<b> \u202e")
    '&lt;b&gt; \\u202e'
    """
    return html.escape(escape_unprintable(text))


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return an HTML table of values, at most the first 20 rows."""
    listed = list(rows)
    head = "".join(f"<th>{escape(name)}</th>" for name in columns)
    body = "".join("<tr>" + "".join(f"<td>{shown(cell)}</td>" for cell in row) + "</tr>" for row in listed[:_ROWS])
    more = len(listed) - _ROWS
    note = f"<p>and {more} more</p>" if more > 0 else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{note}"


def _with_reasons(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Return a table of trials. What comes last in a row is the reason of its state, a column only if there is one."""
    if any(row[-1] for row in rows):
        return table((*columns, "reason"), rows)
    return table(columns, [row[:-1] for row in rows])


def shown(value: Any) -> str:
    """Return a value in a few characters, escaped."""
    if isinstance(value, float):
        text = f"{value:.6g}"
    elif isinstance(value, Mapping):
        return ", ".join(f"{escape(str(key))}={shown(part)}" for key, part in value.items())
    else:
        text = "" if value is None else str(value)
    return escape(text if len(text) <= 200 else f"{text[:200]} …")


def trial(one: Any) -> str:
    """Return a `Trial`, as `_repr_html_` shows it."""
    took = None if one.started is None or one.ended is None else f"{one.ended - one.started:.3g} s"
    facts = {"state": one.state.value, "value": one.value, "took": took, "reason": one.reason or None}
    parameters = one.parameters if isinstance(one.parameters, Mapping) else {"value": one.parameters}
    rows = [(name, value) for name, value in {**facts, **parameters}.items() if value is not None]
    return f"<b>Trial {escape(one.id)}</b>{table(('', ''), rows)}"


def result(trials: Sequence[Any], best: Sequence[Any], most: int | None = None) -> str:
    """Return the result of a search: how many `Trial`s (of at most `most`), the best, and the table of the latest."""
    counts = Counter(one.state.value for one in trials)
    counts_text = ", ".join(f"{count} {state}" for state, count in counts.items() if count)
    what = "Best" if len(best) <= 1 else f"On the front ({len(best)})"
    found = table(("trial", "value", "parameters"), [(one.id, one.value, one.parameters) for one in best])
    rows = [(one.sequence, one.state.value, one.value, one.parameters, one.reason) for one in reversed(trials)]
    everything = _with_reasons(("trial", "state", "value", "parameters"), rows)
    ended = sum(one.state.ended for one in trials)
    bar = _BAR.format(share=min(100.0, 100 * ended / most)) if most else ""
    of = f" of {most}" if most else ""
    return (
        f"<b>{len(trials)}{of} trials</b>: {escape(counts_text)}{bar}<p><b>{what}</b></p>{found if best else 'none'}"
        f"<details><summary>All trials</summary>{everything}</details>"
    )


def experiment(profile: Mapping[str, Any], trials: Sequence[Mapping[str, Any]]) -> str:
    """Return an experiment: state, progress, best trial and the latest trials."""
    counts, most = profile["counts"], profile["limits"]["maxTrialNumber"]
    ended = sum(count for state, count in counts.items() if state not in _OPEN)
    bar = _BAR.format(share=100 * ended / most) if most else ""
    counts_text = ", ".join(f"{count} {state}" for state, count in counts.items() if count)
    url = str(profile["url"] or "")
    is_page = url.startswith(("http://", "https://"))  # a notebook would run javascript:
    link = f' <a href="{escape(url)}" target="_blank" rel="noopener">web page</a>' if is_page else ""
    best = profile["best"]
    best_text = (
        table(("best trial", "value", "parameters"), [(best["id"], best["value"], best["parameters"])]) if best else ""
    )
    rows = [
        (one["sequence"], one["id"], one["state"], one["value"], one["parameters"], one["reason"]) for one in trials
    ]
    name = f" {escape(profile['name'])}" if profile["name"] else ""
    return (
        f"<b>Experiment {escape(profile['id'])}</b>{name}: {escape(profile['state'])}{link}"
        f"<br>{ended}{f' of {most}' if most else ''} trials ended ({escape(counts_text)}){bar}{best_text}"
        f"{_with_reasons(('no', 'trial', 'state', 'value', 'parameters'), rows)}"
    )
