"""Errors of clients.

    ClientError
    ├── ServerError          the server answered a request with an error; the request changed nothing
    ├── LostConnection       the connection to the server has ended
    │   └── CannotConnect    no connection could be made
    ├── VersionMismatch      the server is not worldloom, or of a version that this client does not support
    ├── BadReply             a reply that cannot be decoded, or is not what was asked for
    ├── BadAction            actions that are not in the action space; nothing was sent. Also a ValueError
    ├── NoSharedMemory       transport="shm" was asked for and is not available
    └── NoLocalSocket        transport="socket" was asked for and is not available

Wrong arguments are ValueError or TypeError, as everywhere in Python.
"""

from google.rpc import code_pb2


class ClientError(Exception):
    """Base class of the errors of clients."""


class ServerError(ClientError):
    """An error that the server answered a request with. The request changed nothing."""

    def __init__(self, code: int, text: str) -> None:
        name = code_pb2.Code.Name(code) if code in code_pb2.Code.values() else f"code {code}"
        super().__init__(f"{name}: {text}")
        self.code = code
        """The number in google.rpc.Code."""
        self.text = text
        """The server's message."""

    def __reduce__(self) -> tuple[type["ServerError"], tuple[int, str]]:
        return type(self), (self.code, self.text)


class LostConnection(ClientError):  # noqa: N818  # public since the first version, like those below
    """A connection that has ended: the server stopped, was not reachable any more, or did not answer in time."""


class CannotConnect(LostConnection):
    """A connection that could not be made: no server, another protocol, or a failed TLS handshake."""


class VersionMismatch(ClientError):  # noqa: N818
    """A server that is not worldloom, or is of a version that this client does not support."""


class BadReply(ClientError):  # noqa: N818
    """A reply that cannot be decoded, or is not what was asked for."""


class BadAction(ClientError, ValueError):  # noqa: N818
    """Actions that are not in the action space. Nothing was sent."""


class NoSharedMemory(ClientError):  # noqa: N818
    """Shared memory that was asked for with transport="shm" and is not available."""


class NoLocalSocket(ClientError):  # noqa: N818
    """A local socket that was asked for with transport="socket" and is not available."""
