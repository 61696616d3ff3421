"""Where a trial goes: the pure rules, in any situation."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnilite._engine.placement import Candidate, Placement, Share, order

SHARES = st.builds(
    Share,
    max_trials=st.none() | st.integers(1, 4),
    weight=st.floats(0.1, 10.0),
    cost=st.none() | st.floats(0.0, 100.0),
)
POLICIES = st.sampled_from(Placement)


@st.composite
def situations(draw: st.DrawFn) -> list[Candidate]:
    names = [f"s{number}" for number in range(draw(st.integers(1, 5)))]
    return [
        Candidate(name, draw(SHARES), draw(st.integers(0, 5)), draw(st.booleans()), draw(st.integers(0, 3)))
        for name in names
    ]


@given(POLICIES, situations())
def test_all_with_room_are_asked_and_none_above_its_limit(policy: Placement, found: list[Candidate]) -> None:
    wanted = {one.name for one in found if not one.is_full and not one.is_aside}
    names = order(policy, found)
    assert len(names) == len(set(names))
    assert set(names) == wanted


@given(POLICIES, situations())
def test_the_one_that_may_have_the_trial_is_asked_first_whatever_it_has(
    policy: Placement, found: list[Candidate]
) -> None:
    assert order(policy, found, asked=found[-1].name)[0] == found[-1].name


@given(POLICIES, situations())
def test_a_further_attempt_goes_elsewhere_first(policy: Placement, found: list[Candidate]) -> None:
    tried = {one.name: one.tried for one in found}
    times = [tried[name] for name in order(policy, found)]
    assert times == sorted(times)


@given(POLICIES, st.lists(SHARES, min_size=1, max_size=4), st.lists(st.integers(0, 9), max_size=60))
def test_no_slot_is_above_its_limit_and_no_trial_starves(
    policy: Placement, shares: list[Share], ends: list[int]
) -> None:
    """Trials come and go. Each that finds no room is placed as soon as one ends."""
    held: Counter[str] = Counter()
    running: list[str] = []
    for end in ends:
        candidates = [Candidate(f"s{k}", share, held[f"s{k}"]) for k, share in enumerate(shares)]
        names = order(policy, candidates)
        if names:
            held[names[0]] += 1
            running.append(names[0])
        else:
            assert all(one.is_full for one in candidates)
        if running and (end % 2 or not names):
            held[running.pop(end % len(running))] -= 1
        limits = [(f"s{k}", share.max_trials) for k, share in enumerate(shares)]
        assert all(limit is None or held[name] <= limit for name, limit in limits)


def placed(policy: Placement, shares: dict[str, Share], trials: int) -> Counter[str]:
    held: Counter[str] = Counter()
    for _ in range(trials):
        held[order(policy, [Candidate(name, share, held[name]) for name, share in shares.items()])[0]] += 1
    return held


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (Placement.FILL, {"own": 4, "cluster": 5, "spot": 0}),
        (Placement.WEIGHTED, {"own": 1, "cluster": 2, "spot": 6}),
        (Placement.CHEAPEST, {"own": 4, "cluster": 0, "spot": 5}),
    ],
)
def test_each_policy_shares_trials_out_in_its_way(policy: Placement, expected: dict[str, int]) -> None:
    shares = {"own": Share(4, 1.0, 0.0), "cluster": Share(None, 2.0, 3.0), "spot": Share(None, 6.0, 1.0)}
    found = placed(policy, shares, 9)
    assert {name: found[name] for name in shares} == expected
