"""Observations of an agent: what it can ask for, what one step asks for, and the replies that carry it.

JoinSettings are given when an agent joins; from them and the family come its AgentSpecs. The observations that a step
asks for are an ObservationRequest, which steps with the same request share. A request has a ReplyLayout: for the same
observations a reply has the same form every time, and only the state, the pixels and the numbers change. So its form is
computed once, by the protocol, and each step gets a ReplyBuffer: a bytes object that is complete but for what changes.
Frames are drawn into it, kernels write the numbers, and it is sent as it is.
"""

import difflib
import math
import sys
from collections import deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias
from weakref import WeakValueDictionary

import numpy as np

from worldloom.kernels.outputs import OUTPUTS
from worldloom.kernels.raster.scratch import MAX_WIDTH
from worldloom.kernels.wire import VARINT_BYTES
from worldloom.protos.errors import InvalidArgument, ResourceExhausted
from worldloom.render.arena import PROCESS_MEMORY, address_of_bytes
from worldloom.render.views import DEFAULT_SIZE
from worldloom.server.config import Limits
from worldloom.server.engine.memory import MemoryBudget
from worldloom.worlds.describe import COMMON_OBSERVATIONS, common_observations
from worldloom.worlds.family import Bound, Family, Spec
from worldloom.worlds.pool import Pool
from worldloom.worlds.settings import Setting, SettingError, parse_settings

GRPC_RECEIVE_BYTES = 4 << 20
"""Default of gRPC clients for the largest message that they receive."""
JOIN_SETTINGS = (
    Setting("width", DEFAULT_SIZE, "Width of the frames in pixels.", 1, MAX_WIDTH),
    Setting("height", DEFAULT_SIZE, "Height of the frames in pixels.", 1, MAX_WIDTH),
    Setting("samples", 1, "Samples a pixel: 1, or 4 for smooth edges.", 1, 4),
    Setting(
        "max_reply_bytes",
        GRPC_RECEIVE_BYTES,
        "Bytes of the largest reply that the client receives: grpc.max_receive_message_length of its channel.",
        1,
    ),
    Setting("shm", False, "Whether to offer frames in shared memory too, for clients on the same machine."),
    Setting("agent", 0, "Index of the agent to be; the first free one unless given.", 0),
)
OBSERVATIONS = "observations"
"""A list of names, a type that the table above does not have."""

SHARED = "@shm"
"""Suffix of observations that give the location of a frame in shared memory."""
DTYPES_AS_IN_MEMORY = frozenset({"float32", "float64", "int8", "uint8", "bool"})
"""Dtypes whose values are the same bytes in a message as in memory; the others become integers of VARINT_BYTES."""
_EVERY_WORLD = {spec.name for spec in COMMON_OBSERVATIONS}

_MAX_KEPT_REQUESTS = 64
"""Requests that are remembered for an agent. With more different ones it is served slower."""
_MAX_KEPT_BYTES = 16 << 20
"""Reply data of the remembered requests, each of which has buffers of its own. The last one is always kept."""
_MAX_KEPT_UIDS = 256
"""UIDs of a request that is remembered; only one that repeats UIDs has more."""
_MAX_BUFFER_BYTES = 64 << 20
"""Free reply buffers that are kept for one layout; two are kept whatever their size."""
_FEWER = "name fewer in the join setting 'observations', or ask for smaller frames or fewer lanes"
_HEADER_BYTES = 64
"""Upper bound of the bytes around an observation's data in a message."""


@dataclass(frozen=True)
class JoinSettings:
    """Settings of JoinWorld, which Reset may change."""

    given: Mapping[str, object]
    width: int
    height: int
    samples: int
    max_reply_bytes: int
    shm: bool
    agent: int | None
    """Agent index; None: the first free one."""
    observations: tuple[str, ...] | None
    """Names to offer; None: all."""


