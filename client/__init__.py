"""Clients of worldloom: a Gymnasium vector environment, and dm_env.

    from worldloom.client import VectorEnv

Each public name is imported when it is first used: `make_dm_env` needs no Gymnasium, `VectorEnv` no dm_env, and the
errors neither.

The package imports `worldloom.protos`, and `worldloom.server` for the address `local` only. So a client of a server
loads no kernels, no renderer and no worlds.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from worldloom.client.cameras import Camera, points_of
    from worldloom.client.dm_env import make_dm_env
    from worldloom.client.errors import (
        BadAction,
        BadReply,
        CannotConnect,
        ClientError,
        LostConnection,
        NoLocalSocket,
        NoSharedMemory,
        ServerError,
        VersionMismatch,
    )
    from worldloom.client.model_files import collect_model
    from worldloom.client.rollout import Rollout
    from worldloom.client.state_renderer import MujocoRenderer
    from worldloom.client.vector_env import VectorEnv

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
    "collect_model",
    "make_dm_env",
    "points_of",
]
_MODULES = {
    "Camera": "cameras",
    "MujocoRenderer": "state_renderer",
    "Rollout": "rollout",
    "VectorEnv": "vector_env",
    "collect_model": "model_files",
    "make_dm_env": "dm_env",
    "points_of": "cameras",
}
"""Modules of the public names that are not errors."""

if not TYPE_CHECKING:  # so that type checkers report names that do not exist

    def __getattr__(name: str) -> Any:
        """Import a public name when it is first used."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}: expected one of {', '.join(__all__)}")
        value = getattr(importlib.import_module(f"{__name__}.{_MODULES.get(name, 'errors')}"), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
