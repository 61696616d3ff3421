"""Find what a window of a log has beyond the one before it. Pure.

DLC gives the lines of a pod's log between two times, without a position to continue from. Windows overlap, so lines
that were read before are removed: the end of the known lines that is the beginning of the new ones. Where lines came
late, between others, there is no such end; then all lines whose text is known count as read, since an event comes only
once and few of the other lines are equal.
"""

from __future__ import annotations

from collections.abc import Sequence


def fresh(known: Sequence[str], found: Sequence[str]) -> list[str]:
    """Return the lines of `found` that are not in `known`.

    >>> fresh(["a", "b", "c"], ["b", "c", "d"])
    ['d']
    >>> fresh(["a", "c"], ["a", "b", "c", "d"])
    ['b', 'd']
    """
    length = _find_overlap(known, found)
    if length or not known:
        return list(found[length:])
    texts = set(known)
    return [line for line in found if line not in texts]


def _find_overlap(known: Sequence[str], found: Sequence[str]) -> int:
    """Return the longest end of `known` that is the beginning of `found`, by Knuth, Morris and Pratt."""
    if not found:
        return 0
    prefixes = [0] * len(found)
    for place in range(1, len(found)):
        length = prefixes[place - 1]
        while length and found[place] != found[length]:
            length = prefixes[length - 1]
        prefixes[place] = length + (found[place] == found[length])
    length = 0
    for line in known:
        while length and (length == len(found) or line != found[length]):
            length = prefixes[length - 1]
        length += line == found[length]
    return length
