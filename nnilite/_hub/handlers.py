"""The handlers of the hub's routes. What blocks runs in threads.

What asks a manager may wait long for its answer, and is left alone when the hub ends. What changes files is waited for.
"""

from __future__ import annotations

import asyncio
import socket
from dataclasses import dataclass
from functools import partial
from urllib.parse import urlsplit, urlunsplit

from tornado.httputil import split_host_and_port

from nnilite import _version
from nnilite._experiments import experiment_remarks
from nnilite._hub import comparison, starts
from nnilite._hub.hub import Hub
from nnilite._hub.starts import Draft
from nnilite._loop_waits import in_thread
from nnilite._network.host_names import is_loopback
from nnilite._rest import ServerContext, wire
from nnilite._rest.handler import RouteHandler
from nnilite._rest.route_definition import Route
from nnilite.errors import ConfigError, Conflict, Place
from nnilite.records import Json

ID = "ui"
"""What `/version` says in the place of an experiment's id."""


@dataclass(frozen=True, kw_only=True)
class HubContext(ServerContext):
    """The objects that all handlers of a hub share."""

    hub: Hub


class HubHandler(RouteHandler):
    """A handler that can use `self.hub`."""

    def initialize(self, context: HubContext, route: Route) -> None:  # type: ignore[override]
        super().initialize(context, route)
        self.hub = context.hub

    def fields(self, *names: str) -> list[Json]:
        """Return the values of exactly these fields of the body. Raises: ConfigError."""
        return wire.read_fields(self.json(), names)


class HubVersionHandler(HubHandler):
    """The version of nnilite."""

    def get(self) -> None:
        self.send_json({"version": _version.__version__, "experiment": ID})


class HubExperimentsHandler(HubHandler):
    """The list, and the start of a new experiment."""

    async def get(self) -> None:
        listed = await asyncio.get_running_loop().run_in_executor(self.hub.listers, self.hub.listed)
        self.send_json({"experiments": listed})

    async def post(self) -> None:
        found = await asyncio.to_thread(starts.start, draft(self.fields("text", "folder")), self.hub.options)
        self.send_json({"id": found}, 201)


class HubExperimentHandler(HubHandler):
    """One experiment: what people have written about it, and its end."""

    async def put(self, id: str) -> None:
        name, tags, note, revision = self.fields("name", "tags", "note", "revision")
        # `isinstance` would accept true and false, which are numbers in Python.
        if type(revision) is not int:
            raise ConfigError("must be a whole number", Place(field="revision"))
        remarks = experiment_remarks.checked(name, tags, note)
        kept = await asyncio.to_thread(self.hub.remark, id, remarks, revision)
        self.send_json({"revision": kept.revision})

    async def delete(self, id: str) -> None:
        await asyncio.to_thread(self.hub.delete, id)
        self.send_json({"deleted": id})


class HubConfigHandler(HubHandler):
    """The configuration of an experiment, to start another one from it."""

    async def get(self, id: str) -> None:
        found = await asyncio.to_thread(self.hub.read_config, id)
        self.send_json({"text": found.text, "folder": found.folder})


class HubExamplesHandler(HubHandler):
    """Starts an example."""

    async def post(self) -> None:
        self.fields()
        found = await asyncio.to_thread(starts.start_example, self.hub.options)
        self.send_json({"id": found}, 201)


class HubOpenHandler(HubHandler):
    """The address of an experiment's page."""

    async def post(self, id: str) -> None:
        self.fields()
        link = await in_thread(partial(self.hub.open, id))
        self.send_json({"url": reachable(link, self.request.host, self.context.options.prefix)})


class HubResumeHandler(HubHandler):
    """Resumes an experiment."""

    async def post(self, id: str) -> None:
        self.fields()
        await in_thread(partial(self.hub.resume, id))
        self.send_json({"resumed": id})


class HubStopHandler(HubHandler):
    """Asks an experiment to stop."""

    async def post(self, id: str) -> None:
        self.fields()
        await in_thread(partial(self.hub.stop, id))
        self.send_json({"stopping": id}, 202)


class HubComparisonHandler(HubHandler):
    """The best results of several experiments over their trials."""

    async def get(self) -> None:
        ids = self.query["id"]
        if not 1 <= len(ids) <= comparison.MOST:
            raise ConfigError(
                f"must be given 1 to {comparison.MOST} times, once for each experiment", Place(field="id")
            )
        self.send_json({"experiments": await in_thread(partial(self._compared, ids))})

    def _compared(self, ids: list[str]) -> list[Json]:
        return [comparison.compared(entry, self.query["objective"]) for entry in self.hub.chosen(ids)]


class HubCheckHandler(HubHandler):
    """What is wrong with a configuration."""

    async def post(self) -> None:
        self.send_json(await asyncio.to_thread(starts.faults, draft(self.fields("text", "folder"))))


def draft(fields: list[Json]) -> Draft:
    """Return the configuration in a body. Raises: ConfigError."""
    text, folder = fields
    for name, value in (("text", text), ("folder", folder)):
        if not isinstance(value, str):
            raise ConfigError("must be text", Place(field=name))
    return Draft(text, folder)


def reachable(link: str, host: str, prefix: str = "") -> str:
    """Return the address of a manager for a browser that reached this server by a Host header.

    Managers name themselves as seen from this machine. Where both have a prefix, they are behind one proxy, and
    only the browser knows its scheme and port.
    Raises: Conflict if only this server is behind one, which then does not serve the manager's port.
    """
    name = split_host_and_port(host)[0]
    parts = urlsplit(link)
    if is_loopback(name.strip("[]")) or not is_loopback(parts.hostname or ""):
        return link
    if prefix and not parts.path.strip("/"):
        port, machine = parts.port, socket.gethostname()
        raise Conflict(
            f"The page of this experiment is at port {port} of {machine}, which the proxy does not serve. Forward it "
            f"(`ssh -L {port}:127.0.0.1:{port} {machine}`) and open the address of `nnictl webui url`, or start the "
            "experiment with --port and --url-prefix and give that path to the proxy."
        )
    if prefix:
        return urlunsplit(parts._replace(scheme="", netloc=""))
    return urlunsplit(parts._replace(netloc=f"{name}:{parts.port}"))
