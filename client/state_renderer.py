"""Frames of states of a MuJoCo model: arrays of states in, arrays of frames out, in this process or at a server.

    draw = MujocoRenderer("local", model="walker.xml", width=64, height=64)
    frames = draw(qpos)["side.rgb"]

States are drawn in batches, as steps of worlds of the family `mujoco` with the setting `drive` = `state`. So a renderer
in this process, a server on this machine and one elsewhere give the same bytes. An engine in this process draws
straight into the arrays that are returned; at a server, one batch is drawn while the one before is copied.

All work is done on one thread of the renderer's own: while a program uses one part of a stream, the next is drawn.
"""

import os
import re
import weakref
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from google.rpc import code_pb2

from worldloom.client.arguments import parse_integer, parse_timeout
from worldloom.client.connecting import check_transport, connect
from worldloom.client.connections import LOCAL, Credentials, LocalConnection
from worldloom.client.errors import BadAction, ClientError, ServerError
from worldloom.client.model_sources import check_assets, create_uploaded, load_model, parse_task, prepare_upload
from worldloom.client.specs import parse_specs
from worldloom.client.state_arrays import StateBatch, StateParser, divide_states, round_up
from worldloom.client.vector_world import Transport, VectorWorld, connection_transport, is_frame
from worldloom.client.world import World
from worldloom.kernels.drawing_states import (
    DrawingJob,
    DrawingThread,
    FrameMemory,
    IsCancelled,
    check_out,
    wait_one_behind,
)

_MAX_LANES = 1024
"""Most states of a batch."""
_BATCH_BYTES = 16 << 20
"""Bytes of the frames of a batch: so many are drawn at once without the cost of a step being felt."""
_MAX_WORLDS = 8
"""Worlds of different sizes and outputs that are kept open."""
_TRANSPORTS = ("auto", "grpc", "shm", "socket")


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


