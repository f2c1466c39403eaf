"""Arguments that adaptors share: those of VectorEnv, or a VectorEnv itself."""

from collections.abc import Mapping, Sequence
from typing import Any

from worldloom.client.arguments import MODES, Autoreset, check_keywords, parse_autoreset
from worldloom.client.vector_env import VectorEnv


def make_vector_env(
    address: str | VectorEnv,
    family: str | None,
    num_envs: int | None,
    arguments: Mapping[str, Any],
    defaults: Mapping[str, Any],
    modes: Sequence[Autoreset],
) -> VectorEnv:
    """Return the given VectorEnv, or make one with these arguments and defaults; `modes` are those of the library."""
    expected = f"expected autoreset={' or '.join(map(repr, modes))}"
    if isinstance(address, VectorEnv):
        given = [name for name, value in (("family", family), ("num_envs", num_envs)) if value is not None]
        if given or arguments:
            names = ", ".join([*given, *arguments])
            raise TypeError(f"a VectorEnv together with {names}: expected the VectorEnv alone, made with those")
        if address.autoreset_mode not in [MODES[mode] for mode in modes]:
            raise ValueError(f"an env with {address.autoreset_mode}: {expected}")
        return address
    if family is None or num_envs is None:
        raise TypeError("family or num_envs is missing: expected (address, family, num_envs), or one VectorEnv")
    check_keywords(VectorEnv, arguments)
    arguments = {**defaults, **arguments}
    if parse_autoreset(arguments["autoreset"]) not in modes:
        raise ValueError(f"autoreset is {arguments['autoreset']!r}: {expected}")
    return VectorEnv(address, family, num_envs, **arguments)
