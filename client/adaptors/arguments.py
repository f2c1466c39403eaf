"""Arguments that adaptors share: those of VectorEnv, or a VectorEnv itself."""

from collections.abc import Mapping
from typing import Any

from worldloom.client.vector_env import VectorEnv


def make_vector_env(
    address: str | VectorEnv,
    family: str | None,
    num_envs: int | None,
    arguments: Mapping[str, Any],
    defaults: Mapping[str, Any],
) -> VectorEnv:
    """Return the given VectorEnv, or make one with these arguments and defaults."""
    if isinstance(address, VectorEnv):
        given = [name for name, value in (("family", family), ("num_envs", num_envs)) if value is not None]
        if given or arguments:
            names = ", ".join([*given, *arguments])
            raise TypeError(f"a VectorEnv together with {names}: expected the VectorEnv alone, made with those")
        return address
    if family is None or num_envs is None:
        raise TypeError("family or num_envs is missing: expected (address, family, num_envs), or one VectorEnv")
    return VectorEnv(address, family, num_envs, **{**defaults, **arguments})
