"""How keepers on a machine reach the manager: by a tunnel through the machine's connection, or directly."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

from nnilite.records import Json
from nnilite.ssh.errors import LinkLost, MachineError
from nnilite_remote._machine_session import MachineSession
from nnilite_remote._report_relay import ReportRelay
from nnilite_remote._tunnel import TunnelGate

_REACH_S = 5


class CallbackRoute:
    """The address of the manager as seen from one machine. It is determined with each connection.

    It is written to a file on the machine, so that keepers of earlier connections find the manager again.
    """

    def __init__(
        self, session: MachineSession, manager: Callable[[], str], manager_socket: Path, direct: str | None
    ) -> None:
        self._gate = TunnelGate(session.title, manager)
        self.address = ""
        self._session = session
        self._manager = manager  # its base URL as seen from here
        self._direct = direct  # the manager's IP address, where machines may call it
        self._port = 0
        self._relay = ReportRelay(manager_socket, lambda caller, line: session.tell("answer", caller=caller, line=line))

    def pass_on(self, report: Json) -> None:
        """Pass on a report that came through the agent, which is the short way; see `ReportRelay`."""
        self._relay.pass_on(report)

    def close(self) -> None:
        self._relay.close()
        self._gate.close()

    async def open(self) -> None:
        """Find the address, and open the tunnel if it is needed. Raises: MachineError if the manager is unreachable."""
        if self._direct:
            url = urlsplit(self._manager())
            host = f"[{self._direct}]" if ":" in self._direct else self._direct
            self.address = url._replace(netloc=f"{host}:{url.port}").geturl()
            await self._check_reach(self._direct, url.port or 80)
        else:
            # On the same port as before, if that is free: then keepers need not even look for the new address.
            ports = list(dict.fromkeys((self._port, 0)))
            self._port = await self._session.open_callback_route(ports, self._gate.admit)
            self.address = f"http://127.0.0.1:{self._port}"
        await self._session.ask("callback", url=self.address, relayed=not self._direct)

    async def _check_reach(self, host: str, port: int) -> None:
        try:
            await self._session.ask("reach", host=host, port=port, limit_s=_REACH_S)
        except LinkLost:
            raise
        except MachineError as error:
            raise MachineError(
                f"cannot reach the manager at {host} port {port} ({error}): check that the manager listens there "
                f"(nnictl create --host 0.0.0.0) and no firewall blocks it, or leave nniManagerIp out"
            ) from error
