"""worldloom: pixel observations of many worlds at once, for reinforcement learning.

    import worldloom

    env = worldloom.VectorEnv("local", "maze", num_envs=64)

This package has the names that most programs need. Each is imported when it is first used, so `import worldloom` loads
nothing else. Subpackages: `worldloom.client` has the clients, `worldloom.worlds` what a family of your own needs,
`worldloom.server` a server to run from Python, `worldloom.data` datasets, `worldloom.fleet` many servers on a Ray
cluster.

It also registers environments with Gymnasium, such as `gymnasium.make_vec("worldloom/Maze-v0", num_envs=64)`.
"""

import importlib
from typing import TYPE_CHECKING, Any

from worldloom.client.registration import register_envs

if TYPE_CHECKING:
    from worldloom.client import (
        BadAction,
        BadReply,
        Camera,
        CannotConnect,
        ClientError,
        LostConnection,
        MujocoRenderer,
        NoLocalSocket,
        NoSharedMemory,
        Rollout,
        ServerError,
        VectorEnv,
        VersionMismatch,
        collect_model,
        make_dm_env,
        points_of,
    )

    __version__: str

__all__ = [
    "BadAction",
    "BadReply",
    "Camera",
    "CannotConnect",
    "ClientError",
    "LostConnection",
    "MujocoRenderer",
    "NoLocalSocket",
    "NoSharedMemory",
    "Rollout",
    "ServerError",
    "VectorEnv",
    "VersionMismatch",
    "__version__",
    "collect_model",
    "make_dm_env",
    "points_of",
]
_SUBPACKAGES = ("client", "data", "fleet", "server", "worlds")

if not TYPE_CHECKING:  # so that type checkers report names that do not exist

    def __getattr__(name: str) -> Any:
        """Import a public name or a subpackage when it is first used."""
        if name in _SUBPACKAGES:
            return importlib.import_module(f"worldloom.{name}")
        if name == "__version__":
            value = importlib.import_module("importlib.metadata").version("worldloom")
        elif name in __all__:
            value = getattr(importlib.import_module("worldloom.client"), name)
        else:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}: expected one of {', '.join(__all__)}")
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*(name for name in globals() if name.startswith("__")), *__all__, *_SUBPACKAGES})


register_envs()
