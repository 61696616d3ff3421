"""Settings of the REST server, with the reasons for their defaults."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

WEB_FOLDER = Path(__file__).resolve().parent.parent / "_web"


@dataclass(frozen=True)
class ServerOptions:
    """The settings of the server.

    `bind` is the address on which it will listen; Host headers are checked against it.
    """

    bind: str = "127.0.0.1"
    hosts: Sequence[str] = ()  # further names under which people and workers reach this server
    own_user: bool = False  # whether this user's own programs need no token; only if bound to loopback
    page_name: str = ""  # the host name under which browsers open the page of this start; "": any that `bind` has
    url_prefix: str = ""  # "nni/abc" serves everything below /nni/abc/, for a reverse proxy
    web_folder: Path = WEB_FOLDER
    page: str = "index.html"  # the page in that folder that is the user interface
    sign_in_command: str = "nnictl webui url"  # prints a link for users who have to sign in
    head_timeout_s: float = 15.0  # a new connection without a request by then is closed
    idle_timeout_s: float = 75.0  # connections without a further request are closed; keepers send one every 10 s
    body_timeout_s: float = 60.0  # any real worker sends 8 MB in a minute; slower clients are cut off
    reader_timeout_s: float = 60.0  # a reader that takes no data for this time loses its connection
    stream_interval_s: float = 0.1  # the user interface gets changes in bunches,
    stream_silence_s: float = 10.0  # and after this time without any an empty one
    streams_max: int = 100  # how many live streams may be open
    ping_s: float = 20.0  # by pings, the end of a live stream's client is noticed within this time

    @property
    def prefix(self) -> str:
        """The prefix of all paths: "" or, for example, "/nni/abc"."""
        inner = self.url_prefix.strip("/")
        return f"/{inner}" if inner else ""
