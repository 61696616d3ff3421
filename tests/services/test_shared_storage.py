"""The shared storage: a mounted folder, Swift's S3 and Azurite's blobs, with real keepers on machines of their own."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import os
import subprocess
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from keeper_bench import Bench, pythons
from nnilite._checkpoints.checkpoint_rule import CheckpointRule
from nnilite._checkpoints.checkpoint_tidying import CheckpointTidier
from nnilite._checkpoints.shared_storage import SharedStorage
from nnilite._engine.jobs import JobMaker
from nnilite._keeper import build
from nnilite._keeper.storage_choice import open_storage
from nnilite.codedir import CodePackage, PackageLimits, pack
from nnilite.config import SharedStorageConfig
from nnilite.errors import ConfigError, ServiceError
from nnilite.records import Attempt, Trial
from nnilite.services.worker_side import fetch_command
from nnilite.testing import eventually
from nnilite.testing.ports import free_port
from platforms.aml import azurite
from platforms.swift import server as swift

# Swift and Azurite take 7 s of processor each to start, so that their tests share one process.
pytestmark = [pytest.mark.process, pytest.mark.xdist_group("stores")]

SAVES = "import nnilite as n; f = n.checkpoint_dir() / 'deep' / 'epoch'; "
COUNTS = (
    SAVES + "k = int(f.read_text()) + 1 if f.exists() else 0; f.parent.mkdir(exist_ok=True); f.write_text(str(k)); "
)
REPORTS = "n.report_final_result(k)"
WORKS = f'"$PYTHON" -c "{COUNTS}{REPORTS}"; echo hello > "$NNI_OUTPUT_DIR/out.txt"; exit '
KINDS = ("folder", "s3", "azure")
ONE_BUCKET = ("folder", "s3", pytest.param("azure", marks=pytest.mark.long))
"""For rules of the keeper: what it asks of a bucket has a test with each kind."""


@dataclass
class Place:
    """A storage as a config describes it, and the environment in which its manager runs."""

    fields: dict[str, Any]
    environment: dict[str, str] = field(default_factory=dict)

    def storage(self, **more: Any) -> SharedStorage:
        keep = more.pop("keep", "all")
        return SharedStorage(SharedStorageConfig(**{**self.fields, **more}), "exp", keep, self.environment)


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    boto3 = pytest.importorskip("boto3")
    if swift.missing():
        pytest.skip(swift.missing())
    server = swift.SwiftServer(tmp_path_factory.mktemp("swift"))
    try:
        server.start()
        keys = {"aws_access_key_id": swift.KEY, "aws_secret_access_key": swift.SECRET, "region_name": "us-east-1"}
        boto3.client("s3", endpoint_url=server.url, **keys).create_bucket(Bucket="shared")
        fields = {"storage_type": "S3", "endpoint": server.url, "bucket": "shared", "prefix": "our lab/ü"}
        yield Place(fields, {"AWS_ACCESS_KEY_ID": swift.KEY, "AWS_SECRET_ACCESS_KEY": swift.SECRET})
    finally:
        server.stop()


@pytest.fixture(scope="module")
def azure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    blob = pytest.importorskip("azure.storage.blob")
    if azurite.missing():
        pytest.skip(azurite.missing())
    with azurite.Azurite().running(tmp_path_factory.mktemp("azurite")) as server:
        url = f"http://127.0.0.1:{server.port}/{azurite.ACCOUNT}"
        client = blob.BlobServiceClient(url, credential=azurite.KEY)
        client.create_container("shared")
        client.close()
        yield Place(
            {
                "storage_type": "AzureBlob", "endpoint": url, "storage_account_name": azurite.ACCOUNT,
                "storage_account_key": azurite.KEY, "container_name": "shared",
            }
        )  # fmt: skip


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """The storage of the kind that the test is run with, ready for the experiment `exp`."""
    if request.param != "folder":
        found: Place = request.getfixturevalue(request.param)
        return found
    (tmp_path / "an nfs").mkdir()
    points = {"local_mount_point": tmp_path / "an nfs", "remote_mount_point": str(tmp_path / "not here")}
    return Place({"storage_type": "NFS", **points})


def attempt(folder: Path, number: int, entry: dict[str, Any], command: str, **more: Any) -> Bench:
    """Run an attempt on a machine of its own, with the oldest Python that there is. Its bench, closed."""
    folder.mkdir(exist_ok=True)
    with Bench(folder, pythons()[-1] if len(pythons()) < 2 else pythons()[1]) as bench:
        bench.status = bench.run(command, attempt=number, storage=entry, trial=more.pop("trial", folder.name), **more)
    return bench


def read(entry: dict[str, Any], name: str, folder: Path) -> bytes | None:
    path = folder / "read"
    return path.read_bytes() if open_storage(entry).get(name, str(path)) else None


@pytest.mark.parametrize("place", KINDS, indirect=True)
def test_a_trial_that_moves_finds_its_checkpoint_and_leaves_its_outputs(place: Place, tmp_path: Path) -> None:
    storage = place.storage()
    storage.prepare(tmp_path)
    found = [attempt(tmp_path / f"host{n}", n, storage.entry, WORKS + code, trial="t") for n, code in enumerate("310")]
    assert [bench.callback.values for bench in found] == [[0], [1], [2]]
    assert [bench.callback.exits[0].code for bench in found] == [3, 1, 0]
    assert "storage" not in found[2].callback.exits[0].message
    assert read(storage.entry, "trials/t/2/out.txt", tmp_path) == b"hello\n"
    assert read(storage.entry, "trials/t/2/trial.stdout", tmp_path) == b""
    assert read(storage.entry, "trials/t/2/spec.json", tmp_path) is None


@pytest.mark.parametrize("place", KINDS, indirect=True)
def test_the_code_comes_from_the_storage(place: Place, tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "answer").write_text("42")
    storage = place.storage()
    storage.prepare(tmp_path)
    limits = PackageLimits(10, 1000)
    package = storage.with_code(lambda: pack(tmp_path / "code", tmp_path / "cache", limits))()
    bench = attempt(tmp_path / "c", 0, storage.entry, "cat answer", code={"download": package.hash})
    assert bench.text("stdout") == "42"


@pytest.mark.parametrize("place", KINDS, indirect=True)
def test_a_worker_s_cache_gets_the_code_from_the_storage(place: Place, tmp_path: Path) -> None:
    storage = place.storage()
    storage.prepare(tmp_path)
    package = packed(storage, tmp_path, "42")
    assert storage.stored_code("0" * 64) is None
    place_of_it = tmp_path / package.archive.name
    assert fetch(storage.stored_code(package.hash), place_of_it) == (0, "")
    assert place_of_it.read_bytes() == package.archive.read_bytes()
    status, said = fetch(storage.entry, tmp_path / f"{'0' * 64}.tar.gz")
    assert (status, said) == (1, "the shared storage does not have the code (any more)")


def damage_by_cutting(stored: Path) -> None:
    stored.write_bytes(stored.read_bytes()[:-20])


def damage_in_the_middle(stored: Path) -> None:
    data = bytearray(stored.read_bytes())
    data[len(data) // 2] ^= 0xFF
    stored.write_bytes(bytes(data))


def exchange(stored: Path) -> None:
    with tarfile.open(stored, "w:gz") as archive:
        archive.addfile(tarfile.TarInfo("answer"), io.BytesIO())


def put_a_pipe(stored: Path) -> None:
    """Who opens it waits for ever."""
    stored.unlink()
    os.mkfifo(stored)


@pytest.mark.parametrize(
    ("harm", "says"),
    [
        (damage_by_cutting, "the code package is damaged"),
        (damage_in_the_middle, "the code package is damaged"),
        (exchange, "its content does not match its name"),
        (put_a_pipe, "it is not a regular file"),
        (Path.unlink, "the shared storage does not have the code"),
    ],
)
def test_code_that_is_not_whole_never_gets_into_a_cache(harm: Any, says: str, tmp_path: Path) -> None:
    (tmp_path / "nfs").mkdir()
    (tmp_path / "cache").mkdir()
    storage = Place(
        {"storage_type": "NFS", "local_mount_point": tmp_path / "nfs", "remote_mount_point": "/no"}
    ).storage()
    storage.prepare(tmp_path)
    package = packed(storage, tmp_path, "x" * 5000)
    harm(tmp_path / "nfs" / "nni" / "exp" / "code" / package.archive.name)
    status, said = fetch({**storage.entry, "patience_s": 1}, tmp_path / "cache" / package.archive.name)
    assert status == 1
    assert says in said
    assert list((tmp_path / "cache").iterdir()) == []


@pytest.mark.parametrize("told", ["", "[1]", '{"kind": "folder", "paths'])
def test_a_storage_that_was_not_told_in_full_is_a_sentence(told: str, tmp_path: Path) -> None:
    status, said = fetch(told, tmp_path / f"{'0' * 64}.tar.gz")
    assert (status, said.count("\n")) == (1, 0)
    assert "storage" in said or "incomplete" in said


def packed(storage: SharedStorage, folder: Path, answer: str) -> CodePackage:
    """A package with the file `answer`, which is in the storage now."""
    (folder / "code").mkdir()
    (folder / "code" / "answer").write_text(answer)
    return storage.with_code(lambda: pack(folder / "code", folder / "packed", PackageLimits(10, 10_000)))()


def fetch(entry: Any, archive: Path) -> tuple[int, str]:
    """What the keeper answers that is to bring the code: its exit code, and what it says."""
    keeper = build(archive.parent.parent / f"keeper-{archive.parent.name}.pyz", with_storage=True)
    given = entry if isinstance(entry, str) else json.dumps(entry)
    command = fetch_command(pythons()[-1], str(keeper), str(archive))
    done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=100, check=False)
    assert done.stderr == ""
    return done.returncode, done.stdout


@pytest.mark.parametrize("place", ONE_BUCKET, indirect=True)
def test_checkpoints_of_a_machine_that_dies_without_a_word_are_there(place: Place, tmp_path: Path) -> None:
    storage = place.storage()
    storage.prepare(tmp_path)
    entry = {**storage.entry, "save_every_s": 0.1}
    (tmp_path / "dies").mkdir()
    with Bench(tmp_path / "dies") as bench:
        keeper = bench.start(f'"$PYTHON" -c "{COUNTS}"; echo up; sleep 600', trial="d", storage=entry)
        bench.wait_for_start()
        eventually(lambda: read(entry, "checkpoints/d/0.json", tmp_path))
        keeper.kill()
    assert attempt(tmp_path / "d", 1, entry, WORKS + "0").callback.values == [1]


SLOWLY = "import time; [(n.report_intermediate_result(k), f.write_text(str(k)), time.sleep(0.05)) for k in range(9999)]"


@pytest.mark.parametrize("place", ONE_BUCKET, indirect=True)
def test_a_checkpoint_counts_once_the_reports_before_it_are_confirmed(place: Place, tmp_path: Path) -> None:
    storage = place.storage()
    storage.prepare(tmp_path)
    entry = {**storage.entry, "save_every_s": 0.1}
    (tmp_path / "dies").mkdir()
    code = SAVES + "f.parent.mkdir(); " + SLOWLY
    with Bench(tmp_path / "dies") as bench:
        bench.callback.script = ["ok"] * 3 + ["forever 500"]
        keeper = bench.start(f'"$PYTHON" -c "{code}"', trial="c", storage=entry)
        eventually(lambda: bench.callback.script == ["forever 500"] and bench.callback.requests > 6)
        keeper.kill()
        confirmed = bench.callback.values
    assert attempt(tmp_path / "c", 1, entry, WORKS + "0").callback.values[0] <= len(confirmed)


def tidy_up(storage: SharedStorage, keep: str, scratch: Path, trial: str, attempt: int, live: bool = False) -> None:
    """Be the manager after the end of a trial."""
    place = storage.checkpoints(scratch)
    assert place is not None
    rules: Any = SimpleNamespace(best=None, live={trial: None} if live else {})
    tidier = CheckpointTidier(rules, CheckpointRule(keep), place, [(trial, attempt)])
    asyncio.run(tidier.tidy_up())


@pytest.mark.parametrize("place", KINDS, indirect=True)
def test_only_the_newest_version_of_a_file_is_kept_and_nothing_where_nothing_is_to_be(
    place: Place, tmp_path: Path
) -> None:
    storage = place.storage(keep="none", contents=["checkpoints"])
    storage.prepare(tmp_path)
    for number, code in enumerate("10"):
        attempt(tmp_path / f"k{number}", number, storage.entry, WORKS + code, trial="k")
        assert read(storage.entry, f"checkpoints/k/{number}.json", tmp_path) is not None
        tidy_up(storage, "none", tmp_path, "k", number, live=True)
    assert read(storage.entry, "checkpoints/k/0/1/deep/epoch", tmp_path) == b"0", "a living trial keeps what it has"
    tidy_up(storage, "none", tmp_path, "k", 1)
    for name in ("0.json", "1.json", "0/1/deep/epoch", "1/1/deep/epoch"):
        assert read(storage.entry, f"checkpoints/k/{name}", tmp_path) is None
    assert read(storage.entry, "trials/k/1/out.txt", tmp_path) is None


@pytest.mark.parametrize("place", ONE_BUCKET, indirect=True)
def test_a_trial_that_runs_again_finds_what_was_to_be_kept(place: Place, tmp_path: Path) -> None:
    storage = place.storage(contents=["checkpoints"])
    storage.prepare(tmp_path)
    older = SAVES.replace("epoch", "x").replace("deep", "older") + "f.parent.mkdir(exist_ok=True); f.write_text('1'); "
    attempt(tmp_path / "r0", 0, storage.entry, f'"$PYTHON" -c "{older}{COUNTS}{REPORTS}"', trial="r")
    tidy_up(storage, "last", tmp_path, "r", 0)
    known = json.loads(read(storage.entry, "checkpoints/r/0.json", tmp_path) or b"")
    assert list(known["files"]) == ["deep/epoch"]
    assert "gone" not in known
    assert attempt(tmp_path / "r1", 1, storage.entry, WORKS + "0", trial="r").callback.values == [1]


@pytest.mark.parametrize("code", ["0", "1"])
def test_where_no_manager_reaches_the_storage_keepers_delete_what_trials_that_succeeded_have_saved(
    tmp_path: Path, code: str
) -> None:
    points = {"local_mounted": "nomount", "remote_mount_point": str(tmp_path), "local_mount_point": tmp_path}
    storage = Place({"storage_type": "NFS", **points}).storage(keep="none", contents=["checkpoints"])
    assert storage.checkpoints(tmp_path) is None
    (tmp_path / "nni" / "exp").mkdir(parents=True)
    for number, status in enumerate("1" + code):
        attempt(tmp_path / f"m{number}", number, storage.entry, WORKS + status, trial="m")
    assert (tmp_path / "nni" / "exp" / "checkpoints" / "m").exists() == (code == "1")


@pytest.mark.parametrize(
    ("kind", "change", "says"),
    [
        ("s3", {"secret": "wrong"}, "refuses the credentials (403 SignatureDoesNotMatch); correct accessKey"),
        ("s3", {"prefix": "x", "url": "/other"}, "no such bucket"),
        ("azure", {"sas_token": "sv=2020-12-06&sig=wrong"}, "refuses the credentials (403"),
        ("folder", {"paths": ["/no/such/place"]}, "mount the storage there"),
        ("s3", {"url": "http://127.0.0.1:{port}/shared", "patience_s": 0}, "it does not answer"),
    ],
)
def test_trouble_is_told_with_its_cure_and_no_result_is_lost(kind, change, says, request, tmp_path):
    place = request.getfixturevalue(kind) if kind != "folder" else None
    entry = place.storage().entry if place else {"kind": "folder", "parts": ["checkpoints", "outputs"]}
    change = {name: v.replace("{port}", str(free_port())) if isinstance(v, str) else v for name, v in change.items()}
    if change.get("url", "").startswith("/"):
        change["url"] = entry["url"].rpartition("/")[0] + change["url"]
    bench = attempt(tmp_path / "w", 1, {**entry, "patience_s": 0, **change}, WORKS + "0")
    assert (bench.status, bench.callback.values) == (0, [0])
    message = bench.callback.exits[0].message
    assert says in message
    assert "its checkpoints stay in" in message
    assert "its outputs stay in" in message
    assert "the trial starts without the checkpoints" in bench.text("stderr")
    for secret in ("wrong", swift.SECRET, azurite.KEY):
        assert secret not in message + bench.text("stderr")


def test_a_folder_that_is_not_mounted_is_not_taken_for_the_storage(tmp_path: Path) -> None:
    entry = {"kind": "folder", "paths": [str(tmp_path)], "marked": True, "parts": ["outputs"], "patience_s": 0}
    bench = attempt(tmp_path / "m", 0, entry, WORKS + "0")
    assert "no folder of this experiment" in bench.callback.exits[0].message
    assert not (tmp_path / "trials").exists()


def test_a_list_that_leads_out_of_the_folder_is_refused(tmp_path: Path) -> None:
    entry = {"kind": "folder", "paths": [str(tmp_path)], "parts": ["checkpoints"], "patience_s": 0}
    (tmp_path / "checkpoints" / "l").mkdir(parents=True)
    bad = {"saved": 9e9, "files": {"../../escaped": {"object": "x", "size": 1, "mtime_ns": 1}}}
    (tmp_path / "checkpoints" / "l" / "0.json").write_text(json.dumps(bad))
    (tmp_path / "x").write_text("x")
    bench = attempt(tmp_path / "l", 1, entry, WORKS + "0")
    assert "outside of the folder for checkpoints" in bench.text("stderr")
    assert bench.callback.values == [0]


def test_a_newer_checkpoint_that_is_here_already_stays(tmp_path: Path) -> None:
    entry = {"kind": "folder", "paths": [str(tmp_path)], "parts": ["checkpoints"]}
    attempt(tmp_path / "n", 0, entry, WORKS + "1")
    here = tmp_path / "kept"
    (here / "deep").mkdir(parents=True)
    (here / "deep" / "epoch").write_text("7")
    bench = attempt(tmp_path / "n2", 1, entry, WORKS + "0", trial="n", checkpoint_dir=str(here))
    assert bench.callback.values == [8]


def test_what_trials_see_holds_no_credentials(s3: Place, tmp_path: Path) -> None:
    bench = attempt(tmp_path / "e", 0, s3.storage().entry, "env -0; cat /proc/self/environ")
    assert swift.SECRET not in bench.text("stdout")
    kept = [path for path in bench.folder.rglob("*") if path.is_file()]
    assert not [path for path in kept if swift.SECRET.encode() in path.read_bytes()]


@pytest.mark.parametrize("place", KINDS, indirect=True)
def test_the_manager_refuses_a_storage_that_it_cannot_use(place: Place, tmp_path: Path) -> None:
    wrong: dict[str, Any] = {"local_mount_point": tmp_path / "gone"}
    if place.fields["storage_type"] == "S3":
        wrong = {"access_key": swift.KEY, "secret_key": "no"}
    elif place.fields["storage_type"] == "AzureBlob":
        wrong = {"storage_account_key": base64.b64encode(b"no").decode()}
    for call in (SharedStorage.prepare, SharedStorage.look):
        call(place.storage(), tmp_path)
        with pytest.raises(ConfigError, match=r"sudo mount -t nfs|accessKey and secretKey|storageAccountKey") as error:
            call(place.storage(**wrong), tmp_path)
        assert error.value.place.field == "sharedStorage"


def test_a_storage_that_is_away_is_no_fault_of_the_config(tmp_path: Path) -> None:
    fields = {"storage_type": "S3", "endpoint": f"http://127.0.0.1:{free_port()}", "bucket": "b"}
    place = Place(fields, {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"})
    with pytest.raises(ServiceError, match="it does not answer"):
        place.storage().prepare(tmp_path)


def test_amazon_s_own_addresses() -> None:
    place = Place({"storage_type": "S3", "bucket": "b", "region": "eu-west-3"})
    assert place.storage().entry["url"] == "https://b.s3.eu-west-3.amazonaws.com"
    assert place.storage(bucket="a.b").entry["url"] == "https://s3.eu-west-3.amazonaws.com/a.b"


def test_keys_that_are_missing_are_told_where_they_would_be(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no credentials for it; set accessKey"):
        Place({"storage_type": "S3", "bucket": "b"}).storage().look(tmp_path)
    azure = {"storage_type": "AzureBlob", "storage_account_name": "a", "container_name": "c"}
    with pytest.raises(ConfigError, match="AZURE_STORAGE_KEY"):
        Place(azure).storage()
    with pytest.raises(ConfigError, match="Base64"):
        Place(azure).storage(storage_account_key="?")


def test_each_job_gets_a_signature_that_begins_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    azure = {"storage_type": "AzureBlob", "storage_account_name": "a", "container_name": "c"}
    storage = Place(azure).storage(storage_account_key="c2VjcmV0")
    jobs = JobMaker("e", "s", "true", "fake", None, 1, 0, 10, tmp_path, storage=lambda: storage.entry)

    def token() -> str:
        return str(jobs(Trial("t", 0, {}), Attempt("t", 0)).spec["storage"]["sas_token"])

    first = token()
    monkeypatch.setattr("nnilite._checkpoints.shared_storage._SIGNATURE_DAYS", 31)  # as if a day had passed
    assert token() != first
