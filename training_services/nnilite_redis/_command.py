"""The worker program of this plugin, as `nnictl worker` wants it: `add`, `work` and `workers`."""

from __future__ import annotations

import argparse
import asyncio
import os
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from nnilite.errors import ConfigError, Place
from nnilite.records import Host
from nnilite.services.gpu import GpuRules
from nnilite.units import parse_duration_s, parse_gpu_indices
from nnilite_redis._api import Pool
from nnilite_redis._config import PREFIX, PROCESSORS, check_label
from nnilite_redis._connection import EXAMPLE, RedisAddress
from nnilite_redis._convert import PoolView, read_worker_facts
from nnilite_redis._worker.pool_worker import WorkerOptions, run_worker

PASSWORD = "NNILITE_REDIS_PASSWORD"
"""The environment variable with the password."""

_FOLDER = Path("~/nnilite-worker")


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    server = parser.add_argument_group("the pool")
    server.add_argument("--redis", metavar="URL", help=f"the server, without the password, such as {EXAMPLE}")
    server.add_argument("--user", help="ACL user (default: the server's default user)")
    server.add_argument(
        "--password-file", type=Path, metavar="FILE", help=f"file with the password (default: the variable {PASSWORD})"
    )
    server.add_argument(
        "--ca-file", type=Path, metavar="FILE", help="authority of the server's certificate, if your own"
    )
    server.add_argument(
        "--prefix", default=PREFIX, help=f"names the pool, as the config's `prefix` (default: {PREFIX})"
    )
    own = parser.add_argument_group("this worker")
    own.add_argument(
        "--processors",
        "--worker-remote-processors",
        "--worker_remote_processors",
        type=_count,
        default=PROCESSORS,
        metavar="N",
        help=f"how many trials run here at once (default: {PROCESSORS})",
    )
    own.add_argument(
        "--labels", default="", metavar="A,B", help="labels with which trials may ask for this worker: gpu=a100,big"
    )
    own.add_argument(
        "--folder", type=Path, default=_FOLDER, help=f"folder for trials, one for each worker (default: {_FOLDER})"
    )
    own.add_argument("--name", default="", help="name of the worker (default: the machine's name and some letters)")
    own.add_argument(
        "--drain-limit", metavar="TIME", help="on shutdown, end running trials after this time (for example 10m)"
    )
    own.add_argument("--gpu-indices", metavar="0,1", help="the GPUs that trials may get; default: all")
    own.add_argument("--max-trial-number-per-gpu", type=_count, default=1, metavar="N", help="default: 1")
    own.add_argument("--use-active-gpu", action="store_true", help="trials may get GPUs that others use")


def _count(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) < 10_000:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 on")
    return int(text)


def work(options: argparse.Namespace) -> int:
    """Take trials until stopped; return the exit code. Raises: NniliteError, OSError."""
    worker = _options(options, _address(options))
    os.environ.pop(PASSWORD, None)  # it is not for trials
    return asyncio.run(run_worker(worker))


def workers(options: argparse.Namespace) -> list[Host]:
    """Return the workers that have joined. Raises: NniliteError."""
    return asyncio.run(_listed(_address(options), options.prefix))


async def _listed(address: RedisAddress, prefix: str) -> list[Host]:
    return await _list(Pool(address, prefix))


def _address(options: argparse.Namespace) -> RedisAddress:
    """Return the server's address. Raises: ConfigError."""
    if not options.redis:
        raise ConfigError(f"--redis is missing: set it to the server, such as --redis {EXAMPLE}")
    password = os.environ.get(PASSWORD, "")
    if options.password_file is not None:
        try:
            password = options.password_file.expanduser().read_text("utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            why = f"{options.password_file} cannot be read: {error}"
            raise ConfigError(why, Place(field="--password-file")) from error
    if options.ca_file is not None and not options.ca_file.expanduser().is_file():
        raise ConfigError(f"{options.ca_file} is not a file", Place(field="--ca-file"))
    given = RedisAddress(options.redis, "", password, options.ca_file and options.ca_file.expanduser())
    return replace(given, user=options.user or unquote(urlsplit(given.url).username or ""))


def _options(options: argparse.Namespace, address: RedisAddress) -> WorkerOptions:
    """Return the options of a worker. Raises: ConfigError."""
    labels = [label for label in options.labels.split(",") if label]
    for label in labels:
        check_label(label, Place(field="--labels"))
    name = options.name
    if name and (len(name) > 100 or not name.isprintable() or ":" in name):
        raise ConfigError(f"{name!r} is not a valid name of a worker", Place(field="--name"))
    allowed = _read(options.gpu_indices, parse_gpu_indices, "--gpu-indices")
    return WorkerOptions(
        address,
        options.prefix,
        options.folder.expanduser().absolute(),
        name,
        options.processors,
        labels,
        GpuRules(allowed, options.max_trial_number_per_gpu, options.use_active_gpu),
        _read(options.drain_limit, parse_duration_s, "--drain-limit"),
    )


def _read(text: str | None, parse: Any, option: str) -> Any:
    if text is None:
        return None
    try:
        return parse(text)
    except ValueError as error:
        raise ConfigError(str(error), Place(field=option)) from error


async def _list(pool: Pool) -> list[Host]:
    """Return the workers that have joined, by their own reports. Raises: ConfigError, ServiceError."""
    try:
        await pool.check()
        records = await pool.workers()
        places = await pool.places()
    finally:
        await pool.close()
    workers = [read_worker_facts(record) for record in records]
    silent_s = {record.id: record.age_s for record in records}
    return PoolView(workers, silent_s, places).hosts({worker.id: worker.running for worker in workers})
