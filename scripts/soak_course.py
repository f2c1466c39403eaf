"""Behaviour of each stream of the soak test: random with its number as seed, so that it can be repeated."""

import random
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

SIDE = 32
"""Side of the frames in pixels."""
_BAD, _RESET, _IDLE, _PICTURE = 0.01, 0.01, 0.1, 0.4
"""Probabilities that a step asks for an unknown observation, resets, sends no action, and asks for a frame."""
_WISHES = 12
"""Sets of observations that streams of a kind ask for. The server has memory for replies with each of them."""


@dataclass(frozen=True)
class Kind:
    """A kind of world, and how a stream behaves in it."""

    name: str
    family: str
    observations: tuple[str, ...]
    """Observations other than frames."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    lanes: int | None = None
    agents: int = 1
    """Streams that share such a world."""
    depth: int = 1
    """Requests under way at a time."""


_EVERY = ("reward", "discount", "step_type")
_OWN = {
    "catch": ("ball", "paddle"),
    "cartpole": ("pose", "velocity"),
    "maze": ("position", "heading", "goals_left"),
}
_ACTIONS: dict[str, dict[str, tuple[type, int]]] = {
    "catch": {"paddle": (int, 0)},
    "cartpole": {"force": (float, 0)},
    "maze": {"move": (float, 2), "turn": (float, 0)},
}
"""Type and length of each action; 0: a single number."""
_SHORT: dict[str, dict[str, Any]] = {
    "catch": {"rows": 8},
    "cartpole": {"max_steps": 40},
    "maze": {"size": 7, "max_steps": 50, "textures": "random"},
}


def _kind(name: str, family: str, **more: Any) -> Kind:
    agents = {"agents": more["agents"]} if "agents" in more else {}
    return Kind(name, family, (*_EVERY, *_OWN[family]), {**_SHORT[family], **agents}, **more)


KINDS = (
    _kind("catch", "catch"),
    _kind("cartpole", "cartpole"),
    _kind("maze", "maze"),
    _kind("catch of 4 lanes", "catch", lanes=4),
    _kind("cartpole, 3 deep", "cartpole", depth=3),
    _kind("maze of 2 lanes", "maze", lanes=2),
    _kind("maze of two", "maze", agents=2),
    _kind("maze of two", "maze", agents=2),
)
"""Stream n is of kind n modulo their number; the last two share their world."""


def kind_of(stream: int) -> Kind:
    """What a stream does."""
    return KINDS[stream % len(KINDS)]


def world_seed(stream: int) -> int:
    """The seed of its world; two that share one have the same."""
    return 1000 + stream - stream % len(KINDS) if kind_of(stream).agents > 1 else 500_000 + stream


class Step(NamedTuple):
    """One step: what to ask for, and what to do."""

    see: tuple[str, ...]
    actions: dict[str, np.ndarray]


BAD, RESET = "bad", "reset"


def course(stream: int) -> Iterator[Step | str]:
    """What a stream does, for ever: steps, and now and then BAD or RESET."""
    kind, rng = kind_of(stream), random.Random(stream)
    luck = random.Random(kind.name)
    wishes = [_some(kind, luck) for _ in range(_WISHES)]
    while True:
        lot = rng.random()
        if lot < _BAD:
            yield BAD
        elif lot < _BAD + _RESET and kind.agents == 1:
            yield RESET
        else:
            yield Step(rng.choice(wishes), {} if rng.random() < _IDLE else _action(kind, rng))


def _some(kind: Kind, rng: random.Random) -> tuple[str, ...]:
    see = rng.sample(kind.observations, rng.randrange(len(kind.observations) + 1))
    if rng.random() < _PICTURE:
        see.insert(rng.randrange(len(see) + 1), rng.choice(("eye.rgb", "eye.rgb", "eye.gray", "eye.depth")))
    return tuple(see)


def _action(kind: Kind, rng: random.Random) -> dict[str, np.ndarray]:
    """[lanes, *shape] where there are lanes."""
    made = {}
    for name, (number, length) in _ACTIONS[kind.family].items():
        shape = (*(() if kind.lanes is None else (kind.lanes,)), *((length,) if length else ()))
        count = int(np.prod(shape))
        values = [rng.randrange(-1, 2) if number is int else rng.uniform(-1, 1) for _ in range(count)]
        made[name] = np.array(values, np.int32 if number is int else np.float32).reshape(shape)
    return made


def digest(state: int, seen: Mapping[str, np.ndarray]) -> int:
    """A number that two answers share if they are the same."""
    found = zlib.crc32(bytes([state]))
    for name in sorted(seen):
        found = zlib.crc32(np.ascontiguousarray(seen[name]).tobytes(), zlib.crc32(name.encode(), found))
    return found
