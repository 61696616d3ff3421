"""The connections between the nodes of a trial: the first node listens, each other node connects to it.

Messages are JSON objects, one on each line. Before any of them both ends prove that they know the trial's secret, so
that a stranger on the network can neither start nor end anything:

    first     {"nonce": THEIRS}
    other     {"nonce": MINE, "node": NUMBER, "run": RUN, "proof": code(secret, "node", THEIRS, MINE, NUMBER, RUN)}
    first     {"proof": code(secret, "first", MINE, THEIRS)}

Each later line is the code of the message, a space and the message. The key of these codes is made of the secret and of
both nonces, and each code is also of the sender and of the number of the message. So a program in between, which passes
the proofs on, can only break the connection: it cannot add, change or repeat a message.

The port is one of a few that follow from the name of the job, so all nodes know it: the first
node takes one that is free, and the others try all. A program of others that listens on one of them fails the proof.
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
import threading
import time

from .proof import code

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

AGENT = -2
"""In the place of a node's number: a launcher's program on the first node, which runs commands on others."""

_PORTS, _FIRST_PORT, _LAST_PORT = 16, 20000, 32000
_MAX_LINE_BYTES = 4_000_000
_MAX_WAITING_BYTES = 64_000_000
_UNPROVEN_BYTES = 4096
_MAX_PENDING = 256
_TRY_S = 5.0
_AGAIN_S = 0.5


class LinkBroken(OSError):
    """The connection has ended, or what came through it is not a message."""


def ports_of(job: str) -> List[int]:
    """Return the ports on which the first node of a job may listen."""
    ports: List[int] = []
    number = 0
    while len(ports) < _PORTS:
        drawn = hashlib.sha256("{} {}".format(job, number).encode("utf-8")).digest()
        port = _FIRST_PORT + int.from_bytes(drawn[:4], "big") % (_LAST_PORT - _FIRST_PORT)
        number += 1
        if port not in ports:
            ports.append(port)
    return ports


def listen(ports: Sequence[int]) -> socket.socket:
    """Listen on the first of these ports that is free. Raises: OSError if none is."""
    for port in ports:
        for family in (socket.AF_INET6, socket.AF_INET):
            try:
                return _listener(family, port)
            except OSError:
                continue
    raise OSError("none of the ports {} is free; another attempt has other ports".format(", ".join(map(str, ports))))


def _listener(family: int, port: int) -> socket.socket:
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listener.bind(("", port))
        listener.listen(64)
        listener.setblocking(False)
    except OSError:
        listener.close()
        raise
    return listener


def free_ports(count: int) -> List[int]:
    """Return ports that are free now. Raises: OSError."""
    opened: List[socket.socket] = []
    try:
        for _ in range(count):
            opened.append(socket.socket())
            opened[-1].bind(("", 0))
        return [int(one.getsockname()[1]) for one in opened]
    finally:
        for one in opened:
            one.close()


def plain_address(name: str) -> str:
    """Return an address without the prefix of IPv4 in IPv6 and without a zone."""
    return name.partition("%")[0].replace("::ffff:", "", 1) if name.startswith("::ffff:") else name.partition("%")[0]


class NodeConnection:
    """One connection, which never blocks once it is proven."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self.heard = time.monotonic()
        self.run = ""  # the other node's run, once it is known
        self._in, self._out = b"", b""
        self._key, self._ends = "", ("", "")  # none until the proof
        self._counts = [0, 0]  # messages sent and read since then

    def seal(self, secret: str, theirs: str, mine: str, here: str, there: str) -> None:
        """Send and take only messages with a code from now on. The nonces are those of the first and the other node."""
        self._key = code(secret, "messages", theirs, mine)
        self._ends = (here, there)

    def _code(self, end: int, text: str) -> str:
        self._counts[end] += 1
        return code(self._key, self._ends[end], self._counts[end], text)

    @property
    def waiting_bytes(self) -> int:
        return len(self._out)

    @property
    def here(self) -> str:
        """The address of this end, as the other one sees it."""
        return plain_address(str(self.socket.getsockname()[0]))

    @property
    def there(self) -> str:
        return plain_address(str(self.socket.getpeername()[0]))

    def send(self, message: Dict[str, Any]) -> None:
        """Send a message, or keep it until the connection takes it. Raises: LinkBroken."""
        text = json.dumps(message)
        sealed = "{} {}\n".format(self._code(0, text), text) if self._key else text + "\n"
        self._out += sealed.encode("ascii")
        if len(self._out) > _MAX_WAITING_BYTES:
            raise LinkBroken("the other node takes nothing")
        self.flush()

    def flush(self) -> None:
        """Send what waits, as far as possible. Raises: LinkBroken."""
        while self._out:
            try:
                self._out = self._out[self.socket.send(self._out) :]
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                raise LinkBroken(str(error)) from error

    def read(self, most: int = _MAX_LINE_BYTES) -> List[Dict[str, Any]]:
        """Return the messages that have come. Raises: LinkBroken."""
        while True:
            try:
                piece = self.socket.recv(min(1 << 18, most + 1))
            except (BlockingIOError, InterruptedError):
                break
            except OSError as error:
                raise LinkBroken(str(error)) from error
            if not piece and b"\n" in self._in:
                break  # the last messages come first: one of them may say why it has closed
            if not piece:
                raise LinkBroken("the other node has closed the connection")
            self._in += piece
            if len(self._in) > most:
                break
        *lines, self._in = self._in.split(b"\n")
        if len(self._in) > most:
            raise LinkBroken("a message is too long")
        if lines:
            self.heard = time.monotonic()
        return [_read_object(self._opened(line)) for line in lines]

    def _opened(self, line: bytes) -> bytes:
        """Return the message of a line. Raises: LinkBroken if its code is wrong."""
        if not self._key:
            return line
        given, _, text = line.partition(b" ")
        if not _equal(self._code(1, text.decode("ascii", "replace")), given.decode("ascii", "replace")):
            raise LinkBroken("a message does not come from a node of this trial")
        return text

    def close(self) -> None:
        self.socket.close()