class MujocoRenderer:
    """A function from states of a MuJoCo model to frames.

    The attribute `cameras` has the names of the model's cameras, `free` and `eye` included; `shapes` has the shapes of
    the arrays of one state, by name. Use it in a `with` statement, or call `close`.
    """

    def __init__(
        self,
        address: str = LOCAL,
        model: Any = None,
        *,
        width: int = 64,
        height: int = 64,
        samples: int = 1,
        cameras: Sequence[str] | None = None,
        outputs: Sequence[str] = ("rgb",),
        assets: Mapping[str, bytes] | None = None,
        batch_size: int | None = None,
        transport: Transport = "auto",
        renderer: Literal["auto", "gl", "cpu"] = "auto",
        token: str | None = None,
        tls_ca: str | os.PathLike[str] | None = None,
        tls_cert: str | os.PathLike[str] | None = None,
        tls_key: str | os.PathLike[str] | None = None,
        timeout_s: float = 60.0,
    ) -> None:
        """Load a model, here or at a server.

        Args:
            address: `local` for an engine in this process, or `HOST:PORT` or `unix:PATH` of a server.
            model: The path of an .xml file, the text of one, an MjModel, an MjSpec, a dm_control environment, or its
                name, such as `"walker/walk"`. A server has dm_control's models itself. It gets the text and files of
                others as an upload, if it takes uploads; a path that does not exist here is the name of a model in the
                server's `--model-dir`.
            width: Width of frames in pixels.
            height: Height of frames in pixels.
            samples: Samples per pixel, 1 or 4.
            cameras: Names of cameras. The default is the model's first camera, or `free` if it has none.
            outputs: Some of `rgb`, `gray`, `depth` and `segmentation`, for each camera.
            assets: Contents of the files that the text of a model refers to, by name.
            batch_size: Most states that are drawn at once; by default as many as have 16 MiB of frames, at most 1024.
            transport: As for VectorEnv.
            renderer: The renderer of an engine in this process; servers have their own.
            token: The server's token, if it wants one.
            tls_ca: The file of the certificate authority of a server with TLS.
            tls_cert: The file of this client's certificate.
            tls_key: The file of this client's key.
            timeout_s: Seconds to wait for each reply of a server.
        """
        if model is None:
            raise TypeError("model is missing: expected a MuJoCo model, such as model='walker.xml'")
        check_transport(address, transport, _TRANSPORTS)
        if samples not in (1, 4):
            raise ValueError(f"samples is {samples!r}: expected 1 or 4")
        join_settings = {
            "width": parse_integer("width", width, 1, 2**31 - 1),
            "height": parse_integer("height", height, 1, 2**31 - 1),
            "samples": samples,
        }
        max_lanes = None if batch_size is None else parse_integer("batch_size", batch_size, 1, 2**20)
        place = _Place(address, Credentials(token, tls_ca, tls_cert, tls_key), renderer, parse_timeout(timeout_s))
        if cameras is not None:
            _check_names("cameras", cameras)
        _check_names("outputs", outputs)
        check_assets(assets)
        thread = DrawingThread("worldloom-states")
        drawing = _Drawing(join_settings, max_lanes, transport)
        self._drawing = drawing
        self._thread = thread
        self._finish = weakref.finalize(self, thread.close, drawing.close)
        try:
            thread.run(lambda _: drawing.open(place, model, assets))
            self._parser = StateParser(drawing.actions)
            self.cameras: tuple[str, ...] = drawing.cameras
            self.shapes: dict[str, tuple[int, ...]] = self._parser.shapes
            own = [name for name in self.cameras if name != "eye"]
            self._cameras: Sequence[str] = (own or ["eye"])[:1] if cameras is None else cameras
            self._outputs = outputs
            self._names = self._name_observations(self._cameras, self._outputs)
        except BaseException:
            self.close()
            raise

    def __call__(
        self,
        qpos: Any,
        *,
        mocap_pos: Any = None,
        mocap_quat: Any = None,
        act: Any = None,
        geom_rgba: Any = None,
        cameras: Sequence[str] | None = None,
        outputs: Sequence[str] | None = None,
        out: Mapping[str, np.ndarray] | None = None,
    ) -> dict[str, np.ndarray]:
        """Return the frames of states, as arrays [N, height, width, ...] by `<camera>.<output>`.

        The arrays belong to the caller. Nothing is drawn if a state is not valid, but for a quaternion of length 0.

        Args:
            qpos: Joint positions [N, nq]: an array of NumPy, or of torch or JAX in the memory of the CPU, which is not
                copied. Also a dict with this and the arrays below, by name.
            mocap_pos: Positions of mocap bodies [N, nmocap, 3], or one for all [nmocap, 3]; the model's by default.
            mocap_quat: Rotations of mocap bodies [N, nmocap, 4], likewise.
            act: Activations of actuators [N, na], as part of a state; no frame shows them.
            geom_rgba: Colours of geoms [N, ngeom, 4], likewise.
            cameras: Names of cameras, instead of those of the renderer.
            outputs: Outputs, instead of those of the renderer.
            out: Arrays to draw into, by name, and to return: C-contiguous, of the right shape and dtype.
        """
        keywords = {"mocap_pos": mocap_pos, "mocap_quat": mocap_quat, "act": act, "geom_rgba": geom_rgba}
        names = self._choose_names(cameras, outputs)
        return self._submit(self._parser.parse(qpos, keywords), names, out).wait()

    def stream(
        self,
        states: Any,
        *,
        batch_size: int | None = None,
        cameras: Sequence[str] | None = None,
        outputs: Sequence[str] | None = None,
    ) -> Iterator[dict[str, np.ndarray]]:
        """Yield the frames of many states part by part, each as a call would return them; memory does not grow.

        While one part is used, the next is drawn. Memory of parts that are not referred to any more is used again.

        Args:
            states: An array [N, nq] (a memory map, for instance) or a dict of arrays by name, which is divided into
                parts; or an iterable of such arrays or dicts, each of which is a part, whatever its length.
            batch_size: States of a part of an array; by default as many as are drawn at once.
            cameras: Names of cameras, instead of those of the renderer.
            outputs: Outputs, instead of those of the renderer.
        """
        names = self._choose_names(cameras, outputs)
        size = (
            self._drawing.lanes_of(names) if batch_size is None else parse_integer("batch_size", batch_size, 1, 2**31)
        )
        return wait_one_behind(
            self._submit(batch, names, None) for batch in self._parse_each(self._parser.split(states, size))
        )

    def close(self) -> None:
        """Close all worlds. Closing twice does nothing."""
        self._finish()

    def __enter__(self) -> "MujocoRenderer":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    @property
    def transport(self) -> str:
        """The transport that is used: `local`, `socket`, `shm` or `grpc`."""
        return self._drawing.used_transport

    def _submit(
        self, batch: StateBatch, names: tuple[str, ...], out: Mapping[str, np.ndarray] | None
    ) -> DrawingJob[dict[str, np.ndarray]]:
        if not self._finish.alive:
            raise ClientError("the renderer is closed: expected an open one; make another")
        drawing = self._drawing
        return self._thread.submit(lambda is_cancelled: drawing.draw(batch, names, out, is_cancelled))

    def _parse_each(self, parts: Iterable[Any]) -> Iterator[StateBatch]:
        first = 0
        for part in parts:
            batch = self._parser.parse(part, first=first)
            first += batch.count
            yield batch

    def _choose_names(self, cameras: Sequence[str] | None, outputs: Sequence[str] | None) -> tuple[str, ...]:
        """Return the observations of a call, with the renderer's own cameras or outputs where it gives none."""
        if cameras is None and outputs is None:
            return self._names
        if cameras is not None:
            _check_names("cameras", cameras)
        if outputs is not None:
            _check_names("outputs", outputs)
        return self._name_observations(
            self._cameras if cameras is None else cameras, self._outputs if outputs is None else outputs
        )

    def _name_observations(self, cameras: Sequence[str], outputs: Sequence[str]) -> tuple[str, ...]:
        """Return the observations of these cameras and outputs; ValueError if there are none of these."""
        names = tuple(dict.fromkeys(f"{camera}.{output}" for camera in cameras for output in outputs))
        if not names:
            raise ValueError("no camera or no output: expected at least one of each")
        for camera in cameras:
            if camera not in self.cameras:
                raise ValueError(f"camera {camera!r} is not the model's: expected some of {', '.join(self.cameras)}")
        for output in outputs:
            if output not in self._drawing.outputs:
                raise ValueError(
                    f"output {output!r} does not exist: expected some of {', '.join(self._drawing.outputs)}"
                )
        return names


class _Place(NamedTuple):
    """The engine or server that draws, and how to reach it."""

    address: str
    credentials: Credentials
    renderer: str
    timeout_s: float


class _Drawing:
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

    def open(self, place: _Place, model: Any, assets: Mapping[str, bytes] | None) -> None:
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
        self._pixel_bytes = {name: spec.size_bytes for name, spec in observations.items() if is_frame(name)}
        self.cameras = tuple(name.removesuffix(".rgb") for name in observations if name.endswith(".rgb"))
        first = f"{self.cameras[0]}."
        self.outputs = tuple(name.removeprefix(first) for name in self._pixel_bytes if name.startswith(first))

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


def _check_names(argument: str, value: object) -> None:
    """Raise TypeError unless these are names of cameras or outputs."""
    if isinstance(value, str) or not isinstance(value, Sequence):
        example = value if isinstance(value, str) else {"cameras": "side", "outputs": "rgb"}[argument]
        raise TypeError(f"{argument} is {value!r}: expected a list of names, such as [{example!r}]")


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
