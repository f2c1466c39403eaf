"""The room for what learners use to reach worlds.

    from worldloom.client import VectorEnv

It may use `worldloom.protos` and, to run a server in its own process, `worldloom.server`. It knows nothing of worlds,
renderers or kernels.
"""

from worldloom.client.dm_env import make_dm_env
from worldloom.client.errors import (
    BadAction,
    BadReply,
    CannotConnect,
    ClientError,
    LostConnection,
    NoSharedMemory,
    ServerError,
    VersionMismatch,
)
from worldloom.client.vector_env import VectorEnv

__all__ = [
    "BadAction",
    "BadReply",
    "CannotConnect",
    "ClientError",
    "LostConnection",
    "NoSharedMemory",
    "ServerError",
    "VectorEnv",
    "VersionMismatch",
    "make_dm_env",
]