def parse_join_settings(
    given: Mapping[str, object], limits: Limits, elsewhere: Mapping[str, str] | None = None
) -> JoinSettings:
    """Check the settings of JoinWorld. `elsewhere` has those of other requests: see `parse_settings`."""
    table = {name: value for name, value in given.items() if name != OBSERVATIONS}
    try:
        parsed = parse_settings(JOIN_SETTINGS, table, elsewhere)
    except SettingError as error:
        raise InvalidArgument(str(error).replace("expected some of ", f"expected some of {OBSERVATIONS}, ")) from error
    width, height, samples = (int(parsed[name]) for name in ("width", "height", "samples"))
    if samples not in (1, 4):
        raise InvalidArgument(f"setting 'samples' is {samples}: expected 1 or 4")
    if width * height > limits.max_view_pixels:
        raise ResourceExhausted(
            f"frames of {width} × {height} are {width * height} pixels: expected at most {limits.max_view_pixels}; "
            "ask for smaller ones, or raise --max-view-pixels"
        )
    return JoinSettings(
        given=dict(given),
        width=width,
        height=height,
        samples=samples,
        max_reply_bytes=int(parsed["max_reply_bytes"]),
        shm=bool(parsed["shm"]),
        agent=int(parsed["agent"]) if "agent" in given else None,
        observations=_parse_names(given[OBSERVATIONS]) if OBSERVATIONS in given else None,
    )


def _parse_names(given: object) -> tuple[str, ...]:
    names = given if isinstance(given, list) else [given]
    if not all(isinstance(name, str) for name in names):
        raise InvalidArgument(f"setting {OBSERVATIONS!r} is {str(given)[:100]}: expected names of observations")
    return tuple(dict.fromkeys(names))


