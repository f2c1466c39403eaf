"""One world as a dm_env environment, through the adaptor of the dm_env_rpc package."""

import os
import weakref
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal, TypeAlias, get_args

import dm_env
from dm_env_rpc.v1 import dm_env_rpc_pb2 as rpc
from dm_env_rpc.v1.dm_env_adaptor import DmEnvAdaptor

from worldloom.client.connecting import check_transport, connect
from worldloom.client.connections import MAX_REPLY_BYTES, Credentials
from worldloom.client.errors import ClientError
from worldloom.client.world import World, check_settings, frame_settings

_Transport: TypeAlias = Literal["auto", "grpc", "socket"]


class _OwningAdaptor(DmEnvAdaptor):  # type: ignore[misc]  # has no types
    """The adaptor as the owner of its world and connection, which it closes."""

    def __init__(self, world: World, specs: rpc.ActionObservationSpecs, names: Sequence[str]) -> None:
        super().__init__(world, specs, requested_observations=names)
        # Runs when the env is garbage collected or the process ends, too.
        self._finalizer = weakref.finalize(self, world.close)

    def close(self) -> None:
        """Destroy the world and close the connection."""
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
    shadows: bool = False,
    observations: Sequence[str] | None = None,
    settings: Mapping[str, Any] | None = None,
    seed: int | None = None,
    action_repeat: int = 1,
    transport: _Transport = "auto",
    renderer: str = "auto",
    token: str | None = None,
    tls_ca: str | os.PathLike[str] | None = None,
    tls_cert: str | os.PathLike[str] | None = None,
    tls_key: str | os.PathLike[str] | None = None,
    timeout_s: float = 60.0,
) -> dm_env.Environment:
    """Create a world and return it as a dm_env environment; its `close` destroys the world.

    The arguments are those of VectorEnv, without those about many lanes and their arrays. Observations with dots in
    their names are nested dicts, which is how the adaptor presents them: `observation["eye"]["rgb"]`.
    """
    arguments = {"family": "family", "seed": "seed", "action_repeat": "action_repeat", "lanes": "num_envs of VectorEnv"}
    check_settings(settings, arguments)
    check_transport(address, transport, get_args(_Transport))
    names = ("eye.rgb",) if observations is None else tuple(observations)
    given = {"action_repeat": action_repeat, **({} if seed is None else {"seed": seed})}
    world_settings = {"family": family, **(settings or {}), **given}
    credentials = Credentials(token, tls_ca, tls_cert, tls_key)
    world = World(connect(address, credentials, renderer, timeout_s, transport), world_settings)
    try:
        specs = world.join(
            {
                **frame_settings(width, height, samples, shadows),
                "max_reply_bytes": MAX_REPLY_BYTES,
                "observations": list(dict.fromkeys((*names, "reward", "discount"))),
            }
        )
        return _OwningAdaptor(world, specs, names)
    except BaseException:
        world.close()
        raise
