"""Where jobs reach the manager.

Unlike on clusters that are near, the address of this machine on the way to Azure is hardly ever one that leads back: it
has to be given.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from nnilite.errors import ConfigError, Place
from nnilite.service import ServiceContext
from nnilite.services.callback_address import is_loopback, with_host


def address_for_jobs(context: ServiceContext, given: str | None) -> str:
    """The manager's URL for jobs; `given` is the section's nniManagerIp. Raises: ConfigError if there is none."""
    url, host = context.callback_url(), given or context.defaults.get("nniManagerIp")
    if host:
        return with_host(url, str(host))
    parts = urlsplit(url)
    if not is_loopback(parts.hostname or ""):
        return url
    raise ConfigError(
        f"Azure's nodes cannot reach this manager at {parts.netloc}: set `callback: log`, by which trials report "
        "through the logs of their jobs, or name by nniManagerIp an address that they can reach",
        Place(field="callback"),
    )
