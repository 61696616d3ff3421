"""A disk in trouble under real programs: see `faulty_disk.c`, which this compiles and steers.

    disk = Disk(folder)                                  compiled there; raises NoDisk where it cannot be
    disk.watch("store", "/home/x", "*.sqlite*")          names some files: those below a folder that a pattern fits
    subprocess.run(program, env=disk.environment())      and all that this program starts
    disk.slow("store", SYNC, delay_s=0.02)
    disk.refuse("store", WRITE, errno.ENOSPC, torn=True)
    disk.heal()

The library goes wherever LD_PRELOAD goes: a manager hands it on to its tuner, its fork server, the keepers and the
trials. So it lies under the reports of a trial's SDK, too. Trouble comes to the named files only: what a trial's own
code does elsewhere is left alone.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path(__file__).with_name("faulty_disk.c")
OPEN, WRITE, SYNC, TRUNCATE, RENAME, LOCK, MAKE_FOLDER = range(7)
OPERATIONS = 7
_ZONES = 8
_MILLION = 1_000_000


class NoDisk(Exception):
    """Why there can be no such disk here."""


class _Rule(ctypes.Structure):
    _fields_ = [
        *[(name, ctypes.c_uint32) for name in ("delay_us", "stall_us", "stall_ppm", "error", "error_ppm", "torn")],
        *[(name, ctypes.c_uint64) for name in ("only", "calls", "stalled", "failed")],
    ]


class _Zone(ctypes.Structure):
    _fields_ = [("folder", ctypes.c_char * 1024), ("pattern", ctypes.c_char * 256), ("rules", _Rule * OPERATIONS)]


class _Control(ctypes.Structure):
    _fields_ = [("zones", ctypes.c_uint32), ("seed", ctypes.c_uint32), ("zone", _Zone * _ZONES)]


@dataclass(frozen=True)
class Counted:
    """What has come to the files of a zone by one operation."""

    calls: int
    stalled: int
    failed: int


class Disk:
    """One disk. `seed`: of what happens by chance, in so far as the programs on it do the same again."""

    def __init__(self, folder: Path, seed: int = 1) -> None:
        self.library = folder / "faulty_disk.so"  # LD_PRELOAD splits at spaces and colons: no such folder, please
        self._compile()
        place = folder / "faulty_disk.so.control"
        place.write_bytes(bytes(ctypes.sizeof(_Control)))
        place.chmod(0o666)  # the programs may be another user's
        with place.open("r+b") as file:
            self._control = _Control.from_buffer(mmap.mmap(file.fileno(), 0))
        self._control.seed = seed
        self._zones: dict[str, _Zone] = {}

    def _compile(self) -> None:
        if os.uname().sysname != "Linux":
            raise NoDisk("a disk in trouble is made by LD_PRELOAD, as Linux has it")
        if shutil.which("gcc") is None:
            raise NoDisk("gcc is not installed, to compile a disk in trouble with")
        command = ["gcc", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
        made = subprocess.run(
            [*command, "-o", str(self.library), str(SOURCE), "-ldl"], capture_output=True, text=True, timeout=60
        )
        if made.returncode:
            raise NoDisk(f"a disk in trouble cannot be compiled: {made.stderr}")

    def environment(self) -> dict[str, str]:
        """This process's environment, on the disk."""
        return {**os.environ, "LD_PRELOAD": str(self.library)}

    def watch(self, zone: str, folder: Path | str, pattern: str = "*") -> None:
        """Name the files below a folder whose path fits a pattern; a `*` in it also stands for slashes.

        A file that fits two zones is of the first. To be called before the programs are started.
        """
        added = self._control.zone[len(self._zones)]
        added.folder, added.pattern = os.fsencode(folder), os.fsencode(pattern)
        self._zones[zone] = added
        self._control.zones = len(self._zones)

    def slow(
        self, zone: str, operation: int, *, delay_s: float = 0.0, stall_s: float = 0.0, stall_chance: float = 0.0
    ) -> None:
        """Each call takes `delay_s` more, and some, by chance, `stall_s`."""
        rule = self._zones[zone].rules[operation]
        rule.delay_us, rule.stall_us = round(delay_s * _MILLION), round(stall_s * _MILLION)
        rule.stall_ppm = round(stall_chance * _MILLION)

    def refuse(
        self, zone: str, operation: int, error: int, *, chance: float = 1.0, torn: bool = False, only: int = 0
    ) -> None:
        """Calls fail with an `errno`. `torn`: every second write that would fail writes some of its bytes.

        `only`: only this one fails, counted from 1 since the disk was made or `count_anew` was called.
        """
        rule = self._zones[zone].rules[operation]
        rule.only = only
        rule.torn, rule.error_ppm, rule.error = torn, round(chance * _MILLION), error

    def heal(self, zone: str | None = None) -> None:
        """All is well again, at once, for calls that are held up, too."""
        for name, found in self._zones.items():
            for rule in found.rules if zone in (None, name) else ():
                rule.error = rule.error_ppm = rule.torn = rule.only = rule.delay_us = rule.stall_us = rule.stall_ppm = 0

    def count_anew(self) -> None:
        """Begin to count at 0."""
        for found in self._zones.values():
            for rule in found.rules:
                rule.calls = rule.stalled = rule.failed = 0

    def counted(self, zone: str, operation: int) -> Counted:
        rule = self._zones[zone].rules[operation]
        return Counted(rule.calls, rule.stalled, rule.failed)
