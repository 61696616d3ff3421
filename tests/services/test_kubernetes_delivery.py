"""Code from storage: how it gets onto a volume that nobody mounts here, a bucket, a file share; and out of it again."""

from __future__ import annotations

import os
import sys

import pytest

from nnilite.errors import ConfigError, NoCapacity
from nnilite.service import JobState
from nnilite.testing import eventually
from nnilite_kubernetes import (
    AdlConfig,
    AdlService,
    FrameworkControllerConfig,
    FrameworkControllerService,
    KubeflowConfig,
    KubeflowService,
    KubernetesConfig,
    KubernetesService,
)
from nnilite_kubernetes._azure_files import AzureFileShare
from nnilite_kubernetes._config import RoleConfig, StorageConfig
from nnilite_kubernetes._frameworkcontroller import TaskRoleConfig
from nnilite_kubernetes._manifest import CodeSource, choose_source
from nnilite_kubernetes._s3 import Bucket
from platforms.azure_files import AzureFiles
from platforms.kube.bench import Platform
from platforms.kube.client import PODS, SECRETS
from platforms.kube.cluster import IMAGE
from platforms.kube.operators import install
from platforms.kube.other_operators import install_adaptdl, install_frameworkcontroller

_JOB = Platform(KubernetesService, KubernetesConfig, {"docker_image": IMAGE})
_FC = Platform(FrameworkControllerService, FrameworkControllerConfig, {}, install_frameworkcontroller())
_ADL = Platform(AdlService, AdlConfig, {"docker_image": IMAGE}, install_adaptdl())
_MPI = Platform(KubeflowService, KubeflowConfig, {"operator": "mpi-operator"}, install())
_CLAIM = StorageConfig(storage_type="pvc", claim="shared")
_NFS = StorageConfig(storage_type="nfs", server="10.1.1.1", path="/export")
_RIGHTS = (
    ("batch", ["jobs"], ["create", "get", "list", "watch", "patch", "delete"]),
    ("", ["secrets"], ["create", "get", "list", "patch", "delete"]),
    ("", ["pods"], ["list", "watch", "get"]),
    ("", ["pods/log"], ["get"]),
)
_MORE_RIGHTS = (("", ["pods"], ["create", "delete"]), ("", ["pods/exec"], ["create", "get"]))
_REPORT = "import mod, nnilite; nnilite.report_final_result(mod.VALUE)"
_NO_WAY = {"report": "stdout", "callback": "http://127.0.0.1:9"}  # `callback: log`


@pytest.fixture(params=[_JOB], ids=["Job"])
def platform(request):
    return request.param


def submitted(bench, job):
    """The name of a job that is submitted as the manager does: again and again while there is no room."""

    def taken():
        try:
            return bench.submit(job)
        except NoCapacity:
            return ""

    return eventually(taken, 60)


def run(bench, **spec):
    return submitted(bench, bench.job(f"python3 -c '{_REPORT}'", **spec))


@pytest.mark.process
@pytest.mark.everywhere
def test_a_volume_gets_the_code_by_a_pod_that_is_gone_afterwards(cluster, open_bench, machinery):
    bench = open_bench(storage=_CLAIM)
    bench.put_code(**{"mod.py": "VALUE = 7", "data.bin": os.urandom(1_500_000).hex()})  # more than a Secret holds
    name = run(bench, **_NO_WAY)
    assert bench.finish(name).values == [7]
    eventually(lambda: all("nnilite/job" in pod["metadata"]["labels"] for pod in cluster.pods()))
    assert bench.received(name).requests == 0
    assert all(set(secret["data"]) == {"spec", "callback"} for secret in cluster.secrets())


@pytest.mark.process
def test_the_code_is_sent_once_for_all_trials_and_managers(open_bench, machinery):
    bench = open_bench(storage=_NFS, code_from="storage")
    bench.put_code(**{"mod.py": "VALUE = 8"})
    assert bench.finish(run(bench)).values == [8]
    [archive] = (machinery.node.folder / "storage" / "nfs").rglob("code/*.tar.gz")
    written = archive.stat().st_mtime_ns
    assert bench.finish(run(bench)).values == [8]
    bench.restart()
    assert bench.finish(run(bench)).values == [8]
    assert archive.stat().st_mtime_ns == written


