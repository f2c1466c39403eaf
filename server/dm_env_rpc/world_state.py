"""Properties of the world of a stream that change: its agents, lanes, episodes and lights."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from worldloom.protos.errors import FailedPrecondition, InvalidArgument
from worldloom.server.dm_env_rpc.documentation import constant
from worldloom.server.dm_env_rpc.property_tree import Property
from worldloom.server.engine.engine import Engine
from worldloom.server.engine.world import Agent, Autoreset, World
from worldloom.worlds.randomisation.settings import AUTOMATIC, MAX_NUMBER, VARIATION

_LIGHTS = {
    "light_direction": (3, None, None, "Direction in which the light travels: east, north, up. Any length but zero."),
    "light_color": (3, 0, 8, "The light's red, green and blue."),
    "ambient": (3, 0, 8, "Ambient light on surfaces that face up."),
    "ambient_ground": (3, 0, 8, "Ambient light on surfaces that face down."),
    "sky_horizon": (3, 0, 1, "Colour of the sky at the horizon."),
    "sky_zenith": (3, 0, 1, "Colour of the sky overhead."),
    "fog_color": (3, 0, 1, "Colour of the fog."),
    "fog_range": (
        2,
        0,
        None,
        "Distances in metres at which fog begins and at which it hides everything; no fog if the second is not larger.",
    ),
}
"""Columns of worldloom.kernels.tables.LaneTable that can be written: length, range, text."""


def world_state(engine: Engine, agent: Agent) -> Iterator[Property]:
    """Yield the properties of an agent's world that change, and those of its lanes."""
    world = agent.world
    shape = (len(world.lanes),) if world.is_vector else ()

    def of_lanes(column: np.ndarray) -> np.ndarray:
        values = column[world.lanes]
        return np.asarray(values if world.is_vector else values[0])

    yield Property("world.name", "The world this stream has joined.", "str", lambda: world.name)
    yield Property("world.family", "Its family.", "str", lambda: world.pool.family.name)
    yield _seed(world.seeds.given)
    yield Property(
        "world.steps_per_s",
        "Steps in a second of the world's own time.",
        "float64",
        lambda: world.pool.family.steps_per_s / world.action_repeat,
    )
    yield Property(
        "world.lane_numbers",
        "Numbers of its lanes, from which their seeds follow; 0 without lanes.",
        "uint64",
        lambda: world.seeds.lane_numbers.reshape(shape),
        shape=shape,
    )
    yield Property("world.autoreset", "Begin of the next episode in a lane.", "str", constant(world.autoreset.value))
    yield Property(
        "world.action_repeat", "Times that a step applies its actions.", "int64", constant(world.action_repeat)
    )
    yield Property("world.agent", "Index of this stream's agent.", "int64", lambda: agent.index)
    yield Property("world.agents_joined", "Agents that have joined it.", "int64", lambda: len(world.agents))
    yield Property(
        "world.episode",
        "Episodes begun, counted from 0; -1 before the first.",
        "int64",
        lambda: of_lanes(world.pool.episode),
        shape=shape,
    )
    yield Property(
        "world.steps", "Steps in the episode so far.", "int64", lambda: of_lanes(world.pool.steps), shape=shape
    )
    if world.is_vector:
        yield Property(
            "world.next_episode",
            "Number of the next episode of each lane. Writing a number ends the episode of the lane, and -1 leaves it "
            "as it is. The next one begins as autoreset says: with the next step, by ResetWorld, or, if it is "
            "same_step, at once.",
            "int64",
            lambda: of_lanes(world.pool.episode) + 1,
            partial(_set_next_episode, world),
            shape=shape,
            minimum=-1,
            maximum=2**62,
        )
    if world.pool.randomised is not None:
        yield Property(
            "world.variation",
            "Number of the variation of each lane. Writing a number sets it from the next episode on; -1 leaves the "
            "choice to the lane.",
            "int64",
            lambda: np.asarray(world.pool.observe(world.lanes, VARIATION)).reshape(shape),
            partial(_set_variation, world),
            shape=shape,
            minimum=AUTOMATIC,
            maximum=MAX_NUMBER,
        )
    for column, (length, low, high, text) in _LIGHTS.items():
        yield Property(
            f"world.lighting.{column}",
            f"{text} Stays until the world is gone; in a vector world it is the same in all lanes.",
            "float32",
            partial(_light, engine, world, column),
            partial(_set_light, world, column),
            shape=(length,),
            minimum=low,
            maximum=high,
        )


def _set_next_episode(world: World, numbers: np.ndarray) -> None:
    if any(agent.step is not None for agent in world.agents.values()):
        raise FailedPrecondition("a step of this world waits for other agents: expected none under way; try again")
    chosen = numbers >= 0
    lanes = world.lanes[chosen]
    world.pool.set_next_episode(lanes, numbers[chosen])
    if world.autoreset is Autoreset.SAME_STEP and world.has_begun:
        world.pool.begin(lanes)


def _set_variation(world: World, numbers: np.ndarray) -> None:
    variations, chosen = world.variations, numbers.tolist()
    world.variations = replace(
        variations,
        given={**variations.given, VARIATION: chosen},
        choice=replace(variations.choice, numbers=tuple(chosen) if world.is_vector else chosen),
    )
    world.pool.choose_variations(world.lanes, world.variations.choice)


def _seed(given: int | Sequence[int]) -> Property:
    """Return the seed as it was given. No dtype has all seeds, from -2**63 to 2**64 - 1."""
    each = [given] if isinstance(given, int) else given
    text = "Seed of everything random in it, as last given for all lanes: one, or one for each lane."
    shape = () if isinstance(given, int) else (len(given),)
    dtype = "int64" if min(each) < 0 and max(each) < 2**63 else "uint64"
    values = [seed % 2**64 if dtype == "uint64" else seed for seed in each]
    return Property("world.seed", text, dtype, constant(np.array(values, dtype).reshape(shape)), shape=shape)


def _light(engine: Engine, world: World, column: str) -> np.ndarray:
    if column in world.lighting:
        return world.lighting[column]
    values: np.ndarray = getattr(engine.directory.scene.lanes, column)[world.pool.scene_lane[world.lanes[0]]]
    return values


def _set_light(world: World, column: str, value: np.ndarray) -> None:
    if column == "light_direction" and not value.any():
        raise InvalidArgument("light_direction is [0, 0, 0]: expected a direction, such as [0, 0, -1]")
    world.lighting[column] = value.copy()
