"""Reads a tar stream that a stranger may have written.

`tarfile` believes what a header claims: it reads an extended header of ten gigabytes into memory, and some versions
loop without end at a negative size. Here every number is checked, and nothing but a piece of a file is ever held. The
formats are those that programs write today: ustar, POSIX (pax), and GNU's for long names and large sizes.

It runs on workers, too: Python 3.8 and the standard library alone.
"""

from __future__ import annotations

from .enclosed import FILE, FOLDER, LINK, SPECIAL, EnclosedFolder, UnsafeName

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Dict, Iterator, List, Optional, Tuple

_BLOCK_BYTES = 512
_CHUNK_BYTES = 1 << 20
_MOST_HEADER_BYTES = 64 << 10
_MOST_HEADERS = 8  # entries in a row that only extend the header of the next one
_MOST_SIZE_BYTES = 1 << 60
_MOST_TIME_S = 1e11
_MOST_ENTRIES = 200_000
_KINDS = {b"0": FILE, b"\0": FILE, b"7": FILE, b"5": FOLDER, b"2": LINK}
# Hard links, devices, pipes, and GNU's files with holes: all without content that is wanted.
_WITHOUT_DATA = (b"1", b"3", b"4", b"6")


class DamagedTar(Exception):
    """Raised if the stream is not a tar archive, or breaks off. The text is a clause."""


class TarMember:
    """One entry. `read` gives the next piece of a file's content, b"" at the end."""

    def __init__(self, name: str, kind: str, head: Tuple[int, int, str], mtime_ns: Optional[int]) -> None:
        self.name = name
        self.kind = kind
        self.size, self.mode, self.target = head
        self.mtime_ns = mtime_ns
        self.read: Callable[[], bytes] = lambda: b""


class TarStream:
    """The members of a tar stream, in turn. `source(n)` returns up to n bytes, and b"" at the end alone."""

    def __init__(self, source: Callable[[int], bytes]) -> None:
        self._source = source
        self._left = 0
        self._padding = 0

    def __iter__(self) -> Iterator[TarMember]:
        """Yield the members. The content of one can be read until the next is asked for. Raises: DamagedTar."""
        more: Dict[str, str] = {}
        headers = 0
        while True:
            self._skip()
            block = self._block()
            if block is None:
                return
            kind, size = block[156:157], _number(block[124:136])
            if kind in b"xgLK" and kind:
                # Entries like these are not counted, so an endless row of them would fill the memory.
                headers += 1
                if headers > _MOST_HEADERS:
                    raise DamagedTar("one of its files has more than {} headers".format(_MOST_HEADERS))
                self._extend(kind, size, more)
                continue
            member = _member(block, kind, more)
            more, headers = {}, 0
            # Whatever is not known has its bytes behind it, like a file.
            self._begin(0 if kind in _WITHOUT_DATA or member.kind in (FOLDER, LINK) else member.size)
            member.read = self._piece
            yield member

    def _extend(self, kind: bytes, size: int, more: Dict[str, str]) -> None:
        """Read an entry that only extends the header of the next one."""
        if size > _MOST_HEADER_BYTES:
            raise DamagedTar("the header of one of its files has {} bytes".format(size))
        self._begin(size)
        data = b""
        while True:
            piece = self._piece()
            if not piece:
                break
            data += piece
        if kind == b"x":
            more.update(_records(data))
        elif kind in (b"L", b"K"):
            more["path" if kind == b"L" else "linkpath"] = _text(data)

    def _block(self) -> Optional[bytes]:
        """Return the next header, None at the end. Raises: DamagedTar."""
        block = self._exactly(_BLOCK_BYTES)
        if block == bytes(_BLOCK_BYTES):
            return None
        checksum = _number(block[148:156])
        if checksum != sum(block[:148]) + 8 * ord(" ") + sum(block[156:]):
            raise DamagedTar("it is not a tar archive")
        return block

    def _begin(self, size: int) -> None:
        self._left = size
        self._padding = -size % _BLOCK_BYTES

    def _piece(self) -> bytes:
        if not self._left:
            return b""
        data = self._source(min(self._left, _CHUNK_BYTES))
        if not data:
            raise DamagedTar("it breaks off")
        self._left -= len(data)
        return data

    def _skip(self) -> None:
        while self._piece():
            pass
        self._exactly(self._padding)
        self._padding = 0

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            piece = self._source(size - len(data))
            if not piece:
                raise DamagedTar("it breaks off")
            data += piece
        return data


