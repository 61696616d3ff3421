"""What the manager tells a keeper, and what the keeper reads, are one shape, though the keeper has its own copy."""

from __future__ import annotations

from nnilite._keeper import spec as keeper
from nnilite.service import SPEC_VERSION, Job, JobSpec

SPEC = JobSpec(job="nni-e-t-0", experiment="e", trial="t", command="true")


def test_the_keeper_knows_every_field_that_it_is_told_and_no_other() -> None:
    told = set(Job("nni-e-t-0", "e", "t", 0, 0, SPEC.json()).spec_for("/tmp"))
    assert told - {"version"} == set(keeper.Spec.__annotations__)
    assert SPEC_VERSION == keeper.VERSION


def test_the_keeper_has_the_same_defaults() -> None:
    least = {"job": "nni-e-t-0", "experiment": "e", "trial": "t", "command": "true", "directory": "/tmp"}
    assert vars(keeper.parse(least)) == vars(keeper.parse({**SPEC.json(), "directory": "/tmp"}))


def test_what_is_told_arrives_as_it_was_told() -> None:
    told = JobSpec(
        job="j", experiment="e", trial="t", command="c", attempt=2, sequence=3, platform="p", parameters={"x": 1},
        token="s", callback="http://m", callback_file="/f", callback_ca="pem", report="stdout", code={"archive": "/a"},
        env={"A": "1", "B": None}, grace_s=1, heartbeat_s=2, linger_s=3, orphan_s=4, max_duration_s=5,
        max_output_bytes=6, send_output=True, checkpoint_dir="/c", storage={"kind": "s3"}, distributed={"nodes": 2},
    )  # fmt: skip
    read = vars(keeper.parse({**told.json(), "directory": "/d"}))
    assert {name: read[name] for name in told.json() if name != "version"} == {
        name: value for name, value in told.json().items() if name != "version"
    }
