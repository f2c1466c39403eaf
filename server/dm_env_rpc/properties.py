"""Properties of the server (renderer, limits, settings, families, counters, timers) and of the world of a stream."""

import dataclasses
import importlib.metadata
import os
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from operator import attrgetter
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from worldloom.kernels.outputs import OUTPUT_NAMES
from worldloom.server.dm_env_rpc.documentation import constant, family_properties, table_properties, world_properties
from worldloom.server.dm_env_rpc.property_tree import Group, Property, PropertyTree
from worldloom.server.dm_env_rpc.world_state import world_state
from worldloom.server.engine.engine import Engine
from worldloom.server.engine.shared_memory import MAX_RING_SIZE
from worldloom.server.engine.timing import STAGES
from worldloom.server.engine.world import Agent
from worldloom.server.engine.world_settings import JOIN_SETTINGS, OBSERVATIONS, WORLD_SETTINGS
from worldloom.worlds.family import CameraPlacement
from worldloom.worlds.registry import known_families

SEGMENT_PATH = "shm.name"
"""Key of the property that tells where shared memory is."""
_VERSION = importlib.metadata.version("worldloom")
"""Read once: it is in a file, which cannot be opened when the server has too many open."""
_NOTHING = np.empty((0, 5))


def make_tree(engine: Engine, agent: Agent | None, key: str) -> PropertyTree:
    """Return the properties that a stream sees, as far as they are needed to answer a request about this key.

    `agent` is the stream's agent, if it has joined a world. Only the top-level group of the key is filled, and in
    `families` only the family of the key.
    """
    groups = _groups(engine, agent, key)
    word = key.partition(".")[0]
    filled = groups.values() if key and word not in groups else [groups[word]] if key else []
    texts = [Group(name, group.text) for name, group in groups.items()]
    return PropertyTree([*texts, *(entry for group in filled for entry in group.make())])


def described_family(key: str) -> str | None:
    """Return the family whose description is needed to answer a request about this key, or None."""
    word, _, rest = key.partition(".")
    name = rest.partition(".")[0]
    return name if word == "families" and name in known_families() else None


class _TopLevel(NamedTuple):
    """A top-level group: its description, and a function that makes its properties."""

    text: str
    make: Callable[[], Iterable[Property | Group]]


def _groups(engine: Engine, agent: Agent | None, key: str) -> dict[str, _TopLevel]:
    found = {
        "server": _TopLevel("Version and renderer.", lambda: _server(engine)),
        "limits": _TopLevel("Limits of the server.", lambda: _limits(engine)),
        "create_settings": _TopLevel(
            "Settings of CreateWorld that all families have; a family's own are in families.NAME.settings.",
            lambda: table_properties("create_settings", WORLD_SETTINGS, ("family",)),
        ),
        "join_settings": _TopLevel("Settings of JoinWorld, the same for all families.", _join_settings),
        "families": _TopLevel("Families of worlds, by name.", lambda: _families(engine, key)),
        "capacity": _TopLevel("Resources that clients divide lanes by.", lambda: _capacity(engine)),
        "counters": _TopLevel("Counts since the server started, and what it has now.", lambda: _counters(engine)),
        "timers": _TopLevel("Times of recent ticks and their stages.", lambda: _timers(engine)),
    }
    if agent is not None and not agent.world.is_gone:
        found["world"] = _TopLevel("The world that this stream has joined.", lambda: _world(engine, agent, key))
        found["camera"] = _TopLevel("Cameras of this stream.", lambda: _cameras(agent))
        if agent.segment is not None:
            found["shm"] = _TopLevel("Shared memory of this stream.", lambda: _shared_memory(engine, agent))
    return found


def _server(engine: Engine) -> Iterator[Property]:
    renderer = engine.renderer
    yield Property("server.version", "Version of worldloom.", "str", constant(_VERSION))
    yield Property("server.renderer", "Name of the renderer: gl or cpu.", "str", lambda: renderer.name)
    yield Property("server.device", "Device of the renderer.", "str", lambda: renderer.device)
    if (local := engine.local_socket) is not None:
        text = "Unix socket for clients on the same machine: a path, or `abstract:` and a name."
        yield Property("server.local_socket", text, "str", constant(local.address))
        yield Property("server.local_socket_key", "Key that clients of it need.", "str", constant(local.key))
    if engine.page_url:
        yield Property("server.page", "URL of the page of --web.", "str", constant(engine.page_url))


def _limits(engine: Engine) -> Iterator[Property]:
    for name, value in dataclasses.asdict(engine.limits).items():
        flag = f"--{name.replace('_', '-')}"
        dtype = {bool: "bool", int: "int64"}.get(type(value), "float64")
        yield Property(f"limits.{name}", f"Value of {flag}.", dtype, constant(value))


def _join_settings() -> Iterator[Property | Group]:
    yield from table_properties("join_settings", JOIN_SETTINGS)
    yield Property(
        f"join_settings.{OBSERVATIONS}",
        "Names of the observations to offer. The value here is the default: none stands for all.",
        "str",
        lambda: np.empty(0, "str"),
        shape=(-1,),
    )


