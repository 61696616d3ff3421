"""Find what a window of a log has beyond the one before it. Pure.

DLC gives the lines of a pod's log between two times, without a position to continue from. Windows overlap, so lines
that were read before are removed: the end of the known lines that is the beginning of the new ones. Where lines came
late, between others, there is no such end; then all lines whose text is known count as read, since an event comes only
once and few of the other lines are equal.
"""

from __future__ import annotations

from collections.abc import Sequence


def fresh(known: Sequence[str], window: Sequence[str]) -> list[str]:
    """Return the lines of `window` that are not in `known`.

    >>> fresh(["a", "b", "c"], ["b", "c", "d"])
    ['d']
    >>> fresh(["a", "c"], ["a", "b", "c", "d"])
    ['b', 'd']
    """
    length = _find_overlap(known, window)
    if length or not known:
        return list(window[length:])
    texts = set(known)
    return [line for line in window if line not in texts]


def _find_overlap(known: Sequence[str], window: Sequence[str]) -> int:
    """Return the longest end of `known` that is the beginning of `window`, by Knuth, Morris and Pratt."""
    if not window:
        return 0
    prefixes = [0] * len(window)
    for place in range(1, len(window)):
        length = prefixes[place - 1]
        while length and window[place] != window[length]:
            length = prefixes[length - 1]
        prefixes[place] = length + (window[place] == window[length])
    length = 0
    for line in known:
        while length and (length == len(window) or line != window[length]):
            length = prefixes[length - 1]
        length += line == window[length]
    return length