@pytest.mark.process
def test_what_is_damaged_on_the_volume_is_found_out_and_mended(open_bench, machinery):
    bench = open_bench(storage=_NFS, code_from="storage")
    bench.put_code(**{"mod.py": "VALUE = 9"})
    bench.finish(run(bench))
    [archive] = (machinery.node.folder / "storage" / "nfs").rglob("code/*.tar.gz")
    archive.write_bytes(archive.read_bytes()[:-50])
    name = run(bench)
    assert "damaged" in bench.finish(name).exits[0]["message"]
    bench.restart()
    assert bench.finish(run(bench)).values == [9]


@pytest.mark.everywhere
def test_trials_say_what_the_pod_with_the_code_waits_for(cluster, open_bench):
    template = {"spec": {"nodeSelector": {"disk": "none"}}}
    bench = open_bench(storage=_NFS, code_from="storage", pod_template=template)
    job = bench.job("true")
    eventually(lambda: "didn't match" in str(bench.refusal(bench.service.submit(job))), cluster.limit_s)
    refusal = bench.refusal(bench.service.submit(job))
    assert isinstance(refusal, NoCapacity)
    assert "must first copy the code to the volume: Unschedulable" in str(refusal)
    assert len(cluster.pods()) == 1
    bench.close()
    eventually(lambda: not cluster.pods(), cluster.limit_s)


def test_a_pod_with_the_code_that_never_starts_is_given_up(cluster, open_bench):
    template = {"spec": {"nodeSelector": {"disk": "none"}}}
    bench = open_bench(storage=_CLAIM, code_from="storage", pod_template=template, schedule_limit=1)
    job = bench.job("true")
    eventually(lambda: isinstance(bench.refusal(bench.service.submit(job)), ConfigError), cluster.limit_s)
    eventually(lambda: not cluster.pods(), cluster.limit_s)


@pytest.mark.everywhere
def test_the_rights_for_that_are_asked_for_before_anything_starts(cluster, open_bench):
    account = cluster.limited(*_RIGHTS)
    with pytest.raises(ConfigError, match=r"may not create, delete pods; create, get pods/exec in the namespace"):
        open_bench(account, storage=_CLAIM, code_from="storage")


@pytest.mark.process
@pytest.mark.everywhere
def test_no_other_rights_are_needed_for_that(cluster, open_bench, this_machine):
    bench = open_bench(cluster.limited(*_RIGHTS, *_MORE_RIGHTS), storage=_CLAIM, code_from="storage")
    bench.put_code(**{"mod.py": "VALUE = 1"})
    assert bench.wait(run(bench)).state is JobState.SUCCEEDED


@pytest.mark.process
@pytest.mark.parametrize("platform", [_MPI], indirect=True, ids=["MPIJob"])
def test_workers_whose_command_is_the_operators_have_the_code_too(cluster, open_bench, machinery):
    bench = open_bench(storage=_CLAIM, code_from="storage", worker=RoleConfig(docker_image=IMAGE, replicas=2))
    bench.put_code(**{"mod.py": "VALUE = 5"})
    look = "discover=$(dirname $OMPI_MCA_orte_default_hostfile)/discover_hosts.sh; until test $($discover | wc -l) = 2"
    name = submitted(bench, bench.job(f"{look}; do sleep 0.1; done; python3 -c '{_REPORT}'"))
    assert bench.finish(name).values == [5]
    assert len(list((machinery.node.folder / "storage" / "shared" / "nni").rglob("mod.py"))) == 1


@pytest.mark.process
@pytest.mark.parametrize("platform", [_FC], indirect=True, ids=["Framework"])
def test_task_roles_have_the_code_of_a_volume(open_bench, machinery):
    bench = open_bench(
        storage=_NFS, code_from="storage", task_roles=[TaskRoleConfig(name="worker", docker_image=IMAGE)]
    )
    bench.put_code(**{"mod.py": "VALUE = 2"})
    assert bench.finish(run(bench, **_NO_WAY)).values == [2]


def test_a_dry_run_shows_the_pod_that_takes_the_code(open_bench):
    bench = open_bench(storage=_CLAIM, code_from="storage", service_account_name="me")
    pod, secret, job = bench.service.describe(bench.job("true"))["manifests"]
    assert (pod["kind"], secret["kind"], job["kind"]) == ("Pod", "Secret", "Job")
    assert pod["spec"]["volumes"][0]["persistentVolumeClaim"] == {"claimName": "shared"}
    assert pod["spec"]["serviceAccountName"] == "me"
    mounts = {mount["mountPath"]: mount for mount in job["spec"]["template"]["spec"]["containers"][0]["volumeMounts"]}
    assert mounts["/nnilite-code"]["readOnly"]
    assert mounts["/nnilite-code"]["subPath"] == pod["spec"]["containers"][0]["volumeMounts"][0]["subPath"]


