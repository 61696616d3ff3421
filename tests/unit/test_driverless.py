"""The way from the options of H2O Driverless AI's workers to a section."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from nnilite._cli.nnictl import run
from nnilite.config import from_dict
from nnilite.errors import ConfigError
from nnilite_redis import convert

# Names and values as in the documentation of Driverless AI.
CONFIG = """
# Redis multinode training
worker_mode = "multinode"
redis_ip = "10.0.0.7"
redis_port = 6380
redis_db = 1
main_server_redis_password = "hunter2"
worker_remote_processors = 4
worker_local_processors = 32
worker_healthy_response_period = 120
main_server_minio_address = "10.0.0.7:9001"
main_server_minio_bucket = "h2oai"
main_server_minio_access_key_id = "key"
main_server_minio_secret_access_key = "hunter3"
local_minio_port = 9001
redis_result_queue_polling_interval = 100
main_server_minio_bucket_ping_timeout = 30
max_runtime_minutes = 60
"""
REST = {
    "searchSpace": {"x": {"_type": "uniform", "_value": [0, 1]}},
    "tuner": {"name": "Random"},
    "trialCommand": "true",
    "trialCodeDirectory": ".",
    "trialConcurrency": 1,
}


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python reads TOML since 3.11")
def test_a_whole_file_becomes_a_section_that_works_and_tells_no_secret(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "config.toml"
    path.write_text(CONFIG)
    assert run(["config", "convert", "--from", "driverless", "--json", str(path)]) == 0
    out, notes = capfd.readouterr()
    assert "hunter" not in out + notes
    service = json.loads(out)["trainingService"]
    assert service == {
        "platform": "redis",
        "redis": "redis://10.0.0.7:6380/1",
        "password": "${env:NNILITE_REDIS_PASSWORD}",
        "workerProcessors": 4,
        "workerHealthyPeriod": 120,
        "storage": {"bucket": "h2oai", "endpoint": "http://10.0.0.7:9001"},
    }
    assert "--redis redis://10.0.0.7:6380/1 --processors 32" in notes
    assert "redis_result_queue_polling_interval has no counterpart" in notes
    from_dict({**REST, "trainingService": {**service, "password": "p"}}, tmp_path).checked()


def test_a_file_without_workers_becomes_this_machine() -> None:
    found = convert({"worker_mode": "multiprocessing", "worker_local_processors": 8, "redis_ip": "x"})
    assert found.config == {"trialConcurrency": 8, "trainingService": {"platform": "local"}}


def test_one_node_and_no_options_at_all() -> None:
    service = convert({"worker_mode": "singlenode", "redis_ip": "::1"}).config["trainingService"]
    assert service == {"platform": "redis", "redis": "redis://[::1]:6379/0", "workerMode": "singlenode"}
    assert convert({}).config["trainingService"] == {"platform": "redis", "redis": "redis://127.0.0.1:6379/0"}


@pytest.mark.parametrize(
    ("document", "field"),
    [
        ({"worker_mode": "cluster"}, "worker_mode"),
        ({"redis_ip": 1}, "redis_ip"),
        ({"redis_port": "6379"}, "redis_port"),
        ({"worker_remote_processors": 0}, "worker_remote_processors"),
    ],
)
def test_a_value_that_cannot_be_used_is_refused_at_its_place(document: dict[str, object], field: str) -> None:
    with pytest.raises(ConfigError) as raised:
        convert(document)
    assert raised.value.place.field == field


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python reads TOML since 3.11")
def test_a_file_that_is_no_toml_is_refused(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "config.toml"
    path.write_text("redis_ip: 1")
    assert run(["config", "convert", "--from", "driverless", str(path)]) != 0
    assert "is not TOML" in capfd.readouterr().err
