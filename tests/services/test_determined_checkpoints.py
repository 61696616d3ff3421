"""The program in Determined's containers: where it keeps checkpoints, and what it can run on."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from nnilite.service import JobState
from nnilite.testing import eventually
from nnilite_determined import _start
from platforms.determined.bench import DeterminedBench, maker
from platforms.determined.master import Master

boto3 = pytest.importorskip("boto3")
KEYS = {"access_key": "key", "secret_key": "secret"}


def _is_saved(cluster: Path) -> bool:
    """Unlike `rglob`, a walk does not mind folders that go away meanwhile."""
    return any(folder.endswith("nnilite-checkpoints") and "state" in files for folder, _, files in os.walk(cluster))


@pytest.fixture
def s3():
    """The address of an S3 server with a bucket `det`."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    address = f"http://{host}:{port}"
    try:
        _client(address).create_bucket(Bucket="det")
        yield address
    finally:
        for name in _names(address):  # all servers of a process have the same buckets
            _client(address).delete_object(Bucket="det", Key=name)
        server.stop()


def _client(address: str):
    keys = {"aws_access_key_id": "key", "aws_secret_access_key": "secret", "region_name": "us-east-1"}
    return boto3.client("s3", endpoint_url=address, **keys)


def _names(address: str) -> set[str]:
    return {item["Key"] for item in _client(address).list_objects_v2(Bucket="det").get("Contents", [])}


def test_the_program_is_one_for_python_3_8_and_imports_nothing_of_ours():
    text = Path(_start.__file__).read_text()
    tree = ast.parse(text, feature_version=(3, 8))
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    roots = {name.partition(".")[0] for name in imported}
    assert roots - set(sys.stdlib_module_names) == {"boto3", "botocore"}


@pytest.mark.parametrize(
    ("storage", "folder"),
    [
        ({"type": "shared_fs", "host_path": "/nfs"}, "/determined_shared_fs"),
        ({"type": "shared_fs", "host_path": "/nfs", "storage_path": "a/b"}, "/determined_shared_fs/a/b"),
        ({"type": "shared_fs", "host_path": "/nfs", "storage_path": "/nfs/a"}, "/determined_shared_fs/a"),
        ({"type": "directory", "container_path": "/ck pt"}, "/ck pt"),
        ({"type": "gcs", "bucket": "x"}, ""),
        ({}, ""),
    ],
)
def test_mounted_storage_is_where_determineds_own_library_has_it(storage, folder):
    assert _start.mounted(storage) == folder


def test_a_run_that_determined_starts_again_ends_at_once(tmp_path, capsys):
    words = [json.dumps({"experiment": "x", "trial": "t"}), "touch", str(tmp_path / "ran")]
    assert _start.main(words, {"DET_TRIAL_RUN_ID": "2"}) == 1
    assert "nnilite retries the trial itself" in capsys.readouterr().err
    assert not (tmp_path / "ran").exists()


def test_a_link_to_the_latest_checkpoint_follows_it(tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        _start.link(str(tmp_path / "latest"), str(tmp_path / name))
        assert (tmp_path / "latest").resolve().name == name
    _start.link(str(tmp_path / "latest"), "")
    assert not (tmp_path / "latest").is_symlink()


def test_what_a_folder_has_is_copied_to_the_bucket_and_back(s3, tmp_path, monkeypatch):
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    storage = {"type": "s3", "bucket": "det", "prefix": "a", "endpoint_url": s3, **KEYS}
    first, second = tmp_path / "first", tmp_path / "second"
    (first / "sub").mkdir(parents=True)
    (first / "sub" / "it's $x").write_text("1")
    bucket = _start.CheckpointBucket(storage, "nnilite/x/t", str(first))
    bucket.save()
    second.mkdir()
    _start.CheckpointBucket(storage, "nnilite/x/t", str(second)).load("")
    assert (second / "sub" / "it's $x").read_text() == "1"
    (first / "sub" / "it's $x").unlink()
    bucket.save()
    assert _names(s3) == set()


def test_names_in_a_bucket_that_lead_out_of_the_folder_are_left_alone(s3, tmp_path, monkeypatch):
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    for name in ("nnilite/x/t/../../../out", "nnilite/x/t/in"):
        _client(s3).put_object(Bucket="det", Key=name, Body=b"x")
    folder = tmp_path / "a" / "b" / "c"
    folder.mkdir(parents=True)
    _start.CheckpointBucket({"bucket": "det", "endpoint_url": s3, **KEYS}, "nnilite/x/t", str(folder)).load("")
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["in"]


@pytest.mark.process
def test_a_trial_goes_on_from_the_bucket_after_its_container_is_lost(s3, tmp_path):
    with Master(tmp_path / "cluster") as master:
        master.cluster.default_storage = {"type": "s3", "bucket": "det", "endpoint_url": s3, **KEYS}
        with DeterminedBench(tmp_path, maker(master, environment={"AWS_DEFAULT_REGION": "us-east-1"})) as bench:
            job = bench.job('echo saved > "$NNILITE_CHECKPOINT_DIR/state"; sleep 60', trial="Tsave")
            name = bench.submit(job)
            bench.wait(name, JobState.RUNNING)
            eventually(lambda: _is_saved(tmp_path / "cluster"))
            master.cluster.preempt(master.cluster.named(name))
            assert bench.wait(name).state is JobState.LOST
            assert _names(s3) == {f"nnilite/{job.experiment}/Tsave/state"}
            again = bench.job('cat "$NNILITE_CHECKPOINT_DIR/state"', trial="Tsave")
            attempt = type(job)(f"{name[:-1]}1", job.experiment, "Tsave", 1, 0, {**again.spec, "job": f"{name[:-1]}1"})
            bench.receiver.expect(attempt.name, again.spec["token"])
            assert bench.finish(bench.submit(attempt)).output["stdout"] == b"saved\n"


@pytest.mark.process
def test_without_boto3_checkpoints_stay_in_the_container_and_the_log_says_so(tmp_path):
    config = json.dumps({"checkpoint_storage": {"type": "s3", "bucket": "det"}})
    missing = "import sys; sys.modules['boto3'] = None; exec(compile(open(sys.argv.pop(1)).read(), 'start', 'exec'))"
    words = [sys.executable, "-I", "-S", "-c", missing, _start.__file__]
    about = json.dumps({"experiment": "x", "trial": "t"})
    ran = subprocess.run(
        [*words, about, "/bin/sh", "-c", "exit 0"], env={"DET_EXPERIMENT_CONFIG": config}, cwd=tmp_path,
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert "checkpoints stay in this container" in ran.stderr
    assert ran.returncode == 0
