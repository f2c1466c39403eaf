"""What can go wrong between a client and its worlds.

ClientError
├── ServerError          the server refused a request; nothing has changed there
├── LostConnection       the server, or the way to it, is gone
│   └── CannotConnect    it was not there to begin with
├── VersionMismatch      the server is no worldloom, or one that this client may misunderstand
├── BadReply             the server said what cannot be understood
├── BadAction            actions that the spaces do not contain; nothing was sent. Also a ValueError
└── NoSharedMemory       shared memory was asked for by name and cannot be had
"""

from google.rpc import code_pb2


class ClientError(Exception):
    """Whatever goes wrong here."""


class ServerError(ClientError):
    """The server refused a request; nothing has changed there."""

    def __init__(self, code: int, text: str) -> None:
        name = code_pb2.Code.Name(code) if code in code_pb2.Code.values() else f"code {code}"
        super().__init__(f"{name}: {text}")
        self.code = code
        """As google.rpc.Code numbers it."""
        self.text = text

    def __reduce__(self) -> tuple[type["ServerError"], tuple[int, str]]:
        return type(self), (self.code, self.text)


class LostConnection(ClientError):  # noqa: N818  # says it better than LostConnectionError
    """The server, or the way to it, is gone."""


class CannotConnect(LostConnection):
    """There is no server, or none that would speak with us."""


class VersionMismatch(ClientError):  # noqa: N818
    """The server is no worldloom, or one that this client may misunderstand."""


class BadReply(ClientError):  # noqa: N818
    """The server said what cannot be understood."""


class BadAction(ClientError, ValueError):  # noqa: N818
    """Actions that the spaces do not contain. Nothing was sent."""


class NoSharedMemory(ClientError):  # noqa: N818
    """Shared memory was asked for by name and cannot be had."""