def _families(engine: Engine, key: str) -> Iterator[Property | Group]:
    for name in known_families():
        yield Group(f"families.{name}", f"The family {name}: settings, actions, observations, cameras, labels.")
    asked = described_family(key)
    description = None if asked is None else engine.descriptions.find(asked)
    if description is not None:
        yield from family_properties(f"families.{asked}", description)


def _capacity(engine: Engine) -> Iterator[Property]:
    directory = engine.directory
    yield Property(
        "capacity.processors",
        "Threads of the cpu renderer; processors that the server may use, if it draws with OpenGL.",
        "int64",
        lambda: getattr(engine.renderer, "threads", len(os.sched_getaffinity(0))),
    )
    yield Property(
        "capacity.rate",
        "Lane steps in a second of work since the server started, waiting left out; 0 until there was a second of it, "
        "and without --timers.",
        "float64",
        partial(_rate, engine),
    )
    yield Property(
        "capacity.free_lanes",
        "Lanes that may be added: --max-lanes without those in use.",
        "int64",
        lambda: max(0, engine.limits.max_lanes - directory.lanes_in_use),
    )
    yield Property(
        "capacity.free_memory_bytes",
        "Bytes that may be allocated: --max-memory-bytes without those in use.",
        "int64",
        lambda: directory.memory.left_bytes,
    )


def _rate(engine: Engine) -> float:
    worked_s = sum(seconds for stage, seconds in engine.timer.stage_s.items() if stage != "wait")
    return engine.counters.lane_steps / worked_s if worked_s >= 1.0 else 0.0


def _counters(engine: Engine) -> Iterator[Property]:
    counters, directory = engine.counters, engine.directory

    def count(key: str, text: str, read: Callable[[], int]) -> Property:
        return Property(f"counters.{key}", text, "int64", read)

    yield count("streams", "Open streams.", lambda: counters.streams)
    yield count("worlds", "Existing worlds.", lambda: len(directory.worlds))
    yield count("lanes", "Lanes of all worlds.", lambda: directory.lanes_in_use)
    yield count("shared_bytes", "Bytes of shared memory allocated.", lambda: directory.shared_bytes)
    yield count(
        "memory_bytes",
        "Bytes of worlds by estimate, of reply buffers and of shared memory, which --max-memory-bytes limits.",
        lambda: directory.memory.held_bytes,
    )
    yield count("reply_slots", "Allocated reply buffers.", lambda: engine.reply_buffers)
    yield count("trials", "Trials whose worlds are on this server.", lambda: counters.trials)
    yield count(
        "trials_played",
        "Trials that this server orchestrates, including those that are ending.",
        lambda: counters.count_trials_played(),
    )
    yield count("messages", "Messages sent to environments of trials.", lambda: counters.messages)
    yield count("requests", "Requests received.", lambda: counters.requests)
    yield count("refusals", "Requests answered with an error.", lambda: counters.refusals)
    yield count(
        "rejected_streams",
        "Calls refused before a stream was opened: too many streams, no or a wrong token, a shutdown.",
        lambda: counters.rejected_streams,
    )
    yield count("ticks", "Ticks in which at least one step was answered.", lambda: counters.ticks)
    yield count("steps", "Steps answered.", lambda: counters.steps)
    yield count("lane_steps", "Lanes in those steps.", lambda: counters.lane_steps)
    yield count("draws", "Calls of the renderer.", lambda: counters.draws)
    yield count("views", "Views drawn in these calls.", lambda: counters.views)
    yield Property("counters.mean_batch", "Mean number of steps in a tick.", "float64", lambda: counters.mean_batch)
    for output in OUTPUT_NAMES:
        yield count(f"frames.{output}", f"Frames of {output} drawn.", partial(counters.frames.__getitem__, output))
    for camera, output in sorted(counters.camera_frames):
        key = (camera, output)
        text = f"Frames of {output} drawn through cameras named {camera}."
        yield count(f"cameras.{camera}.{output}", text, partial(counters.camera_frames.__getitem__, key))
    for stage in STAGES:
        yield Property(
            f"counters.stage_s.{stage}",
            f"Seconds spent in stage {stage} of the ticks.",
            "float64",
            partial(_seconds, engine, stage),
        )


def _seconds(engine: Engine, stage: str) -> float:
    return engine.timer.stage_s[stage]


