"""Code, outputs and checkpoints on their way: through Redis, and through an S3-compatible store."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import boto3
import pytest

from nnilite.errors import ConfigError, NotFound, ServiceError
from nnilite.service import JobState
from nnilite.testing import eventually
from nnilite.testing.probes import python
from nnilite_redis import BucketConfig, RedisConfig, RedisService
from nnilite_redis._api import Pool
from nnilite_redis._file_store import RedisFiles
from platforms.stored_code import CodeStorage
from platforms.swift import server as swift

# Swift takes 7 s of processor to start, so that its tests share one process.
pytestmark = [pytest.mark.real, pytest.mark.xdist_group("stores")]

SAVE = """
import nnilite, sys
place = nnilite.checkpoint_dir() / "step"
before = place.read_text() if place.exists() else "none"
with nnilite.checkpoint("step") as path:
    path.write_text(f"after {before}")
nnilite.report_final_result(before)
"""


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    if swift.missing():
        pytest.skip(swift.missing())
    server = swift.SwiftServer(tmp_path_factory.mktemp("a store's"))
    try:
        server.start()
        yield server.url
    finally:
        server.stop()


@pytest.fixture
def bucket(store, prefix, monkeypatch):
    """A bucket of the test's own, with keys in the environment."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", swift.KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", swift.SECRET)
    client = boto3.client("s3", endpoint_url=store, region_name="us-east-1")
    client.create_bucket(Bucket=prefix)
    yield BucketConfig(prefix, prefix="some where", endpoint=store)
    client.close()


def names_in(bucket) -> set[str]:
    client = boto3.client("s3", endpoint_url=bucket.endpoint, region_name="us-east-1")
    try:
        found = client.list_objects_v2(Bucket=bucket.bucket).get("Contents", [])
    finally:
        client.close()
    return {item["Key"].split("/")[1].split("-")[0].split(".")[-1] for item in found}


def attempts(bench, trial: str, number: int):
    """The same trial's attempt of this number."""
    job = bench.job("true", trial=trial)
    name = f"{job.name[:-1]}{number}"
    bench.receiver.expect(name, job.spec["token"])
    return name, job


def run_attempt(bench, trial: str, number: int) -> str:

    name, job = attempts(bench, trial, number)
    spec = {**job.spec, "command": python(SAVE), "checkpoint_dir": "/manager", "job": name, "attempt": number}
    return bench.submit(replace(job, name=name, attempt=number, spec=spec))


@pytest.mark.parametrize("place", ["redis", "store"])
def test_checkpoints_are_found_by_the_next_attempt_on_another_worker(
    place, shared_server, open_bench, start_worker, request
):
    storage = request.getfixturevalue("bucket") if place == "store" else None
    first = start_worker(shared_server.url)
    bench = open_bench(shared_server, storage=storage)
    assert bench.finish(run_attempt(bench, "Tx", 0)).values == ["none"]
    first.signal(signal.SIGTERM)
    first.wait()
    start_worker(shared_server.url)
    assert bench.finish(run_attempt(bench, "Tx", 1)).values == ["after none"]


def test_checkpoints_are_stored_while_their_trial_runs(bucket, shared_server, open_bench, start_worker):
    start_worker(shared_server.url)
    bench = open_bench(shared_server, storage=bucket, checkpoint_every=1)
    name, job = attempts(bench, "Tx", 0)
    spec = {
        **job.spec,
        "command": f"{python(SAVE)}; sleep 600",
        "checkpoint_dir": "/manager",
        "job": name,
        "attempt": 0,
    }
    bench.submit(replace(job, name=name, spec=spec))
    eventually(lambda: "checkpoint" in names_in(bucket), limit_s=30)
    assert bench.received(name).values == ["none"]


def test_code_and_outputs_go_through_the_store(bucket, shared_server, open_bench, start_worker, tmp_path):
    worker = start_worker(shared_server.url)
    bench = open_bench(shared_server, storage=bucket, redis_size_limit=1)
    name = bench.run('cat data > "$NNI_OUTPUT_DIR/model.bin"')
    assert bench.wait(name).exit_code == 1
    bench.put_code(data="weights")
    name = bench.run('cat data > "$NNI_OUTPUT_DIR/model.bin"')
    bench.finish(name)
    assert names_in(bucket) == {"keeper", "gz", "outputs"}
    worker.signal(signal.SIGTERM)
    worker.wait()
    bench.call(bench.service.fetch(bench.handles[name], tmp_path / "fetched"))
    assert (tmp_path / "fetched" / "model.bin").read_text() == "weights"


def test_a_worker_without_keys_for_the_store_says_so(bucket, shared_server, open_bench, start_worker):
    start_worker(shared_server.url, AWS_ACCESS_KEY_ID="", AWS_SECRET_ACCESS_KEY="", AWS_EC2_METADATA_DISABLED="true")
    bench = open_bench(shared_server, storage=bucket)
    status = bench.wait(bench.run("true"))
    assert status.state is JobState.LOST
    assert "there are no keys for the bucket" in status.reason


def test_a_bucket_that_is_not_there_is_told_at_the_start(bucket, shared_server, open_bench):
    with pytest.raises(ConfigError, match="there is no bucket nowhere"):
        open_bench(shared_server, storage=replace(bucket, bucket="nowhere"))


def test_a_store_that_refuses_the_keys_is_told(bucket, shared_server, open_bench, monkeypatch):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "a wrong one")
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)  # it has seen the right one
    with pytest.raises(ConfigError, match=f"the bucket {bucket.bucket} cannot be used"):
        open_bench(shared_server, storage=bucket)


