"""Worlds that draw states of a MuJoCo model, at an engine in this process or at a server, batch by batch.

`MujocoRenderer` uses them on its thread. There is a world for each choice of observations and each number of lanes; at
a server there are two, which take turns.
"""

import re
from collections import deque
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from google.rpc import code_pb2

from worldloom.client.connecting import connect
from worldloom.client.connections import LOCAL, Credentials, LocalConnection
from worldloom.client.errors import BadAction, ClientError, ServerError
from worldloom.client.model_sources import create_uploaded, load_model, parse_task, prepare_upload
from worldloom.client.specs import parse_specs
from worldloom.client.state_arrays import StateBatch, divide_states, round_up
from worldloom.client.vector_world import Transport, VectorWorld, connection_transport
from worldloom.client.world import World
from worldloom.kernels.drawing_states import FrameMemory, IsCancelled, check_out
from worldloom.kernels.outputs import OUTPUTS, STATE_OUTPUT_NAMES

_MAX_LANES = 1024
"""Most states of a batch."""
_BATCH_BYTES = 16 << 20
"""Bytes of the frames of a batch: so many are drawn at once without the cost of a step being felt."""
_MAX_WORLDS = 8
"""Worlds of different sizes and outputs that are kept open."""


STEP_OUTPUTS = tuple(output.name for output in OUTPUTS if output.needs_step)
"""Outputs that states do not have."""


class _WorldKey(NamedTuple):
    """Sort of a world: its observations, whether its actions have colours, its lanes, and its number among equals."""

    names: tuple[str, ...]
    has_colors: bool
    lanes: int
    number: int


class _Pending(NamedTuple):
    """A batch that was sent and not received: the world that draws it, and its first and last state."""

    world: VectorWorld
    first: int
    end: int


class Place(NamedTuple):
    """The engine or server that draws, and how to reach it."""

    address: str
    credentials: Credentials
    renderer: str
    timeout_s: float


