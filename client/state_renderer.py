"""Frames of states of a MuJoCo model: arrays of states in, arrays of frames out, in this process or at a server.

    draw = MujocoRenderer("local", model="walker.xml", width=64, height=64)
    frames = draw(qpos)["side.rgb"]

States are drawn in batches, as steps of worlds of the family `mujoco` with the setting `drive` = `state`. So a renderer
in this process, a server on this machine and one elsewhere give the same bytes. An engine in this process draws
straight into the arrays that are returned; at a server, one batch is drawn while the one before is copied.

All work is done on one thread of the renderer's own: while a program uses one part of a stream, the next is drawn.
"""

import os
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from worldloom.client.arguments import parse_integer, parse_timeout
from worldloom.client.connecting import check_transport
from worldloom.client.connections import LOCAL, Credentials
from worldloom.client.errors import ClientError
from worldloom.client.model_sources import check_assets
from worldloom.client.state_arrays import StateBatch, StateParser
from worldloom.client.state_worlds import STEP_OUTPUTS, Place, StateWorlds
from worldloom.client.vector_world import Transport
from worldloom.client.world import frame_settings
from worldloom.kernels.drawing_states import DrawingJob, DrawingThread, wait_one_behind

_TRANSPORTS = ("auto", "grpc", "shm", "socket")


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
        shadows: bool = False,
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
            shadows: Whether lights cast shadows.
            cameras: Names of cameras. The default is the model's first camera, or `free` if it has none.
            outputs: Some of `rgb`, `gray`, `depth`, `segmentation` and `normals`, for each camera.
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
        join_settings = frame_settings(
            parse_integer("width", width, 1, 2**31 - 1), parse_integer("height", height, 1, 2**31 - 1), samples, shadows
        )
        max_lanes = None if batch_size is None else parse_integer("batch_size", batch_size, 1, 2**20)
        place = Place(address, Credentials(token, tls_ca, tls_cert, tls_key), renderer, parse_timeout(timeout_s))
        if cameras is not None:
            _check_names("cameras", cameras)
        _check_names("outputs", outputs)
        check_assets(assets)
        thread = DrawingThread("worldloom-states")
        worlds = StateWorlds(join_settings, max_lanes, transport)
        self._worlds = worlds
        self._thread = thread
        self._finish = weakref.finalize(self, thread.close, worlds.close)
        try:
            thread.run(lambda _: worlds.open(place, model, assets))
            self._parser = StateParser(worlds.actions)
            self.cameras: tuple[str, ...] = worlds.cameras
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
        size = self._worlds.lanes_of(names) if batch_size is None else parse_integer("batch_size", batch_size, 1, 2**31)
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
        return self._worlds.used_transport

    def _submit(
        self, batch: StateBatch, names: tuple[str, ...], out: Mapping[str, np.ndarray] | None
    ) -> DrawingJob[dict[str, np.ndarray]]:
        if not self._finish.alive:
            raise ClientError("the renderer is closed: expected an open one; make another")
        worlds = self._worlds
        return self._thread.submit(lambda is_cancelled: worlds.draw(batch, names, out, is_cancelled))

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
            if output not in self._worlds.outputs:
                why = "is of a step, and states have none before them" if output in STEP_OUTPUTS else "does not exist"
                raise ValueError(f"output {output!r} {why}: expected some of {', '.join(self._worlds.outputs)}")
        return names


def _check_names(argument: str, value: object) -> None:
    """Raise TypeError unless these are names of cameras or outputs."""
    if isinstance(value, str) or not isinstance(value, Sequence):
        example = value if isinstance(value, str) else {"cameras": "side", "outputs": "rgb"}[argument]
        raise TypeError(f"{argument} is {value!r}: expected a list of names, such as [{example!r}]")
