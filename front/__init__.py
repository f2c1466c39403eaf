"""worldloom: pixel observations of many worlds at once, for reinforcement learning.

The names that most programs need. Each is imported when it is first used, so that `import worldloom` takes no time:

    import worldloom

    env = worldloom.VectorEnv("local", "maze", num_envs=64)

Subpackages: `worldloom.client` for clients, `worldloom.worlds` for writing a family, `worldloom.server` for running a
server from Python.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from worldloom.client import (
        BadAction,
        BadReply,
        CannotConnect,
        ClientError,
        LostConnection,
        NoSharedMemory,
        ServerError,
        VectorEnv,
        VersionMismatch,
        make_dm_env,
    )

    __version__: str

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
    "__version__",
    "make_dm_env",
]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first asked for."""
    value: Any
    if name == "__version__":
        value = importlib.import_module("importlib.metadata").version("worldloom")
    elif name in __all__:
        value = getattr(importlib.import_module("worldloom.client"), name)
    else:
        raise AttributeError(f"module 'worldloom' has no attribute {name!r}: expected one of {', '.join(__all__)}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