def test_a_store_that_is_not_there_is_told(bucket, shared_server, open_bench):
    with pytest.raises(ServiceError, match="cannot be reached"):
        open_bench(shared_server, storage=replace(bucket, endpoint="http://127.0.0.1:1"))


@pytest.mark.parametrize("times", [1, 100])
async def test_a_checkpoint_that_is_replaced_while_it_is_fetched_is_never_mixed(
    shared_server, prefix, tmp_path, monkeypatch, times
):
    monkeypatch.setattr("nnilite_redis._file_store._PIECE_BYTES", 1000)
    pool = Pool(RedisConfig(shared_server.url).address, prefix)
    files, versions = RedisFiles(pool, 1 << 20), [bytes([65 + number % 26]) * 2500 for number in range(times + 1)]
    read, name = files._piece, "checkpoint-e-t-0"

    async def put() -> None:
        (tmp_path / "given").write_bytes(versions.pop())
        await files.put(name, tmp_path / "given", "it")

    async def replaced(key: str, offset: int) -> bytes:
        if offset == 1000 and versions:
            await put()
        return await read(key, offset)

    monkeypatch.setattr(files, "_piece", replaced)
    try:
        await put()
        if times == 1:
            assert await files.get(name, tmp_path / "got")
            assert (tmp_path / "got").read_bytes() == b"A" * 2500
        else:
            with pytest.raises(ServiceError, match="is replaced each time"):
                await files.get(name, tmp_path / "got")
        assert not list(tmp_path.glob(".got*"))
    finally:
        await pool.close()


async def test_a_digest_of_a_large_file_holds_up_redis_for_one_piece_at_a_time(
    shared_server, prefix, tmp_path, monkeypatch
):
    monkeypatch.setattr("nnilite_redis._file_store._PIECE_BYTES", 1000)
    pool = Pool(RedisConfig(shared_server.url).address, prefix)
    run, ranges = pool.reads.run, []

    async def noted(script: str, keys: Sequence[str], *words: int) -> Any:
        ranges.append(words)
        return await run(script, keys, *words)

    monkeypatch.setattr(pool.reads, "run", noted)
    (tmp_path / "given").write_bytes(b"A" * 2500)
    try:
        await RedisFiles(pool, 1 << 20).put("code-e", tmp_path / "given", "it")
        assert await RedisFiles(pool, 1 << 20).get("code-e", tmp_path / "got")
    finally:
        await pool.close()
    assert ranges == [(0, 999), (1000, 1999), (2000, 2999), (2500, 3499)]


def test_outputs_that_are_too_large_for_redis_are_refused(shared_server, open_bench, start_worker, tmp_path):
    start_worker(shared_server.url)
    bench = open_bench(shared_server, redis_size_limit=1_000_000)
    name = bench.run('head -c 1100000 /dev/zero > "$NNI_OUTPUT_DIR/model.bin"')
    bench.finish(name)
    error = bench.refusal(bench.service.fetch(bench.handles[name], tmp_path / "fetched"))
    assert ": set storage, or make it smaller" in str(error)
    assert not isinstance(error, NotFound)


def test_code_that_redis_has_forgotten_is_sent_again(shared_server, prefix, open_bench, start_worker):
    bench = open_bench(shared_server)
    name = bench.run("true")
    with shared_server.client() as client:
        client.delete(*client.keys(f"{prefix}:file:*"))
    start_worker(shared_server.url)
    assert bench.wait(name).state is JobState.SUCCEEDED


@pytest.fixture
def storage(tmp_path):
    """A shared storage that workers have mounted where this machine has it."""
    return CodeStorage(tmp_path / "nfs", str(tmp_path / "nfs"))


@pytest.fixture
def with_storage(storage, shared_server, prefix, tmp_path, start_worker):
    """A bench with that storage, whose code is a file of one word."""
    config = RedisConfig(shared_server.url, prefix=prefix)
    bench = storage.bench(tmp_path / "with storage", lambda context: RedisService("redis", config, context))
    (bench.code / "word").write_text("found")
    with bench:
        yield bench


def run_with_code(bench, storage) -> str:
    """Run a trial that tells what the code says, and wait for its end: what it has told."""
    name = bench.run('cat word > "$NNI_OUTPUT_DIR/said"; cat word', storage=storage.entry)
    bench.finish(name)
    return bench.call(bench.service.logs(bench.handles[name], "stdout", 0, 99)).decode()


def packages_in_redis(server, prefix) -> list[bytes]:
    with server.client() as client:
        return [key for key in client.keys(f"{prefix}:file:*") if key.endswith(b".tar.gz")]


def test_workers_take_the_code_from_the_shared_storage(with_storage, storage, shared_server, prefix, start_worker):
    start_worker(shared_server.url)
    assert run_with_code(with_storage, storage) == "found"
    assert packages_in_redis(shared_server, prefix) == []


@pytest.mark.parametrize(("harm", "says"), [("cut", "is damaged"), ("hang", "it is not a regular file")])
def test_workers_that_cannot_take_it_from_there_get_it_through_redis(
    harm, says, with_storage, storage, shared_server, prefix, start_worker
):
    getattr(storage, harm)()
    worker = start_worker(shared_server.url)
    assert run_with_code(with_storage, storage) == "found"
    assert len(packages_in_redis(shared_server, prefix)) == 1
    assert "the code comes through Redis: " in worker.log
    assert says in worker.log