def _read_object(line: bytes) -> Dict[str, Any]:
    try:
        found = json.loads(line.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise LinkBroken("a message is not JSON") from error
    if not isinstance(found, dict):
        raise LinkBroken("a message is not an object")
    return found


class PendingConnection:
    """A connection to the first node that has still to prove itself."""

    def __init__(self, connection: socket.socket, secret: str) -> None:
        connection.setblocking(False)
        self.line = NodeConnection(connection)
        self.deadline = time.monotonic() + 2 * _TRY_S
        self._secret, self._nonce = secret, os.urandom(16).hex()
        try:
            self.line.send({"nonce": self._nonce})
        except LinkBroken:
            self.line.close()
            raise

    def proven(self) -> Optional[Tuple[int, str]]:
        """Return number and run of the node once it has proven itself, else None. Raises: LinkBroken."""
        for answer in self.line.read(_UNPROVEN_BYTES):
            mine, node, run = str(answer.get("nonce")), answer.get("node"), str(answer.get("run"))
            # A stranger's text may be anything, so its form is checked before a code is made of it.
            if not (mine.isalnum() and run.isalnum() and type(node) is int):
                raise LinkBroken("a stranger")
            if not _equal(code(self._secret, "node", self._nonce, mine, node, run), answer.get("proof")):
                raise LinkBroken("a stranger")
            self.line.send({"proof": code(self._secret, "first", mine, self._nonce)})
            self.line.seal(self._secret, self._nonce, mine, "first", "node")
            return node, run
        return None


def accept(listener: socket.socket, connections: List[PendingConnection], secret: str) -> None:
    """Add new connections to those that have still to prove themselves, and close some older ones if they are many.

    Which ones is a matter of chance: a stranger who connects often enough would else close those of all nodes in turn.
    """
    for _ in range(_MAX_PENDING):
        try:
            connections.append(PendingConnection(listener.accept()[0], secret))
        except OSError:
            break
    while len(connections) > _MAX_PENDING:
        connections.pop(os.urandom(1)[0] % (_MAX_PENDING // 2)).line.close()


def _equal(wanted: str, given: object) -> bool:
    import hmac

    return hmac.compare_digest(wanted.encode("ascii"), str(given).encode("utf-8", "replace"))


class Caller:
    """Connects a node to the first one, in a thread, as often as `call` is called."""

    def __init__(
        self, addresses: Sequence[Tuple[str, int]], secret: str, node: int, run: str, wake: Callable[[], None]
    ) -> None:
        self._addresses = addresses
        self._secret, self._node, self._run = secret, node, run
        self._wake = wake
        self._lock = threading.Lock()
        self._made: List[NodeConnection] = []
        self._thread: Optional[threading.Thread] = None
        self.trouble = ""

    def call(self) -> None:
        """Try until there is a connection, in the background. A second call changes nothing before `take`."""
        with self._lock:
            # A second connection would replace the first one, and what is on its way there would be lost.
            if self._made or (self._thread is not None and self._thread.is_alive()):
                return
            self._thread = threading.Thread(target=self._try, daemon=True)
            try:
                self._thread.start()
            except RuntimeError as error:  # the machine has no room for it now; the next call tries again
                self._thread, self.trouble = None, str(error)

    def accept(self) -> Optional[NodeConnection]:
        """Return a new connection, None if there is none yet."""
        with self._lock:
            return self._made.pop() if self._made else None

    def _try(self) -> None:
        while True:
            line = self.connect()
            if line is not None:
                with self._lock:
                    self._made.append(line)
                self._wake()
                return
            time.sleep(_AGAIN_S)

    def connect(self) -> Optional[NodeConnection]:
        """Try all addresses once. Return the connection; None if the first node is at none of them."""
        for address in self._addresses:
            try:
                return self._ensure_connected(address)
            except OSError as error:
                self.trouble = "{} port {}: {}".format(address[0], address[1], error)
        return None

    def _ensure_connected(self, address: Tuple[str, int]) -> NodeConnection:
        """Connect and prove both ends to each other. Raises: OSError."""
        connection = socket.create_connection(address, _TRY_S)
        try:
            deadline = time.monotonic() + _TRY_S
            theirs = str(_read_object(_read_line(connection, deadline)).get("nonce"))
            if not theirs.isalnum():
                raise LinkBroken("it is not a node of a trial")
            mine = os.urandom(16).hex()
            proof = code(self._secret, "node", theirs, mine, self._node, self._run)
            hello = {"nonce": mine, "node": self._node, "run": self._run, "proof": proof}
            connection.sendall(json.dumps(hello).encode("ascii") + b"\n")
            answer = _read_object(_read_line(connection, deadline))
            if not _equal(code(self._secret, "first", mine, theirs), answer.get("proof")):
                raise LinkBroken("it is not the first node of this trial")
            connection.setblocking(False)
        except OSError:
            connection.close()
            raise
        line = NodeConnection(connection)
        line.seal(self._secret, theirs, mine, "node", "first")
        return line


def _read_line(connection: socket.socket, deadline: float) -> bytes:
    """Read a line and not a byte more. Raises: OSError, also if it is not whole at the deadline, however it comes."""
    line = b""
    while not line.endswith(b"\n"):
        left_s = deadline - time.monotonic()
        if left_s <= 0 or len(line) >= _UNPROVEN_BYTES:
            raise LinkBroken("it does not answer as a node of a trial does")
        connection.settimeout(left_s)
        piece = connection.recv(1)
        if not piece:
            raise LinkBroken("it has closed the connection")
        line += piece
    return line
