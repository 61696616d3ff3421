"""Metrics over the REST callback into the database, against writing the same rows with sqlite3 alone."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import sqlite3
import tempfile
import time
from pathlib import Path
from urllib.parse import urlsplit

from benchmarks.curves import Curve
from benchmarks.experiments import experiment
from benchmarks.table import Result
from nnilite._engine.jobs import token
from nnilite._keeper.proof import HEADER, ProofSession, digest

METRICS = 50_000
SIZES = (5_000, 20_000, 80_000)
BATCH = 500


def measure() -> list[Result]:
    with tempfile.TemporaryDirectory() as folder:
        os.environ["NNILITE_HOME"] = folder
        bare_s = bare(Path(folder) / "bare.sqlite")
        ours_s = ours(Path(folder))
    rate = METRICS / ours_s
    return [
        Result(
            "metrics taken in over HTTP and committed",
            f"{rate:,.0f}/s",
            f"the rows alone by sqlite3, fsync a batch: {METRICS / bare_s:,.0f}/s",
            f"{bare_s / ours_s:.2f}",
            "20,000/s",
            rate >= 20_000,
        )
    ]


def curve() -> Curve:
    points = []
    for metrics in SIZES:
        with tempfile.TemporaryDirectory() as folder:
            os.environ["NNILITE_HOME"] = folder
            points.append((metrics, ours(Path(folder), metrics)))
    return Curve("metrics of one trial, taken in and committed", "metrics", "seconds", points)


def bare(path: Path) -> float:
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = FULL")
        db.execute("CREATE TABLE metrics (trial INTEGER, attempt INTEGER, idx INTEGER, final, sequence, value, time)")
        db.execute("CREATE UNIQUE INDEX place ON metrics (trial, attempt, idx)")
        start = time.perf_counter()
        for first in range(0, METRICS, BATCH):
            db.execute("BEGIN")
            rows = [(0, 0, i, 0, i, json.dumps(i / 7), 1.0) for i in range(first, first + BATCH)]
            db.executemany("INSERT INTO metrics VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
            db.execute("COMMIT")
        return time.perf_counter() - start


def ours(folder: Path, metrics: int = METRICS) -> float:
    """One running trial whose events this process sends in its keeper's place."""
    with experiment(folder, "sleep 1000", 1, 1) as (entry, client):
        while not (running := list(client.trials(states=["RUNNING"]))):
            time.sleep(0.05)
        trial = running[0]["id"]
        job = f"nni-{entry.id}-{trial}-0"
        with contextlib.closing(sqlite3.connect(entry.directory / "nnilite.sqlite")) as db:
            secret = db.execute("SELECT value FROM meta WHERE key = 'secret'").fetchone()[0]
        return send(entry.url or "", job, token(secret, job), metrics)


def send(url: str, job: str, secret: str, metrics: int) -> float:
    """Signed batch by batch, as keepers do; with their signing and checking of answers."""
    bodies = [json.dumps({"events": [event(i) for i in range(f, f + BATCH)]}) for f in range(0, metrics, BATCH)]
    parts, path, session = urlsplit(url), f"/api/v1/callback/{job}", ProofSession(secret)
    with contextlib.closing(http.client.HTTPConnection(parts.hostname or "", parts.port)) as connection:
        start = time.perf_counter()
        connection.request("GET", f"{path}/proof?nonce={session.nonce}")
        session.meet(json.loads(connection.getresponse().read()))
        for body in bodies:
            content = body.encode("ascii")
            signed = {"Authorization": session.authorization("POST", path, content)}
            connection.request("POST", path, content, {**signed, "Content-Type": "application/json"})
            answer = connection.getresponse()
            text = answer.read()
            if answer.status != 200 or not session.proves(answer.getheader(HEADER), 200, digest(text)):
                raise SystemExit(f"{answer.status}: {text!r}")
        return time.perf_counter() - start


def event(index: int) -> dict[str, object]:
    value = json.dumps(index / 7)
    return {"type": "metric", "index": index, "kind": "PERIODICAL", "sequence": index, "value": value, "time": 1.0}
