"""The address of a manager or of the hub, as it is seen from this machine."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass
class Address:
    """The address of the manager, which is known once it listens."""

    scheme: str = "http"
    host: str = "127.0.0.1"
    port: int = 0
    prefix: str = ""
    certificate: Path | None = None

    @property
    def url(self) -> str:
        """The base URL as seen from this machine."""
        host = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(self.host, self.host)
        host = f"[{host}]" if ":" in host and not host.startswith("[") else host
        return f"{self.scheme}://{host}:{self.port}{self.prefix}"