def unpack_checkpoint(archive: str, target: str) -> None:
    """Unpack files, folders and links that stay inside; all else is left out, and so are names that lead out.

    Links are made after all files. Raises: DamagedTar, OSError.
    """
    links: List[Tuple[str, str]] = []
    with open(archive, "rb") as file, EnclosedFolder(target, make=True) as folder:
        for number, member in enumerate(TarStream(file.read)):
            if number >= _MOST_ENTRIES:
                raise DamagedTar("it has more than {} files".format(_MOST_ENTRIES))
            try:
                if member.kind == FOLDER:
                    folder.make_folder(member.name)
                elif member.kind == FILE:
                    folder.write(member.name, member.read, member.mode, member.mtime_ns)
                elif member.kind == LINK:
                    links.append((member.name, member.target))
            except UnsafeName:
                continue
        for name, leads_to in links:
            folder.link(name, leads_to)


def _member(block: bytes, kind: bytes, more: Dict[str, str]) -> TarMember:
    name = _text(block[:100])
    # GNU's own format has other things in the place of the prefix.
    prefix = _text(block[345:500]) if block[257:263] == b"ustar\0" else ""
    name = more.get("path", prefix + "/" + name if prefix else name)
    member_kind = _KINDS.get(kind, SPECIAL)
    if any(key.startswith("GNU.sparse.") for key in more):
        member_kind = SPECIAL
    if kind == b"\0" and name.endswith("/"):
        member_kind = FOLDER
    size = _parse_decimal(more["size"]) if "size" in more else _number(block[124:136])
    head = (size, _number(block[100:108]) & 0o7777, more.get("linkpath", _text(block[157:257])))
    return TarMember(name, member_kind, head, _time(block[136:148], more.get("mtime")))


def _number(field: bytes) -> int:
    """Return a number of a header: in octal digits, or binary where the first bit is set. Raises: DamagedTar."""
    if field[:1] == b"\x80":
        value = int.from_bytes(field[1:], "big")
    else:
        digits = field.partition(b"\0")[0].strip(b" ")
        if digits.strip(b"01234567"):
            raise DamagedTar("one of its headers has {!a:.40} instead of a number".format(digits))
        value = int(digits or b"0", 8)
    if value > _MOST_SIZE_BYTES:
        raise DamagedTar("one of its headers has an impossible number")
    return value


def _parse_decimal(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise DamagedTar("one of its headers has {!a:.40} instead of a size".format(text))
    return int(text)


def _time(field: bytes, exact: Optional[str]) -> Optional[int]:
    """Return the time of a file in ns; None where there is none that can be."""
    try:
        time_s = float(_number(field)) if exact is None else float(exact)
    except (DamagedTar, ValueError):
        return None
    return int(time_s * 1e9) if 0 <= time_s < _MOST_TIME_S else None


def _text(field: bytes) -> str:
    return field.partition(b"\0")[0].decode("utf-8", "surrogateescape")


def _records(data: bytes) -> Dict[str, str]:
    """Return the records of a POSIX header, `LENGTH KEY=VALUE` and a line end each. Raises: DamagedTar."""
    found: Dict[str, str] = {}
    data, at = data.rstrip(b"\0"), 0
    while at < len(data):
        space = data.find(b" ", at, at + 8)
        digits = data[at : max(space, at)]
        length = int(digits) if digits.isdigit() else 0
        end = at + length
        key, equals, value = data[space + 1 : max(end - 1, space + 1)].partition(b"=")
        # A record without a length would end where it begins, and be read for ever.
        if not length or end <= space or not equals or end > len(data) or data[end - 1 : end] != b"\n":
            raise DamagedTar("one of its headers cannot be read")
        found[key.decode("utf-8", "replace")] = value.decode("utf-8", "surrogateescape")
        at = end
    return found
