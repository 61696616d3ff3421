"""Convert the `config.toml` of H2O Driverless AI's Redis multinode training to a section.

Only its options of workers have a counterpart here; most of the file is about the training itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from nnilite.conversion import Conversion
from nnilite.errors import ConfigError, Place
from nnilite.records import Json

_MINIO = ("main_server_minio_access_key_id", "main_server_minio_secret_access_key")
_NO_COUNTERPART = {
    "redis_result_queue_polling_interval": "results arrive as they are reported",
    "main_server_minio_bucket_ping_timeout": "a store that does not answer is tried again",
    "local_minio_port": "nnilite starts no MinIO; name yours as storage.endpoint",
}


def convert(document: Mapping[str, Any]) -> Conversion:
    """Convert a config.toml. Raises: ConfigError for a value that cannot be used."""
    mode = document.get("worker_mode", "multinode")
    if mode not in ("multiprocessing", "singlenode", "multinode"):
        allowed = "multiprocessing, singlenode or multinode"
        raise ConfigError(f"must be {allowed}, not {mode!r}", Place(field="worker_mode"))
    if mode == "multiprocessing":
        return _convert_to_one_machine(document)
    notes: list[str] = []
    service: dict[str, Json] = {"platform": "redis", "redis": _address(document)}
    if document.get("main_server_redis_password"):
        service["password"] = "${env:NNILITE_REDIS_PASSWORD}"
        notes.append(
            "main_server_redis_password is not copied: set the environment variable NNILITE_REDIS_PASSWORD to it, for "
            "the manager and for each worker"
        )
    if mode == "singlenode":
        service["workerMode"] = mode
    for old, new in (
        ("worker_remote_processors", "workerProcessors"),
        ("worker_healthy_response_period", "workerHealthyPeriod"),
    ):
        if old in document:
            service[new] = _whole(document, old)
    if "worker_local_processors" in document:
        number = _whole(document, "worker_local_processors")
        notes.append(
            f"worker_local_processors: to run trials on the manager's machine, too, start a worker there with "
            f"`nnictl worker --redis {service['redis']} --processors {number}`"
        )
    _add_storage(document, service, notes.append)
    notes += [f"{name} has no counterpart: {why}" for name, why in _NO_COUNTERPART.items() if name in document]
    return Conversion({"trainingService": service}, tuple(notes))


def _convert_to_one_machine(document: Mapping[str, Any]) -> Conversion:
    """Convert a file without workers: all runs in processes of one machine."""
    config: dict[str, Json] = {"trainingService": {"platform": "local"}}
    if "worker_local_processors" in document:
        config = {"trialConcurrency": _whole(document, "worker_local_processors"), **config}
    return Conversion(config, ("worker_mode: multiprocessing uses no workers: trials run on this machine",))


def _address(document: Mapping[str, Any]) -> str:
    host = document.get("redis_ip", "127.0.0.1")
    if not isinstance(host, str) or not host:
        raise ConfigError("must be the host of the Redis server", Place(field="redis_ip"))
    port = _whole(document, "redis_port") if "redis_port" in document else 6379
    database = _whole(document, "redis_db", least=0) if "redis_db" in document else 0
    return f"redis://{f'[{host}]' if ':' in host else host}:{port}/{database}"


def _add_storage(document: Mapping[str, Any], service: dict[str, Json], note: Callable[[str], None]) -> None:
    """Convert the MinIO of the main server, whose keys are secrets."""
    bucket, address = document.get("main_server_minio_bucket"), document.get("main_server_minio_address")
    if not bucket:
        if address:
            note("main_server_minio_address was left out: it needs main_server_minio_bucket")
        return
    storage: dict[str, Json] = {"bucket": bucket}
    if address:
        storage["endpoint"] = address if "://" in str(address) else f"http://{address}"
    service["storage"] = storage
    if any(document.get(name) for name in _MINIO):
        note(
            "the keys of MinIO are not copied: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY to them, for the "
            "manager and for each worker"
        )


def _whole(document: Mapping[str, Any], name: str, least: int = 1) -> int:
    value = document[name]
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ConfigError(f"must be a whole number of at least {least}, not {value!r}", Place(field=name))
    return value
