"""The program in Determined's containers: where it keeps checkpoints, and what it can run on."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from nnilite._manager.assembly import make_keeper_file
from nnilite.config import from_dict
from nnilite.service import Job, JobState
from nnilite.testing import eventually
from nnilite_determined import _bucket, _start
from nnilite_determined._convert import entrypoint
from platforms.determined.bench import DeterminedBench, maker
from platforms.determined.master import Master

boto3 = pytest.importorskip("boto3")
KEYS = {"access_key": "key", "secret_key": "secret"}


@pytest.fixture(autouse=True)
def region(monkeypatch):
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")


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


@pytest.mark.parametrize(("program", "others"), [(_start, set()), (_bucket, {"boto3", "botocore"})])
def test_the_programs_are_for_python_3_8_and_import_nothing_of_ours(program, others):
    tree = ast.parse(Path(program.__file__).read_text(), feature_version=(3, 8))
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    roots = {name.partition(".")[0] for name in imported}
    assert roots - set(sys.stdlib_module_names) == others


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


def _bucket_at(address: str, **fields: str):
    return _bucket.CheckpointBucket(
        {"bucket": "det", "endpoint_url": address, **KEYS, **fields}, "nnilite/x", RuntimeError
    )


def test_a_file_is_copied_to_the_bucket_and_back(s3, tmp_path):
    bucket, sent, back = _bucket_at(s3, prefix="a"), tmp_path / "it's $x", tmp_path / "back"
    sent.write_text("1")
    moved: list[int] = []
    bucket.put("checkpoints/t/0/it's $x", str(sent), moved.append)
    assert _names(s3) == {"a/nnilite/x/checkpoints/t/0/it's $x"}
    assert bucket.get("checkpoints/t/0/it's $x", str(back), moved.append) is True
    assert (back.read_text(), sum(moved)) == ("1", 2)
    bucket.delete("checkpoints/t/0/it's $x")
    assert bucket.get("checkpoints/t/0/it's $x", str(back), moved.append) is False


def test_a_bucket_that_is_not_there_is_the_trouble(s3, tmp_path):
    bucket = _bucket_at(s3, bucket="other")
    (tmp_path / "file").write_text("1")
    with pytest.raises(RuntimeError, match=r"cannot write to it: .*NoSuchBucket"):
        bucket.put("checkpoints/t/0/file", str(tmp_path / "file"), print)
    with pytest.raises(RuntimeError, match=r"cannot read it: .*NoSuchBucket"):
        bucket.load_former("t", str(tmp_path))


def test_names_in_a_bucket_that_lead_out_of_the_folder_are_left_alone(s3, tmp_path):
    for name in ("nnilite/x/t/../../../out", "nnilite/x/t/in"):
        _client(s3).put_object(Bucket="det", Key=name, Body=b"x")
    folder = tmp_path / "a" / "b" / "c"
    folder.mkdir(parents=True)
    _bucket_at(s3).load_former("t", str(folder))
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["in"]


def test_what_an_earlier_version_has_left_is_not_fetched_over_a_newer_checkpoint(s3, tmp_path):
    for name in ("nnilite/x/t/in", "nnilite/x/checkpoints/t/1.json"):
        _client(s3).put_object(Bucket="det", Key=name, Body=b"x")
    _bucket_at(s3).load_former("t", str(tmp_path))
    assert list(tmp_path.iterdir()) == []


def _next(bench, name: str, command: str):
    """Submit the next attempt of a job of trial Tsave."""
    again = bench.job(command, trial="Tsave")
    number = int(name[-1]) + 1
    job = f"{name[:-1]}{number}"
    attempt = type(again)(job, again.experiment, "Tsave", number, 0, {**again.spec, "job": job, "attempt": number})
    bench.receiver.expect(job, again.spec["token"])
    return bench.submit(attempt)


SHOWS = 'cat "$NNILITE_CHECKPOINT_DIR/state"'


@pytest.fixture
def bench(s3, tmp_path):
    with Master(tmp_path / "cluster") as master:
        master.cluster.default_storage = {"type": "s3", "bucket": "det", "endpoint_url": s3, **KEYS}
        with DeterminedBench(tmp_path, maker(master, environment={"AWS_DEFAULT_REGION": "us-east-1"})) as bench:
            bench.cluster = master.cluster
            yield bench


@pytest.mark.process
def test_a_trial_goes_on_from_the_bucket_after_its_container_is_lost(s3, bench):
    job = bench.job('echo saved > "$NNILITE_CHECKPOINT_DIR/state"; echo begun; sleep 60', trial="Tsave")
    name = bench.submit(job)
    bench.wait(name, JobState.RUNNING)
    eventually(lambda: b"begun" in bench.received(name).output["stdout"])
    bench.cluster.preempt(bench.cluster.named(name))
    assert bench.wait(name).state is JobState.LOST
    place = f"nnilite/{job.experiment}/checkpoints/Tsave/0"
    assert _names(s3) == {f"{place}.json", f"{place}/1/state"}
    assert bench.finish(_next(bench, name, SHOWS)).output["stdout"] == b"saved\n"


@pytest.mark.process
def test_the_checkpoint_of_determineds_own_library_stays_apart_from_those_in_the_bucket(s3, bench):
    name = bench.submit(bench.job('echo saved > "$NNILITE_CHECKPOINT_DIR/state"; echo begun; sleep 60', trial="Tsave"))
    bench.wait(name, JobState.RUNNING)
    eventually(lambda: b"begun" in bench.received(name).output["stdout"])
    one = bench.cluster.named(name)
    _client(s3).put_object(Bucket="det", Key="a-uuid/weights", Body=b"its own\n")
    bench.cluster.report_checkpoint(one, "a-uuid")
    bench.cluster.preempt(one)
    bench.wait(name)
    again = _next(bench, name, 'cd "$NNILITE_CHECKPOINT_DIR"; cat determined-latest/weights; ls')
    assert bench.finish(again).output["stdout"] == b"its own\ndetermined-latest\nstate\n"
    assert not [key for key in _names(s3) if key.endswith("weights") and key != "a-uuid/weights"]


@pytest.mark.process
def test_a_trial_goes_on_from_what_an_earlier_version_has_left_in_the_bucket(s3, bench):
    job = bench.job("exit 1", trial="Tsave")
    _client(s3).put_object(Bucket="det", Key=f"nnilite/{job.experiment}/Tsave/state", Body=b"former\n")
    first = _next(bench, f"{job.name[:-1]}0", SHOWS)
    assert bench.finish(first).output["stdout"] == b"former\n"
    assert f"nnilite/{job.experiment}/checkpoints/Tsave/1.json" in _names(s3)


def test_keepers_of_determined_can_copy_checkpoints(tmp_path):
    service = {"platform": "determined", "master": "http://127.0.0.1", "token": "x"}
    space = {"x": {"_type": "uniform", "_value": [0, 1]}}
    config = {"searchSpace": space, "trialCommand": "true", "trialConcurrency": 1, "tuner": {"name": "Random"}}
    make_keeper_file(tmp_path / "keeper.pyz", from_dict({**config, "trainingService": service}, tmp_path).checked())
    with zipfile.ZipFile(tmp_path / "keeper.pyz") as keeper:
        assert "nnilite/_keeper/saver.py" in keeper.namelist()


def test_a_shared_storage_has_checkpoints_in_place_of_the_bucket():
    job = Job("n", "x", "t", 0, 0, {"storage": {"kind": "folder", "parts": ["checkpoints"]}}, None)
    assert [json.loads(word)["bucket"] for word in entrypoint(job) if word.startswith("{")] == [""]
    others = Job("n", "x", "t", 0, 0, {"storage": {"kind": "folder", "parts": ["outputs"]}}, None)
    assert [json.loads(word)["bucket"] for word in entrypoint(others) if word.startswith("{")] == ["nnilite/bucket.py"]


@pytest.mark.process
def test_without_boto3_checkpoints_stay_in_the_container_and_the_log_says_so(tmp_path):
    config = json.dumps({"checkpoint_storage": {"type": "s3", "bucket": "det"}})
    missing = "import sys; sys.modules['boto3'] = None; exec(compile(open(sys.argv.pop(1)).read(), 'start', 'exec'))"
    words = [sys.executable, "-I", "-S", "-c", missing, _start.__file__]
    about = json.dumps({"experiment": "x", "trial": "t", "bucket": _bucket.__file__})
    ran = subprocess.run(
        [*words, about, "/bin/sh", "-c", "exit 0"], env={"DET_EXPERIMENT_CONFIG": config}, cwd=tmp_path,
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert "checkpoints stay in this container" in ran.stderr
    assert ran.returncode == 0
