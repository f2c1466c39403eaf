"""How an agent joins: the settings of JoinWorld, which Reset may change."""

from collections.abc import Mapping
from dataclasses import dataclass

from worldloom.protos.errors import InvalidArgument, ResourceExhausted
from worldloom.render.views import DEFAULT_SIZE
from worldloom.server.config import Limits
from worldloom.worlds.settings import Setting, SettingError, take_settings

_LONGEST_SIDE = 16_384
GRPC_RECEIVE_BYTES = 4 << 20
"""What a gRPC client takes unless it was told otherwise."""
JOIN_SETTINGS = (
    Setting("width", DEFAULT_SIZE, "Width of the pictures in pixels.", 1, _LONGEST_SIDE),
    Setting("height", DEFAULT_SIZE, "Height of the pictures in pixels.", 1, _LONGEST_SIDE),
    Setting("samples", 1, "Samples a pixel: 1, or 4 for smooth edges.", 1, 4),
    Setting(
        "max_reply_bytes",
        GRPC_RECEIVE_BYTES,
        "Bytes of the largest reply that the client takes: what its channel's grpc.max_receive_message_length says.",
        1,
    ),
    Setting("shm", False, "Whether to offer pictures in shared memory too, for clients on the same machine."),
    Setting("agent", 0, "Which of the world's agents to be; the first that is free unless given.", 0),
)
OBSERVATIONS = "observations"
"""A list of names, which the table above has no type for."""


@dataclass(frozen=True)
class Joining:
    """What an agent asked for when it joined."""

    given: Mapping[str, object]
    width: int
    height: int
    samples: int
    max_reply_bytes: int
    shm: bool
    agent: int | None
    """None: whichever is free."""
    observations: tuple[str, ...] | None
    """Names to offer; None: all."""


def take_joining(given: Mapping[str, object], limits: Limits) -> Joining:
    """The settings of JoinWorld, checked."""
    table = {name: value for name, value in given.items() if name != OBSERVATIONS}
    try:
        taken = take_settings(JOIN_SETTINGS, table)
    except SettingError as error:
        raise InvalidArgument(str(error).replace("expected some of ", f"expected some of {OBSERVATIONS}, ")) from error
    width, height, samples = (int(taken[name]) for name in ("width", "height", "samples"))
    if samples not in (1, 4):
        raise InvalidArgument(f"setting 'samples' is {samples}: expected 1 or 4")
    if width * height > limits.max_view_pixels:
        raise ResourceExhausted(
            f"pictures of {width} × {height} are {width * height} pixels: expected at most {limits.max_view_pixels}; "
            "ask for smaller ones, or raise --max-view-pixels"
        )
    return Joining(
        given=dict(given),
        width=width,
        height=height,
        samples=samples,
        max_reply_bytes=int(taken["max_reply_bytes"]),
        shm=bool(taken["shm"]),
        agent=int(taken["agent"]) if "agent" in given else None,
        observations=_names(given[OBSERVATIONS]) if OBSERVATIONS in given else None,
    )


def _names(given: object) -> tuple[str, ...]:
    names = given if isinstance(given, list) else [given]
    if not all(isinstance(name, str) for name in names):
        raise InvalidArgument(f"setting {OBSERVATIONS!r} is {str(given)[:100]}: expected names of observations")
    return tuple(dict.fromkeys(names))
