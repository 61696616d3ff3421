"""Settings of the REST server, with the reasons for their defaults."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

WEB_FOLDER = Path(__file__).resolve().parent.parent / "_web"


@dataclass(frozen=True)
class Options:
    """How the server behaves. `bind` is the address it will listen on; it decides which Host headers are its own."""

    bind: str = "127.0.0.1"
    hosts: Sequence[str] = ()  # further names by which people and workers call this server
    url_prefix: str = ""  # "nni/abc" serves everything below /nni/abc/, for a reverse proxy
    web_folder: Path = WEB_FOLDER
    idle_timeout_s: float = 75.0  # an idle or slowly asking connection is closed; keepers ask every 10 s
    body_timeout_s: float = 60.0  # 8 MB in a minute: slower than any real worker, and slow clients are let go
    reader_timeout_s: float = 60.0  # a reader that takes nothing for so long loses its connection
    stream_interval_s: float = 0.1  # changes are told to the user interface in bunches
    streams_max: int = 100  # open live streams
    ping_s: float = 20.0  # a live stream whose other end is gone is noticed within this

    @property
    def prefix(self) -> str:
        """ "" or "/nni/abc"."""
        inner = self.url_prefix.strip("/")
        return f"/{inner}" if inner else ""