def _timers(engine: Engine) -> Iterator[Property]:
    timer = engine.timer
    yield Property("timers.is_on", "Whether stages are measured: value of --timers.", "bool", constant(timer.is_on))
    yield Property("timers.stages", "Names of the stages, separated by spaces.", "str", constant(" ".join(STAGES)))
    yield Property(
        "timers.stage_s",
        "Seconds spent in each stage, all read at one moment.",
        "float64",
        lambda: list(timer.stage_s.values()),
        shape=(len(STAGES),),
    )
    yield Property(
        "timers.spans",
        "Recent stages: index of the stage, and its begin and end in seconds of the monotonic clock.",
        "float64",
        lambda: [(STAGES.index(stage), start_s, end_s) for stage, start_s, end_s in timer.spans()] or _NOTHING[:, :3],
        shape=(-1, 3),
    )
    yield Property(
        "timers.ticks",
        "Recent ticks that answered steps: begin and end in seconds of that clock; steps, lanes, views.",
        "float64",
        lambda: timer.ticks() or _NOTHING,
        shape=(-1, 5),
    )


def _world(engine: Engine, agent: Agent, key: str) -> Iterator[Property | Group]:
    state = list(world_state(engine, agent))
    yield from state
    if all(entry.key != key for entry in state):
        yield from world_properties("world", agent)


def _cameras(agent: Agent) -> Iterator[Property]:
    world = agent.world
    for camera in (one for one in world.pool.family.cameras if one.is_drawn):
        place = world.pool.family.place_camera(world.pool.state, world.lanes[:1], camera.name, agent.index)
        own = float(np.ravel(place.half_height)[0])
        if place.orthographic:
            yield Property(
                f"camera.{camera.name}.height_m",
                "Height of the frame in metres, from its bottom to its top. For this stream, until it leaves.",
                "float64",
                partial(_height, agent, camera.name, own),
                partial(_set_height, agent, camera.name),
                minimum=0.001,
                maximum=1e6,
            )
        else:
            yield Property(
                f"camera.{camera.name}.field_of_view",
                "Vertical field of view in degrees. For this stream, until it leaves.",
                "float64",
                partial(_field_of_view, agent, camera.name, own),
                partial(_set_field_of_view, agent, camera.name),
                minimum=1.0,
                maximum=170.0,
            )
        yield from _projection(agent, camera.name)


def _projection(agent: Agent, camera: str) -> Iterator[Property]:
    """Yield what a client needs to turn depth into points, of each lane, as frames of the current state are drawn."""
    world = agent.world
    lanes = (len(world.lanes),) if world.is_vector else ()

    def value(key: str, text: str, dtype: str, read: Callable[[CameraPlacement], ArrayLike], *sides: int) -> Property:
        def read_each() -> np.ndarray:
            place = world.pool.place_camera(world.lanes, camera, agent.index)
            each = np.broadcast_to(np.asarray(read(place), dtype), (len(world.lanes), *sides))
            return each.reshape((*lanes, *sides))

        return Property(f"camera.{camera}.{key}", text, dtype, read_each, shape=(*lanes, *sides))

    def half_height(place: CameraPlacement) -> ArrayLike:
        return agent.half_heights.get(camera, place.half_height)

    text = "Half the frame's height in metres, at depth 1 or, if the camera is orthographic, at any depth."
    yield value("half_height", text, "float32", half_height)
    yield value("is_orthographic", "True if the camera is orthographic.", "bool", attrgetter("orthographic"))
    yield value("near", "Metres along the view axis; what is nearer is not seen.", "float32", attrgetter("near"))
    yield value("far", "Metres along the view axis: depth in the background.", "float32", attrgetter("far"))
    text = "Camera to world, in the current state: right, up, backward, position."
    yield value("pose", text, "float32", attrgetter("pose"), 3, 4)


def _height(agent: Agent, camera: str, own: float) -> float:
    return 2 * agent.half_heights.get(camera, own)


def _set_height(agent: Agent, camera: str, metres: np.ndarray) -> None:
    agent.half_heights[camera] = float(metres) / 2


def _field_of_view(agent: Agent, camera: str, own: float) -> float:
    return float(np.degrees(2 * np.arctan(agent.half_heights.get(camera, own))))


def _set_field_of_view(agent: Agent, camera: str, degrees: np.ndarray) -> None:
    agent.half_heights[camera] = float(np.tan(np.radians(degrees) / 2))


def _shared_memory(engine: Engine, agent: Agent) -> Iterator[Property]:
    segment = agent.segment
    if segment is None:
        return
    yield Property(SEGMENT_PATH, "Path of the shared memory, on the same machine.", "str", lambda: segment.path)
    yield Property("shm.token", "Text at the beginning of the shared memory.", "str", constant(segment.token))
    yield Property("shm.size_bytes", "Size in bytes.", "int64", constant(segment.size_bytes))
    yield Property(
        "shm.slots",
        "Number of sets of frames: a step is drawn into the next one in turn, or into the one that the client chooses. "
        "Writing it replaces the shared memory by memory for so many sets, with another name.",
        "int64",
        constant(segment.ring_size),
        lambda value: engine.directory.share_again(agent, int(value)),
        minimum=1,
        maximum=MAX_RING_SIZE,
    )
    yield Property("shm.slot_bytes", "Bytes of one set of frames.", "int64", constant(segment.set_bytes))
    for name, offset in segment.offsets.items():
        yield Property(f"shm.offsets.{name}", "Offset of these frames in a set.", "int64", constant(offset))