# what the config may say


@pytest.mark.parametrize(
    ("fields", "sentences"),
    [
        ({"storage_type": "s3"}, ["bucket: is needed for storageType s3"]),
        ({"storage_type": "s3", "bucket": "b", "access_key": "a"}, ["secretKey: and accessKey belong together"]),
        ({"storage_type": "azureStorage", "azure_share": "s"}, ["azureKey: is needed", "azureSecret"]),
        (
            {"storage_type": "azureStorage", "azure_share": "s", "key_vault_name": "V", "key_vault_key": "K"},
            ["nothing is read from a key vault", "${env:AZURE_KEY}", "export AZURE_KEY=$(az", "azureSecret"],
        ),
    ],
)
def test_storage_that_cannot_be_used_is_refused_with_its_cure(fields, sentences):
    with pytest.raises(ConfigError) as refusal:
        StorageConfig(**fields)
    assert all(sentence in str(refusal.value) for sentence in sentences)


def test_a_vault_beside_the_key_does_no_harm():
    names = {"azure_share": "s", "azure_account": "a", "key_vault_name": "V", "key_vault_key": "K"}
    assert StorageConfig(storage_type="azureStorage", azure_key="k", **names).can_be_mounted


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"code_from": "storage"}, "codeFrom: there is no storage"),
        (
            {"code_from": "manager", "storage": StorageConfig(storage_type="s3", bucket="b")},
            "codeFrom: storageType s3 is for the code alone",
        ),
    ],
)
def test_a_source_that_is_not_there_is_refused(fields, message):
    with pytest.raises(ConfigError, match=message):
        KubernetesConfig(docker_image=IMAGE, **fields)


@pytest.mark.parametrize(
    ("storage", "code_from", "report", "source"),
    [
        (None, None, "rest", CodeSource.MANAGER),
        (None, None, "stdout", CodeSource.SECRET),
        (_NFS, None, "rest", CodeSource.MANAGER),
        (_NFS, None, "stdout", CodeSource.VOLUME),
        (_NFS, "storage", "rest", CodeSource.VOLUME),
        (_NFS, "manager", "stdout", CodeSource.SECRET),
        (StorageConfig(storage_type="s3", bucket="b"), None, "rest", CodeSource.OBJECTS),
        (StorageConfig(storage_type="s3", bucket="b"), "storage", "stdout", CodeSource.OBJECTS),
    ],
)
def test_where_the_code_comes_from_follows_from_storage_and_callback(storage, code_from, report, source):
    config = KubernetesConfig(docker_image=IMAGE, storage=storage, code_from=code_from)
    assert choose_source(config, report) is source


def test_missing_clients_are_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "boto3", None)
    monkeypatch.setitem(sys.modules, "azure.storage.fileshare", None)
    with pytest.raises(ConfigError, match=r"pip install 'nnilite\[s3\]'"):
        Bucket(StorageConfig(storage_type="s3", bucket="b"))
    names = {"azure_account": "a", "azure_key": "k", "azure_share": "s"}
    with pytest.raises(ConfigError, match=r"pip install 'nnilite\[azure-files\]'"):
        AzureFileShare(StorageConfig(storage_type="azureStorage", **names))


# an object store


@pytest.fixture(scope="module")
def s3():
    """A server of buckets that checks who one is; its URL, and the keys of an account."""
    server = pytest.importorskip("moto.server").ThreadedMotoServer(port=0)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


def bucket(s3, name, **fields):
    keys = {"access_key": "AKIATEST", "secret_key": "s3cret", "region": "us-east-1"}
    return StorageConfig(**{"storage_type": "s3", "bucket": name, "endpoint": s3, "prefix": "a b", **keys, **fields})


@pytest.fixture
def made_bucket(s3):
    boto3 = pytest.importorskip("boto3")
    keys = {"aws_access_key_id": "AKIATEST", "aws_secret_access_key": "s3cret", "region_name": "us-east-1"}
    client = boto3.client("s3", endpoint_url=s3, **keys)
    client.create_bucket(Bucket="code-of-trials")
    return client