class ObservationSpec(NamedTuple):
    """An observation that an agent can ask for. In a vector world its shape has a leading dimension of lanes."""

    uid: int
    name: str
    dtype: str
    shape: tuple[int, ...]
    minimum: Bound
    maximum: Bound
    camera: str | None = None
    """Camera of a frame."""
    output: int = 0
    """Output of a frame: index into OUTPUTS."""
    shared_frame: str | None = None
    """Name of the frame in shared memory whose location this observation gives."""

    @property
    def is_frame(self) -> bool:
        """The observation is pixels in the reply."""
        return self.camera is not None and self.shared_frame is None

    @property
    def elements(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def data_bytes(self) -> int:
        """Bytes of the data in a reply."""
        in_memory = self.dtype in DTYPES_AS_IN_MEMORY
        return self.elements * (np.dtype(self.dtype).itemsize if in_memory else VARINT_BYTES)


class ObservationField(NamedTuple):
    """The data of one observation in a reply."""

    offset: int
    as_varints: bool


class ReplyBuffer(NamedTuple):
    """A bytes object for one reply."""

    data: bytes
    address: int


class ReplyBuffers:
    """Reply buffers of one layout. A buffer is reused when nothing but this ring refers to its bytes any more.

    `constants` are the bytes that are the same in every reply, by their offset.
    """

    def __init__(self, size_bytes: int, constants: Mapping[int, bytes]) -> None:
        if any(offset < 0 or offset + len(piece) > size_bytes for offset, piece in constants.items()):
            raise ValueError(f"a layout of {size_bytes} bytes: expected its constants inside, got one beyond the end")
        self._size_bytes = size_bytes
        self._constants = constants
        self._max_kept = max(2, _MAX_BUFFER_BYTES // max(1, size_bytes))
        self._ring: deque[ReplyBuffer] = deque([self._allocate()])
        self._references_when_free = self._references()

    def __len__(self) -> int:
        return len(self._ring)

    @property
    def allocated_bytes(self) -> int:
        """Bytes of all its buffers."""
        return len(self._ring) * self._size_bytes

    def acquire(self) -> ReplyBuffer:
        """Return a free buffer. The caller must refer to its data at once: that keeps it from being acquired again.

        The oldest is tried first, since it was sent before all others. One whose client does not read comes last.
        """
        ring = self._ring
        if not self._size_bytes:
            return ring[0]  # Python has only one empty bytes object, referred to from everywhere
        if self._references() > self._references_when_free:
            ring.rotate(-1)
            if self._references() > self._references_when_free:
                if len(ring) >= self._max_kept:
                    ring.popleft()  # still valid for those who refer to it
                ring.appendleft(self._allocate())
        ring.rotate(-1)
        return ring[-1]

    def _references(self) -> int:
        return sys.getrefcount(self._ring[0].data)

    def _allocate(self) -> ReplyBuffer:
        # A bytes object is immutable for its users. This one has none yet, so it can be written like any memory.
        data = bytes(self._size_bytes)
        address = address_of_bytes(data)
        for offset, piece in self._constants.items():
            PROCESS_MEMORY[address + offset : address + offset + len(piece)] = np.frombuffer(piece, np.uint8)
        return ReplyBuffer(data, address)


class ReplyLayout:
    """The positions of state and observations in a reply, and the buffers that have them."""

    def __init__(
        self,
        size_bytes: int,
        constants: Mapping[int, bytes],
        state_offset: int | None,
        fields: tuple[ObservationField, ...],
    ) -> None:
        self.state_offset = state_offset
        """Offset of the byte that holds the state; None if replies have none."""
        self.fields = fields
        """In the order of the observations."""
        self.buffers = ReplyBuffers(size_bytes, constants)


ComputeLayout: TypeAlias = Callable[[tuple[ObservationSpec, ...]], ReplyLayout]
"""A protocol's function that computes the layout of replies with these observations."""


class ObservationRequest:
    """The distinct observations that a step asks for. Steps that can be drawn together share one request."""

    def __init__(self, observations: tuple[ObservationSpec, ...], layout: ReplyLayout) -> None:
        self.observations = observations
        self.layout = layout
        self.data_bytes = sum(spec.data_bytes for spec in observations)
        """Bytes of data in a reply."""
        self.is_shared = any(spec.shared_frame for spec in observations)
        """Some frames go into shared memory."""
        cameras: dict[str, int] = {}
        for spec in observations:
            if spec.camera is not None:
                cameras[spec.camera] = cameras.get(spec.camera, 0) | 1 << spec.output
        self.cameras = tuple(cameras.items())
        """(camera, bits of the outputs)."""
        self.family_names = tuple(
            spec.name for spec in observations if spec.camera is None and spec.name not in _EVERY_WORLD
        )
        """Names of the family's own observations among them."""


class AgentSpecs:
    """The actions and observations of one agent, until it leaves or resets."""

    def __init__(
        self,
        pool: Pool,
        agent_index: int,
        lanes: int | None,
        join_settings: JoinSettings,
        layout_cache: "ReplyLayoutCache",
    ) -> None:
        self.pool = pool
        self.agent_index = agent_index
        self.join_settings = join_settings
        self.layout_cache = layout_cache
        self.lanes = lanes
        """Lanes of a vector world, else None."""
        self.actions: dict[int, Spec] = dict(enumerate(pool.family.actions, start=1))
        all_specs = _all_observations(pool.family, lanes, join_settings)
        self.observations = {spec.uid: spec for spec in _select(all_specs, join_settings.observations)}
        if lanes is not None:
            layout_cache.check_size(self, tuple(self.observations.values()), "a request for all observations")
        by_name = {spec.name: spec for spec in all_specs}
        self.shared_bytes = {
            spec.shared_frame: by_name[spec.shared_frame].data_bytes
            for spec in self.observations.values()
            if spec.shared_frame is not None
        }
        """Bytes of each frame that is offered in shared memory, by name."""
        self._kept: dict[tuple[int, ...], ObservationRequest] = {}
        self._kept_bytes = 0

    def request(self, uids: Sequence[int]) -> ObservationRequest:
        """Return the request for the observations with these UIDs."""
        key = tuple(uids)
        request = self._kept.get(key)
        if request is None:
            for uid in key:
                if uid not in self.observations:
                    known = ", ".join(f"{spec.uid} ({spec.name})" for spec in self.observations.values())
                    raise InvalidArgument(
                        f"requested observation {uid} is not offered: expected some of {known or 'none'}"
                    )
            request = self.layout_cache.find(self, tuple(self.observations[uid] for uid in dict.fromkeys(key)))
            if len(key) <= _MAX_KEPT_UIDS:
                self._keep(key, request)
        return request

    def _keep(self, key: tuple[int, ...], request: ObservationRequest) -> None:
        """Remember a request; forget the others if together they would take too much memory."""
        self._kept_bytes += request.data_bytes
        if len(self._kept) >= _MAX_KEPT_REQUESTS or self._kept_bytes > _MAX_KEPT_BYTES:
            self._kept.clear()
            self._kept_bytes = request.data_bytes
        self._kept[key] = request


class ReplyLayoutCache:
    """Requests in use with their reply layouts, so that steps which ask for the same share one batch and one layout."""

    def __init__(self, compute_layout: ComputeLayout, limits: Limits, memory: MemoryBudget) -> None:
        self._compute_layout = compute_layout
        self._limits = limits
        self._memory = memory
        memory.count(lambda: sum(request.layout.buffers.allocated_bytes for request in self._requests.values()))
        self._requests: WeakValueDictionary[Hashable, ObservationRequest] = WeakValueDictionary()

    @property
    def reply_buffers(self) -> int:
        """Number of allocated reply buffers."""
        return sum(len(request.layout.buffers) for request in self._requests.values())

    def find(self, specs: AgentSpecs, observations: tuple[ObservationSpec, ...]) -> ObservationRequest:
        """Return the request of an agent for these observations."""
        join = specs.join_settings
        names = tuple(spec.name for spec in observations)
        key = (specs.pool, specs.agent_index, specs.lanes, join.width, join.height, join.samples, names)
        self.check_size(specs, observations, "this step")
        request = self._requests.get(key)
        if request is None:
            self._memory.check_replies(sum(spec.data_bytes for spec in observations), _FEWER)
            request = self._requests[key] = ObservationRequest(observations, self._compute_layout(observations))
        return request

    def check_size(self, specs: AgentSpecs, observations: tuple[ObservationSpec, ...], what: str) -> None:
        """Raise ResourceExhausted if the reply would be too large for this server or its client."""
        size_bytes = sum(spec.data_bytes + _HEADER_BYTES for spec in observations)
        server_bytes, client_bytes = self._limits.max_reply_bytes, specs.join_settings.max_reply_bytes
        if size_bytes > server_bytes:
            raise ResourceExhausted(
                f"the reply to {what} takes {size_bytes} bytes: expected {server_bytes} at most; {_FEWER}, "
                "or raise --max-reply-bytes"
            )
        if size_bytes > client_bytes:
            raise ResourceExhausted(
                f"the reply to {what} takes {size_bytes} bytes: expected {client_bytes} at most, which is what its "
                f"client receives; {_FEWER}, or raise grpc.max_receive_message_length of its channel and set the join "
                "setting 'max_reply_bytes' to the same"
            )


def _all_observations(family: Family, lanes: int | None, join: JoinSettings) -> list[ObservationSpec]:
    """Return all observations of a family's worlds, numbered from 1."""
    lead = () if lanes is None else (lanes,)
    specs = [*common_observations(family), *family.observations]
    found = [
        ObservationSpec(uid, spec.name, spec.dtype, (*lead, *spec.shape), spec.minimum, spec.maximum)
        for uid, spec in enumerate(specs, start=1)
    ]
    for camera in family.cameras:
        for number, output in enumerate(OUTPUTS):
            name = f"{camera.name}.{output.name}"
            shape = (*lead, *output.frame_shape(join.height, join.width))
            maximum = output.largest_value(len(family.labels))
            found.append(ObservationSpec(len(found) + 1, name, output.dtype, shape, 0, maximum, camera.name, number))
    if join.shm:
        in_replies = [spec for spec in found if spec.camera is not None]
        for uid, spec in enumerate(in_replies, start=len(found) + 1):
            name = f"{spec.name}{SHARED}"
            found.append(ObservationSpec(uid, name, "int64", (*lead, 3), 0, None, spec.camera, spec.output, spec.name))
    return found


def _select(all_specs: list[ObservationSpec], names: tuple[str, ...] | None) -> list[ObservationSpec]:
    """Return the observations with these names; all without names."""
    if names is None:
        return all_specs
    known = {spec.name: spec for spec in all_specs}
    for name in names:
        if name not in known:
            nearest = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
            hint = f" (did you mean {nearest[0]!r}?)" if nearest else ""
            raise InvalidArgument(
                f"setting 'observations' names {name[:100]!r}{hint}: expected some of {', '.join(known)}"
            )
    return [known[name] for name in names]
