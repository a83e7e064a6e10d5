"""The agent of this node: its socket, and HTTP requests to it.

Each request has its own connection, so that nothing has to be repaired after fork().
"""

import http.client
import json
import os
import socket
import stat
import struct
import urllib.parse
from typing import Any, Mapping

SYSTEM_SOCKET = "/run/pegel/push.sock"
# The agent's own limit is 32 MiB.
_RESPONSE_BYTES_MAX = 64 << 20
_CANDIDATES = 4


class AgentError(Exception):
    """A request that an agent refused or did not answer."""

    def __init__(self, message: str, status: "int | None" = None) -> None:
        super().__init__(message)
        self.status = status


class NoAgentError(AgentError, ConnectionError):
    """No agent is listening."""


class Agent:
    """An agent: by default that of this node, else one at a socket path or a URL.

    A token is required only where the kernel does not identify the client: on other machines.
    """

    def __init__(
        self, address: "str | None" = None, *, token: "str | None" = None, timeout: float = 20.0
    ) -> None:
        self.address = address
        self.timeout = timeout
        self._token = token

    def get(self, path: str, query: "Mapping[str, Any] | None" = None) -> Any:
        """Returns the JSON of a GET request. A list in the query repeats its key."""
        return self.request("GET", path, query=query)

    def request(
        self,
        method: str,
        path: str,
        *,
        query: "Mapping[str, Any] | None" = None,
        body: Any = None,
        timeout: "float | None" = None,
    ) -> Any:
        """Sends a request and returns the parsed response, None if it is empty."""
        if query:
            path += "?" + urllib.parse.urlencode(query, doseq=True)
        headers = {"Accept": "application/json", "Host": "localhost"}
        data = None
        if body is not None:
            data = json.dumps(body).encode()
            headers["Content-Type"] = "application/json"
        connection, host = self._connect(self.timeout if timeout is None else timeout)
        headers["Host"] = host
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        try:
            connection.request(method, path, body=data, headers=headers)
            response = connection.getresponse()
            text = response.read(_RESPONSE_BYTES_MAX)
        except (OSError, http.client.HTTPException) as error:
            raise AgentError(f"the agent did not respond: {error}") from error
        finally:
            connection.close()
        if response.status >= 400:
            raise AgentError(_message_of(response.status, text), response.status)
        try:
            return json.loads(text) if text else None
        except ValueError as error:
            raise AgentError(f"the response is not JSON: {error}") from error

    def is_ready(self) -> bool:
        """Returns whether the agent answers."""
        try:
            self.request("GET", "/api/ready", timeout=min(self.timeout, 2.0))
        except AgentError:
            return False
        return True

    def page_url(self) -> str:
        """Returns the address of the agent's page."""
        if self.address is not None and "://" in self.address:
            return self.address.rstrip("/") + "/"
        url = self.get("/status")["addresses"]["url"]
        if not url:
            raise AgentError("the agent has no address for browsers; set `listen`")
        return str(url).rstrip("/") + "/"

    def _connect(self, timeout: float) -> "tuple[http.client.HTTPConnection, str]":
        if self.address is not None and "://" in self.address:
            return _connect_url(self.address, timeout)
        for path in self.sockets():
            connection = _UnixConnection(path, timeout)
            try:
                connection.connect()
            except (FileNotFoundError, ConnectionRefusedError, NotADirectoryError):
                connection.close()
            except OSError as error:
                connection.close()
                raise AgentError(f"cannot connect to {path}: {error}") from error
            else:
                return connection, "localhost"
        tried = " or ".join(self.sockets())
        raise NoAgentError(
            f"no agent is listening on {tried}; start one with `pegel agent`, or set PEGEL_SOCKET"
        )

    def sockets(self) -> "list[str]":
        """Returns the sockets to try: the given one, else PEGEL_SOCKET, else the default ones."""
        named = self.address or os.environ.get("PEGEL_SOCKET")
        return [named] if named else _default_sockets()


def _default_sockets() -> "list[str]":
    uid = os.geteuid()
    directories = [f"/tmp/pegel-{uid}" + (f".{n}" if n else "") for n in range(_CANDIDATES)]
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    if os.path.isabs(runtime) and os.path.isdir(runtime):
        directories.insert(0, os.path.join(runtime, "pegel"))
    own = [os.path.join(path, "push.sock") for path in directories if _may_be_ours(path, uid)]
    return [*own, SYSTEM_SOCKET]


def _is_private(path: str, uid: int) -> bool:
    found = os.lstat(path)
    return stat.S_ISDIR(found.st_mode) and found.st_uid == uid and not found.st_mode & 0o022


def _may_be_ours(path: str, uid: int) -> bool:
    try:
        return _is_private(path, uid)
    except OSError:
        return not os.path.lexists(path)


class _UnixConnection(http.client.HTTPConnection):
    """HTTP over a UNIX socket whose server is verified before anything is sent."""

    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path
        self._limit = timeout

    def connect(self) -> None:
        if self.sock is not None:
            return
        connected = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connected.settimeout(self._limit)
            connected.connect(self._path)
            _check_server(self._path, connected)
        except BaseException:
            connected.close()
            raise
        self.sock = connected


def _check_server(path: str, connected: socket.socket) -> None:
    """Refuses servers of other users: anyone can bind a socket in a directory writable by all."""
    credentials = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    _, uid, _ = struct.unpack("3i", credentials)
    if uid in (0, os.getuid()):
        return
    directory = os.path.dirname(path)
    try:
        if (
            path == SYSTEM_SOCKET
            and _is_private(directory, uid)
            and _is_private(os.path.dirname(directory), 0)
        ):
            return
    except OSError:
        pass
    raise PermissionError(f"{path} is served by user {uid}; only your own agents and root's are trusted")


def _connect_url(url: str, timeout: float) -> "tuple[http.client.HTTPConnection, str]":
    parts = urllib.parse.urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"{url!r} is not an address such as http://127.0.0.1:1337")
    if parts.scheme == "https":
        connection: http.client.HTTPConnection = http.client.HTTPSConnection(
            parts.hostname, parts.port, timeout=timeout
        )
    else:
        connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=timeout)
    try:
        connection.connect()
    except OSError as error:
        connection.close()
        raise NoAgentError(f"cannot connect to {url}: {error}") from error
    return connection, parts.netloc.rpartition("@")[2]


def _message_of(status: int, text: bytes) -> str:
    """Returns the agent's own message and hint."""
    try:
        error = json.loads(text)["error"]
    except (ValueError, KeyError, TypeError):
        return f"the agent responded with status {status}"
    if isinstance(error, str):
        return error
    message = str(error.get("message", f"status {status}"))
    hint = error.get("hint") or error.get("details")
    return f"{message}; {hint}" if hint else message