@pytest.mark.process
@pytest.mark.parametrize("spec", [{}, _NO_WAY], ids=["rest", "log"])
def test_pods_get_the_code_from_a_bucket_without_its_keys(cluster, open_bench, machinery, s3, made_bucket, spec):
    bench = open_bench(storage=bucket(s3, "code-of-trials"))
    bench.put_code(**{"mod.py": "VALUE = 3", "data.bin": os.urandom(1_500_000).hex()})
    job = bench.job(f"python3 -c '{_REPORT}'", **spec)
    assert bench.finish(submitted(bench, job)).values == [3]
    place = {"Bucket": "code-of-trials", "Prefix": f"a b/nni/{job.experiment}/code/"}
    keys = [entry["Key"] for entry in made_bucket.list_objects_v2(**place)["Contents"]]
    assert len(keys) == 2
    assert "s3cret" not in str([cluster.all(key) for key in (PODS, SECRETS)])
    before = made_bucket.head_object(Bucket="code-of-trials", Key=keys[-1])["LastModified"]
    bench.restart()
    assert bench.finish(run(bench, **spec)).values == [3]
    assert made_bucket.head_object(Bucket="code-of-trials", Key=keys[-1])["LastModified"] == before


@pytest.mark.process
@pytest.mark.parametrize("platform", [_ADL], indirect=True, ids=["AdaptDLJob"])
def test_replicas_that_come_and_go_get_the_code_from_a_bucket(open_bench, machinery, s3, made_bucket):
    bench = open_bench(storage=bucket(s3, "code-of-trials"), adaptive=True)
    bench.put_code(**{"mod.py": "VALUE = 11"})
    assert bench.finish(run(bench)).values == [11]


def test_a_bucket_that_is_not_there_is_told_before_anything_starts(open_bench, s3):
    with pytest.raises(ConfigError, match="storage: there is no bucket nowhere"):
        open_bench(storage=bucket(s3, "nowhere"))


@pytest.mark.process
def test_a_pod_that_may_not_read_the_code_says_so(open_bench, machinery, s3, made_bucket):
    bench = open_bench(storage=bucket(s3, "code-of-trials"))
    bench.put_code(**{"mod.py": "VALUE = 4"})
    bench.finish(run(bench))
    for entry in made_bucket.list_objects_v2(Bucket="code-of-trials")["Contents"]:
        made_bucket.delete_object(Bucket="code-of-trials", Key=entry["Key"])
    name = run(bench)
    status = bench.wait(name)
    assert status.state is JobState.LOST
    assert "the keeper cannot be fetched from storage: HTTP Error 404" in status.reason


# an Azure file share


@pytest.fixture
def azure(machinery):
    """Its shares are what the node mounts."""
    pytest.importorskip("azure.storage.fileshare")
    with AzureFiles("acc", "c2VjcmV0IGtleQ==", machinery.node.folder / "storage") as server:
        yield server


def share(azure, **fields):
    names = {"azure_account": "acc", "azure_share": "trials", "azure_endpoint": azure.url}
    return StorageConfig(storage_type="azureStorage", **{**names, "azure_key": "c2VjcmV0IGtleQ==", **fields})


@pytest.mark.process
def test_a_file_share_gets_the_code_by_its_interface_and_the_accounts_key(cluster, open_bench, azure):
    bench = open_bench(storage=share(azure), code_from="storage")
    bench.put_code(**{"mod.py": "VALUE = 6", "data.bin": os.urandom(3_000_000).hex()})
    name = run(bench, **_NO_WAY)
    assert bench.finish(name).values == [6]
    assert not [pod for pod in cluster.pods() if "nnilite/job" not in pod["metadata"]["labels"]]
    sent = azure.received
    bench.restart()
    assert bench.finish(run(bench, **_NO_WAY)).values == [6]
    assert azure.received == sent


def test_a_wrong_key_is_told_before_anything_starts(open_bench, azure):
    with pytest.raises(ConfigError, match="storage: the file share trials cannot be used"):
        open_bench(storage=share(azure, azure_key="d3Jvbmc="), code_from="storage")


def test_a_share_whose_key_is_in_the_cluster_gets_the_code_by_a_pod(open_bench):
    secret = StorageConfig(storage_type="azureStorage", azure_share="trials", azure_secret="its-key")
    bench = open_bench(storage=secret, code_from="storage")
    pod, *_ = bench.service.describe(bench.job("true"))["manifests"]
    assert pod["spec"]["volumes"][0]["azureFile"] == {"secretName": "its-key", "shareName": "trials"}
