"""An sshd that answers as that of Windows does: its own version, or a shell that knows nothing of ours."""

from __future__ import annotations

import contextlib
import socket
import threading

import paramiko

CMD = b"'exec' is not recognized as an internal or external command,\r\noperable program or batch file.\r\n"
POWERSHELL = (
    b"exec : The term 'exec' is not recognized as the name of a cmdlet, function, script file, or operable program.\r\n"
)


class WindowsServer(paramiko.ServerInterface):
    """Lets everybody in. Every command gets the same complaint."""

    def __init__(self, complaint: bytes) -> None:
        self._complaint = complaint
        self.sign_ins = 0

    def get_allowed_auths(self, username: str) -> str:
        return "password"

    def check_auth_password(self, username: str, password: str) -> int:
        self.sign_ins += 1
        return paramiko.AUTH_SUCCESSFUL

    def check_channel_request(self, kind: str, chanid: int) -> int:
        return paramiko.OPEN_SUCCEEDED

    def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:
        threading.Timer(0.1, self._complain, [channel]).start()  # after the answer to this request
        return True

    def _complain(self, channel: paramiko.Channel) -> None:
        with contextlib.suppress(OSError):  # the caller has gone
            channel.sendall_stderr(self._complaint)
            channel.send_exit_status(1)
        channel.close()


class WindowsHost:
    """Listens on loopback until `close`. `version`: how its sshd names itself."""

    def __init__(self, version: str, complaint: bytes = CMD) -> None:
        self.server = WindowsServer(complaint)
        self._version = f"SSH-2.0-{version}"
        self._key = paramiko.ECDSAKey.generate()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._transports: list[paramiko.Transport] = []
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                caller, _ = self._listener.accept()
            except OSError:  # closed
                return
            transport = paramiko.Transport(caller)
            transport.local_version = self._version
            transport.add_server_key(self._key)
            self._transports.append(transport)
            try:
                transport.start_server(server=self.server)
            except (paramiko.SSHException, EOFError, OSError):  # the caller has seen enough
                continue

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for transport in self._transports:
            transport.close()
