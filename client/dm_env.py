"""One world as a dm_env environment, through the adaptor of the dm_env_rpc package."""

import os
import weakref
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import dm_env
from dm_env_rpc.v1 import dm_env_rpc_pb2 as rpc
from dm_env_rpc.v1.dm_env_adaptor import DmEnvAdaptor

from worldloom.client.errors import ClientError
from worldloom.client.links import MOST_REPLY_BYTES, Access, open_link
from worldloom.client.world import World, refuse_settings


class _OwnWorld(DmEnvAdaptor):  # type: ignore[misc]  # has no types
    """The adaptor, which by itself leaves the connection to whoever made it."""

    def __init__(self, world: World, specs: rpc.ActionObservationSpecs, names: Sequence[str]) -> None:
        super().__init__(world, specs, requested_observations=names)
        # Also when this is forgotten, or the process ends.
        self._finalizer = weakref.finalize(self, world.close)

    def close(self) -> None:
        """Destroy the world and end the connection."""
        with suppress(ClientError):  # the connection may be lost
            super().close()
        self._finalizer()


def make_dm_env(
    address: str,
    family: str,
    *,
    width: int = 64,
    height: int = 64,
    samples: int = 1,
    observations: Sequence[str] | None = None,
    settings: Mapping[str, Any] | None = None,
    seed: int | None = None,
    renderer: str = "auto",
    token: str | None = None,
    tls_ca: str | os.PathLike[str] | None = None,
    tls_cert: str | os.PathLike[str] | None = None,
    tls_key: str | os.PathLike[str] | None = None,
    timeout_s: float = 60.0,
) -> dm_env.Environment:
    """A world of its own, destroyed by `close`. The arguments are those of VectorEnv.

    Names with dots become nested dicts, as the adaptor does it: `observation["eye"]["rgb"]`.
    """
    refuse_settings(settings, {"family": "family", "seed": "seed", "lanes": "num_envs of VectorEnv"})
    names = ("eye.rgb",) if observations is None else tuple(observations)
    given = {"family": family, **(settings or {}), **({} if seed is None else {"seed": seed})}
    world = World(open_link(address, Access(token, tls_ca, tls_cert, tls_key), renderer, timeout_s), given)
    try:
        specs = world.join(
            {
                "width": width,
                "height": height,
                "samples": samples,
                "max_reply_bytes": MOST_REPLY_BYTES,
                "observations": list(dict.fromkeys((*names, "reward", "discount"))),
            }
        )
        return _OwnWorld(world, specs, names)
    except BaseException:
        world.close()
        raise
