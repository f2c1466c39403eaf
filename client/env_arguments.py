"""Arguments of a VectorEnv, checked together and sorted by who needs them, before there is a connection."""

from collections.abc import Mapping
from typing import Any, NamedTuple, get_args

from worldloom.client.arguments import (
    MAX_ACTION_REPEAT,
    MAX_FRAME_STACK,
    VARIATION,
    check_names,
    parse_autoreset,
    parse_first_lane,
    parse_integer,
    parse_timeout,
    parse_variation,
    parse_world_seed,
)
from worldloom.client.connecting import check_transport
from worldloom.client.connections import Credentials
from worldloom.client.errors import ClientError
from worldloom.client.frames import Channels
from worldloom.client.results import Observing
from worldloom.client.servers import ServerDirectory, parse_servers
from worldloom.client.vector_world import Transport
from worldloom.client.world import check_settings, frame_settings

_OWN_ARGUMENTS = {
    "family": "family",
    "lanes": "num_envs",
    "seed": "seed",
    "autoreset": "autoreset",
    "action_repeat": "action_repeat",
    "first_lane": "first_lane",
}
"""Settings of CreateWorld that are not the family's -> their arguments."""


class EnvArguments(NamedTuple):
    """Arguments of a VectorEnv that were checked."""

    num_envs: int
    servers: ServerDirectory | None
    """The servers, if the address is not that of one."""
    observing: Observing
    stream_arguments: dict[str, Any]
    """Arguments of LaneStreams."""
    world_settings: dict[str, Any]
    """Settings of CreateWorld, but for those of the lanes."""
    world_arguments: dict[str, Any]
    """Arguments of `create_vector_world`."""
    has_memory: bool
    """True if results that the client returns depend on the observations of earlier steps."""

    def check_replay(self) -> None:
        """Raise ClientError if steps may not be left unobserved."""
        if self.has_memory or self.servers is not None:
            raise ClientError(
                "a replay in an env with frame_stack, episode_statistics, autoreset='disabled' or several servers: "
                "expected an env without these"
            )


def parse_env_arguments(given: Mapping[str, Any]) -> EnvArguments:
    """Check the arguments of VectorEnv, by name."""
    check_settings(given["settings"], _OWN_ARGUMENTS)
    directory = None if isinstance(given["address"], str) else parse_servers(given["address"])
    if directory is not None:
        _check_distributed(given)
    if given["render_mode"] not in (None, "rgb_array"):
        raise ValueError(f"render_mode is {given['render_mode']!r}: expected 'rgb_array' or None")
    num_envs = parse_integer("num_envs", given["num_envs"], 1, 2**31 - 1)
    action_repeat = parse_integer("action_repeat", given["action_repeat"], 1, MAX_ACTION_REPEAT)
    observing = _parse_observing(given)
    stream_arguments = {
        "lanes": num_envs,
        "streams": parse_integer("streams", given["streams"], 1, num_envs),
        "first_lane": parse_first_lane(given["first_lane"], num_envs),
        "seed": parse_world_seed(given["seed"], num_envs),
    }
    world_settings = {
        "family": given["family"],
        **(given["settings"] or {}),
        "autoreset": observing.autoreset,
        "action_repeat": action_repeat,
    }
    if VARIATION in world_settings:
        world_settings[VARIATION] = parse_variation(world_settings[VARIATION], num_envs)
    world_arguments = {
        "names": observing.requested,
        "join_settings": frame_settings(given["width"], given["height"], given["samples"], given["shadows"]),
        "transport": given["transport"],
        "credentials": Credentials(*(given[name] for name in ("token", "tls_ca", "tls_cert", "tls_key"))),
        "renderer": given["renderer"],
        "timeout_s": parse_timeout(given["timeout_s"]),
        "clip_actions": given["clip_actions"],
    }
    has_memory = given["episode_statistics"] or observing.frame_stack > 1 or observing.autoreset == "disabled"
    return EnvArguments(num_envs, directory, observing, stream_arguments, world_settings, world_arguments, has_memory)


def _check_distributed(given: Mapping[str, Any]) -> None:
    """Check arguments of an env with several servers."""
    for name, default in (("streams", 1), ("renderer", "auto")):
        if given[name] != default:
            raise ValueError(
                f"{name} is {given[name]!r} with a list of servers: expected none; each server has streams and a "
                "renderer of its own"
            )
    check_transport("", given["transport"], get_args(Transport))


def _parse_observing(given: Mapping[str, Any]) -> Observing:
    observations, channels = given["observations"], given["channels"]
    if isinstance(observations, str):
        raise TypeError(f"observations is {observations!r}: expected a list of names, such as [{observations!r}]")
    names = tuple(dict.fromkeys(("eye.rgb",) if observations is None else observations))
    check_names(names)
    if given["flat"] and len(names) != 1:
        raise ValueError(f"flat=True with the observations {names}: expected exactly one, or flat=False")
    if channels not in (None, *get_args(Channels)):
        raise ValueError(f"channels is {channels!r}: expected 'last', 'first' or None")
    frame_stack = parse_integer("frame_stack", given["frame_stack"], 1, MAX_FRAME_STACK)
    rendered_name = next((name for name in names if name.endswith(".rgb")), None)
    if rendered_name is None and given["render_mode"] is not None:
        rendered_name = "eye.rgb"
    if channels is None and (given["flat"] or frame_stack > 1):
        channels = "last"
    return Observing(names, rendered_name, channels, frame_stack, parse_autoreset(given["autoreset"]))
