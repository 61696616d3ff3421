"""Packing the code directory, against tar and gzip of the same files."""

from __future__ import annotations

import random
import subprocess
import tempfile
import time
from pathlib import Path

from benchmarks.curves import Curve
from benchmarks.table import Result
from nnilite import codedir

FILES = 1000
SIZES = (30, 200, 1000)
BYTES = 60_000


def measure() -> list[Result]:
    with tempfile.TemporaryDirectory() as folder:
        code, cache = Path(folder) / "code", Path(folder) / "cache"
        fill(code)
        cache.mkdir()
        tar_s = timed(["tar", "-C", str(code), "-czf", str(Path(folder) / "bare.tar.gz"), "."])
        start = time.perf_counter()
        codedir.pack(code, cache)
        first_s = time.perf_counter() - start
        start = time.perf_counter()
        codedir.pack(code, cache)
        again_s = time.perf_counter() - start
    ratio = first_s / tar_s
    base = f"tar + gzip: {tar_s:.2f} s"
    return [
        Result("packing 1,000 files, 60 MB", f"{first_s:.2f} s", base, f"{ratio:.2f}", "1.3", ratio <= 1.3),
        Result("... unchanged, again", f"{again_s * 1000:.0f} ms", base, f"{again_s / tar_s:.3f}", "not packed", None),
    ]


def curve() -> Curve:
    points = []
    for files in SIZES:
        with tempfile.TemporaryDirectory() as folder:
            code, cache = Path(folder) / "code", Path(folder) / "cache"
            fill(code, files)
            cache.mkdir()
            start = time.perf_counter()
            codedir.pack(code, cache)
            points.append((files, time.perf_counter() - start))
    return Curve("packing the code directory", "files of 60 kB", "seconds", points)


def fill(code: Path, files: int = FILES) -> None:
    luck = random.Random(0)
    words = [luck.randbytes(6).hex() for _ in range(5000)]
    for i in range(files):
        path = code / f"package{i % 20}" / f"module{i}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(" ".join(luck.choices(words, k=BYTES // 13)))


def timed(command: list[str]) -> float:
    start = time.perf_counter()
    subprocess.run(command, check=True)
    return time.perf_counter() - start
