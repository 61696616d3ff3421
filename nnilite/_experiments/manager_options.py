"""How a manager is to be reached, as words of its command line."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class ManagerOptions:
    """How a manager can be reached. `url_prefix`: the path under which a proxy serves it.

    Port 0 means any free one; None 8080 or, where that is taken, the next free one.
    """

    port: int | None = None
    host: str = "127.0.0.1"
    url_prefix: str = ""
    tls_cert: Path | None = None
    tls_key: Path | None = None
    debug: bool = False

    def words(self) -> list[str]:
        """Return the words with which the manager's process gets these."""
        words = ["--host", self.host]
        words += ["--port", str(self.port)] if self.port is not None else []
        words += ["--url-prefix", self.url_prefix] if self.url_prefix else []
        words += ["--tls-cert", str(self.tls_cert)] if self.tls_cert else []
        words += ["--tls-key", str(self.tls_key)] if self.tls_key else []
        return [*words, "--debug"] if self.debug else words
