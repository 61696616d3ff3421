"""The folder of an experiment's trials, for programs other than keepers: each trial has a folder of its own in it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct

_DEVICES = "/sys/dev/block"
_EXT4 = "/proc/fs/ext4"
_TOPDIR_FL = 0x20000  # FS_TOPDIR_FL of linux/fs.h; `chattr +T` sets it
# FS_IOC_GETFLAGS and FS_IOC_SETFLAGS: their numbers contain the size of a C long, and they take an int.
_GET = 0x80006601 | struct.calcsize("l") << 16
_SET = 0x40006602 | struct.calcsize("l") << 16


def make_trials_folder(path: str) -> None:
    """Make the folder, for its owner alone, unless it is there. Raises: OSError.

    Trials write and remove many small files. ext4 without a journal does not use a freed inode again for minutes, and
    looks at each such inode whenever it makes a file in the same group of blocks: each trial makes the next one slower,
    and soon this is most of what a short trial costs. So there the folder gets the attribute T, for which ext4 gives
    each folder in it another group. With a journal that gains nothing, and makes all files slower to read.
    """
    os.makedirs(path, mode=0o700, exist_ok=True)
    if not _has_no_journal(path):
        return
    with contextlib.suppress(OSError):  # everything works without it
        folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            (flags,) = struct.unpack("i", fcntl.ioctl(folder, _GET, bytes(4)))
            fcntl.ioctl(folder, _SET, struct.pack("i", flags | _TOPDIR_FL))
        finally:
            os.close(folder)


def make_attempt_folder(path: str) -> None:
    """Make the folder of an attempt, `<trials>/<trial>/<attempt>`, for its owner alone. Raises: OSError."""
    trials = os.path.dirname(os.path.dirname(path))
    if not os.path.isdir(trials):
        make_trials_folder(trials)
    os.makedirs(path, mode=0o700, exist_ok=True)


def _has_no_journal(path: str) -> bool:
    """Return whether this is on ext4 without a journal, for certain."""
    device = os.stat(path).st_dev
    name = os.path.basename(os.path.realpath("%s/%d:%d" % (_DEVICES, os.major(device), os.minor(device))))
    try:
        with open("%s/%s/options" % (_EXT4, name), encoding="ascii", errors="replace") as options:
            return "\ndata=" not in "\n" + options.read(100_000)
    except OSError:  # another file system
        return False
