"""What comes back from jobs of PAI-DLC: logs, files, and never a key."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nnilite.records import MetricKind
from nnilite.service import JobState
from nnilite_dlc import _api, _log
from platforms.dlc.bench import DlcBench, QuickDlc
from platforms.dlc.server import KEY, NAS, DlcServer, refuse

pytestmark = pytest.mark.process

LOG = "/logs"
REPORT = "import nnilite\nfor n in range(3): nnilite.report_intermediate_result(n)\nnnilite.report_final_result(9)"


@pytest.fixture
def server(tmp_path):
    with DlcServer(tmp_path / "dlc") as server:
        yield server
    assert server.broken + server.dlc.broken == []


@pytest.fixture
def opened(tmp_path, server):
    """Opens a bench with these fields of the section."""
    benches: list[DlcBench] = []

    def make(**fields) -> DlcBench:
        benches.append(DlcBench(tmp_path, server, **fields))
        return benches[-1].__enter__()

    yield make
    server.steps = []
    for bench in benches:
        bench.__exit__()


@pytest.fixture
def bench(opened):
    return opened()


@pytest.fixture
def storage(tmp_path):
    """The fields of a data set that is mounted in pods and here."""
    place = tmp_path / "storage"
    place.mkdir()
    return {
        "nas_data_source_id": NAS,
        "local_storage_mount_point": place,
        "container_storage_mount_point": str(place),
    }


# ------------------------------------------------------------ logs


@pytest.mark.parametrize("keeps", ["first", "last"])
def test_a_log_that_is_longer_than_a_window_comes_whole(opened, server, monkeypatch, keeps):
    monkeypatch.setattr(_api, "MOST_LINES", 30)
    monkeypatch.setattr(_log, "MOST_LINES", 30)
    server.most_lines, server.keeps_lines = 30, keeps
    bench = opened(by_log=True)
    script = "import time, nnilite\nfor n in range(80):\n nnilite.report_intermediate_result(n); time.sleep(0.1)"
    received = bench.finish(bench.python(script))
    assert received.values == list(range(80))


def test_lines_that_come_late_are_read_and_the_end_is_awaited(opened, server):
    server.log_late_s = 1.0
    bench = opened(by_log=True)
    received = bench.finish(bench.run(f"python3 -c '{REPORT}'; exit 4"))
    assert received.exits[0]["code"] == 4
    assert received.metrics[-1] == (MetricKind.FINAL, 0, 9)
    assert received.values == [0, 1, 2, 9]


def test_a_log_that_cannot_be_read_does_not_hold_up_an_end_for_ever(bench, server, monkeypatch):
    monkeypatch.setattr(QuickDlc, "patience", replace(QuickDlc.patience, log_lag_s=0.5))
    name = bench.run("true")
    server.steps_for, server.steps = LOG, [refuse(403, "NoPermission")] * 1000
    assert bench.wait(name).state is JobState.SUCCEEDED


# ------------------------------------------------------------ secrets


def test_no_key_is_in_a_job_or_a_log(opened, server, caplog, tmp_path, storage):
    caplog.set_level("DEBUG")
    bench = opened(**storage)
    name = bench.run("true")
    bench.finish(name)
    assert KEY[1] not in caplog.text + repr(server.dlc.named(name)[0].body) + "".join(server.seen)
    assert KEY[1] not in repr(bench.service.describe(bench.job("true"))) + repr(bench.service.config)
    kept = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert not any(KEY[1].encode() in content for content in kept)


def test_the_files_of_a_trial_come_from_the_storage(opened, tmp_path, storage):
    bench = opened(**storage)
    name = bench.run('echo kept > "$NNI_OUTPUT_DIR/model"; echo half > "$NNILITE_CHECKPOINT_DIR/state"')
    bench.finish(name)
    bench.call(bench.service.fetch(bench.handles[name], tmp_path / "here"))
    assert (tmp_path / "here" / "model").read_text() == "kept\n"
    assert [path.read_text() for path in storage["local_storage_mount_point"].rglob("checkpoints/state")] == ["half\n"]


def test_of_several_pods_the_master_reports(opened, server):
    bench = opened(job_type="PyTorchJob", pod_count=2)
    script = "import nnilite, os; nnilite.report_final_result(float(os.environ['RANK']))"
    received = bench.finish(bench.python(script))
    assert received.values == [0.0]
    [job] = server.dlc.jobs.values()
    assert (len(job.pods), job.state) == (2, "Succeeded")