class StateWorlds:
    """A model at an engine or a server, and worlds that draw its states. Used on the renderer's thread."""

    def __init__(self, join_settings: Mapping[str, Any], max_lanes: int | None, transport: Transport) -> None:
        self._join_settings = join_settings
        self._max_lanes = max_lanes
        """Most states of a batch, if the user has said so."""
        self._transport: Transport = transport
        self._worlds: dict[_WorldKey, VectorWorld] = {}
        self._memory = FrameMemory()
        self._model_settings: dict[str, Any] = {}
        self._root: World | None = None
        """A world that keeps the model loaded, and is not stepped."""

    def open(self, place: Place, model: Any, assets: Mapping[str, bytes] | None) -> None:
        """Connect, load the model there, and find out its cameras and actions."""
        transport = connection_transport(self._transport)

        def create(settings: dict[str, Any]) -> World:
            self._model_settings = settings
            connection = connect(place.address, place.credentials, place.renderer, place.timeout_s, transport)
            return World(connection, self._settings(has_colors=True))

        if place.address == LOCAL:
            task = parse_task(model)
            loaded = load_model(model, assets) if task is None else None
            connection = connect(LOCAL, place.credentials, place.renderer, place.timeout_s, transport)
            assert isinstance(connection, LocalConnection)
            self._model_settings = {"model": task or connection.offer_model(loaded)}
            root = World(connection, self._settings(has_colors=True))
        else:
            root = create_uploaded(create, prepare_upload(model, assets))
        self._root = root
        specs = root.join({"width": 1, "height": 1})
        self.actions = parse_specs(specs.actions.items())
        observations = parse_specs(specs.observations.items())
        self.cameras = tuple(name.removesuffix(".rgb") for name in observations if name.endswith(".rgb"))
        self.outputs = STATE_OUTPUT_NAMES  # some are offered by name only, so the specs do not tell
        self._pixel_bytes = {
            f"{camera}.{output.name}": output.pixel_bytes for camera in self.cameras for output in OUTPUTS
        }

    @property
    def used_transport(self) -> str:
        """The transport that is used, which is known for certain once something was drawn."""
        kinds = {world.transport for world in list(self._worlds.values())}
        if kinds or self._root is None:
            return kinds.pop() if kinds else self._transport
        return self._root.connection.transport

    def _settings(self, has_colors: bool) -> dict[str, Any]:
        return {"family": "mujoco", "drive": "state", "colors": has_colors, **self._model_settings}

    def lanes_of(self, names: tuple[str, ...]) -> int:
        """Return the most states that are drawn at once with these observations."""
        if self._max_lanes is not None:
            return self._max_lanes
        pixels = int(self._join_settings["width"]) * int(self._join_settings["height"])
        state_bytes = pixels * sum(self._pixel_bytes[name] for name in names)
        fitting = max(1, _BATCH_BYTES // state_bytes)
        return min(_MAX_LANES, 1 << (fitting.bit_length() - 1))

    def draw(
        self,
        batch: StateBatch,
        names: tuple[str, ...],
        out: Mapping[str, np.ndarray] | None,
        is_cancelled: IsCancelled,
    ) -> dict[str, np.ndarray]:
        """Draw states, batch by batch, and return their frames."""
        largest = self.lanes_of(names)
        world = self._world(_WorldKey(names, batch.has_colors, min(largest, round_up(max(1, batch.count))), 0))
        specs = {name: world.observations[name] for name in names}
        forms = {name: ((batch.count, *spec.shape[1:]), np.dtype(spec.dtype)) for name, spec in specs.items()}
        frames = self._memory.take(forms) if out is None else check_out(out, forms)
        pending: deque[_Pending] = deque()
        is_local = world.connection.transport == LOCAL
        try:
            for number, (first, end, lanes) in enumerate(divide_states(batch.count, largest)):
                if is_cancelled():
                    raise ClientError("drawing was interrupted, or the renderer was closed")
                key = _WorldKey(names, batch.has_colors, lanes, 0 if is_local else number % 2)
                world = self._world(key)
                target = None
                if is_local and end - first == lanes:
                    target = world.make_target({name: frames[name][first:end] for name in names}, None)
                world.send_valid(batch.actions(first, end, lanes), target)
                pending.append(_Pending(world, first, end))
                if is_local or len(pending) > 1:
                    _receive(pending.popleft(), frames, batch)
            while pending:
                _receive(pending.popleft(), frames, batch)
        except BaseException:
            for one in pending:
                one.world.drop_step()
            raise
        return frames

    def _world(self, key: _WorldKey) -> VectorWorld:
        """Return the world of this sort, created if there is none; the one that was not used for longest is closed."""
        world = self._worlds.pop(key, None)
        if world is None:
            while len(self._worlds) >= _MAX_WORLDS:
                self._worlds.pop(next(iter(self._worlds))).close()
            world = self._create_world(key)
        self._worlds[key] = world
        return world

    def _create_world(self, key: _WorldKey) -> VectorWorld:
        settings = {**self._settings(key.has_colors), "lanes": key.lanes, "seed": 0}
        assert self._root is not None
        created = World(self._root.connection.open_sibling(), settings)
        world = VectorWorld(created, key.names, join_settings=self._join_settings, transport=self._transport)
        world.step_unobserved({})  # the first step of a world begins its episode, and ignores actions
        return world

    def close(self) -> None:
        """Close all worlds."""
        for world in self._worlds.values():
            world.close()
        self._worlds.clear()
        if self._root is not None:
            self._root.close()


def _receive(pending: _Pending, frames: Mapping[str, np.ndarray], batch: StateBatch) -> None:
    """Receive the frames of a batch, and copy them to their places unless they were drawn there."""
    try:
        found = pending.world.receive()
    except ServerError as error:
        if error.code != code_pb2.INVALID_ARGUMENT:
            raise
        first = batch.first + pending.first
        text = _LANE.sub(lambda match: f"state {first + int(match[1])}", error.text.removeprefix("action "))
        raise BadAction(text) from error
    count = pending.end - pending.first
    for name, array in frames.items():
        target, drawn = array[pending.first : pending.end], found[name][:count]
        if drawn.ctypes.data != target.ctypes.data:
            np.copyto(target, drawn)


_LANE = re.compile(r"\blane (\d+)")
