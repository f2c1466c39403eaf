"""Whether a server is one that this client understands.

The protocol stands still, but what a worldloom server takes and offers beyond it may change from one minor version to
the next. So both sides have to be of the same one: 0.3.1 and 0.3.7 go together, 0.3.1 and 0.4.0 do not. Other
dm_env_rpc clients are not asked for a version; whatever of a server they use is theirs to know.
"""

import functools
import importlib.metadata
from collections.abc import Callable

from google.rpc import code_pb2

from worldloom.client.errors import ServerError, VersionMismatch

_NO_SUCH_THING = (
    code_pb2.NOT_FOUND,
    code_pb2.UNIMPLEMENTED,
    code_pb2.INVALID_ARGUMENT,
    code_pb2.UNKNOWN,
    code_pb2.INTERNAL,
)
"""What servers answer to a question that they do not know."""


def check_version(read: Callable[[str], object], address: object) -> None:
    """VersionMismatch unless a server's properties say that it is of our own version. `read` reads one."""
    ours = own_version()
    try:
        theirs = str(read("server.version"))
    except ServerError as error:
        if error.code not in _NO_SUCH_THING:
            raise
        raise VersionMismatch(
            f"the server at {address} speaks dm_env_rpc but is no worldloom ({error.text}): expected worldloom "
            f"{_minor(ours)}; other servers are for other clients, such as the dm_env_rpc package's own"
        ) from error
    if _minor(theirs) != _minor(ours):
        raise VersionMismatch(
            f"the server at {address} is worldloom {theirs} and this client {ours}: expected {_minor(ours)} on both "
            "sides; install the server's version here, or start the server with this one"
        )


@functools.cache
def own_version() -> str:
    """Of the worldloom that is installed here."""
    return importlib.metadata.version("worldloom")


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])
