"""Observations of an agent: what it can ask for, what one step asks for, and the replies that carry it.

The settings of JoinWorld and the family determine the AgentSpecs of an agent. The observations that a step
asks for are an ObservationRequest, which steps with the same request share. A request has a ReplyLayout: for the same
observations a reply has the same form every time, and only the state, the pixels and the numbers change. So its form is
computed once, by the protocol, and each step gets a ReplyBuffer: a bytes object that is complete but for what changes.
Frames are drawn into it, kernels write the numbers, and it is sent as it is.
"""

import difflib
import math
from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple, TypeAlias
from weakref import WeakValueDictionary

import numpy as np

from worldloom.kernels.outputs import FLOW, OUTPUTS
from worldloom.kernels.wire import VARINT_BYTES
from worldloom.protos.errors import InvalidArgument, ResourceExhausted
from worldloom.server.config import Limits
from worldloom.server.engine.memory import MemoryBudget
from worldloom.server.engine.replies import ReplyLayout
from worldloom.server.engine.world_settings import EXPECTED_TO_VARY, JoinSettings
from worldloom.worlds.describe import COMMON_OBSERVATIONS, common_observations
from worldloom.worlds.family import Bound, Spec
from worldloom.worlds.pool import Pool
from worldloom.worlds.randomisation.settings import VARIATION

SHARED = "@shm"
"""Suffix of observations that give the location of a frame in shared memory."""
FINAL = "@final"
"""Suffix of observations of the episodes that ended with a step, in worlds where the next begins within it."""
FINAL_LANES = "final_lanes"
"""Name of the observation that lists the lanes whose episode ended with a step."""
DTYPES_AS_IN_MEMORY = frozenset({"float32", "float64", "int8", "uint8", "bool"})
"""Dtypes whose values are the same bytes in a message as in memory; the others become integers of VARINT_BYTES."""
_EVERY_WORLD = {spec.name for spec in COMMON_OBSERVATIONS}

_MAX_KEPT_REQUESTS = 64
"""Requests that are remembered for an agent. With more different ones it is served slower."""
_MAX_KEPT_BYTES = 16 << 20
"""Reply data of the remembered requests, each of which has buffers of its own. The last one is always kept."""
_MAX_KEPT_UIDS = 256
"""UIDs of a request that is remembered; only one that repeats UIDs has more."""
_FEWER = "name fewer in the join setting 'observations', or ask for smaller frames or fewer lanes"
_HEADER_BYTES = 64
"""Upper bound of the bytes around an observation's data in a message."""


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
    final_of: str | None = None
    """Name of the observation that this one gives for lanes whose episode has ended, or FINAL_LANES itself. Its first
    dimension varies."""
    max_rows: int = 0
    """Largest size of that dimension."""

    @property
    def is_frame(self) -> bool:
        """The observation is pixels in the reply."""
        return self.camera is not None and self.shared_frame is None and self.final_of is None

    @property
    def is_by_name_only(self) -> bool:
        """The observation is offered only to agents that name it."""
        return self.camera is not None and OUTPUTS[self.output].by_name_only

    @property
    def elements(self) -> int:
        """Number of elements; 0 if it varies."""
        return 0 if self.final_of is not None else math.prod(self.shape)

    @property
    def data_bytes(self) -> int:
        """Bytes of the data in a reply; of those whose number varies none."""
        return self.elements * self._element_bytes

    @property
    def max_bytes(self) -> int:
        """Bytes of the data in the largest reply."""
        elements = self.elements if self.final_of is None else self.max_rows * math.prod(self.shape[1:])
        return elements * self._element_bytes

    @property
    def _element_bytes(self) -> int:
        return np.dtype(self.dtype).itemsize if self.dtype in DTYPES_AS_IN_MEMORY else VARINT_BYTES


ComputeLayout: TypeAlias = "Callable[[tuple[ObservationSpec, ...]], ReplyLayout]"
"""A protocol's function that computes the layout of replies with these observations."""


class ObservationRequest:
    """The distinct observations that a step asks for. Steps that can be drawn together share one request."""

    def __init__(
        self,
        observations: tuple[ObservationSpec, ...],
        layout: ReplyLayout,
        layout_cache: "ReplyLayoutCache | None" = None,
    ) -> None:
        self.observations = observations
        self.layout_cache = layout_cache
        """The cache that holds it, if one does."""
        self.final_observations = tuple(spec for spec in observations if spec.final_of is not None)
        """Observations of episodes that ended with the step. They come last."""
        self.layout = layout
        self.data_bytes = sum(spec.data_bytes for spec in observations)
        """Bytes of data in a reply."""
        self.is_shared = any(spec.shared_frame for spec in observations)
        """Some frames go into shared memory."""
        self.cameras = _camera_outputs([spec for spec in observations if spec.final_of is None])
        """(camera, bits of the outputs)."""
        self.final_cameras = _camera_outputs(self.final_observations)
        """The same for frames of episodes that ended with the step."""
        self.flow_cameras = tuple(
            dict.fromkeys(camera for camera, bits in (*self.cameras, *self.final_cameras) if bits & FLOW)
        )
        """Cameras whose flow is asked for."""
        self.family_names = tuple(
            spec.name
            for spec in observations
            if spec.camera is None and spec.final_of is None and spec.name not in _EVERY_WORLD
        )
        """Names of the family's own observations among them."""


def _camera_outputs(observations: Sequence[ObservationSpec]) -> tuple[tuple[str, int], ...]:
    """Return the cameras of these observations, each with the bits of its outputs."""
    cameras: dict[str, int] = {}
    for spec in observations:
        if spec.camera is not None:
            cameras[spec.camera] = cameras.get(spec.camera, 0) | 1 << spec.output
    return tuple(cameras.items())


class AgentSpecs:
    """The actions and observations of one agent, until it leaves or resets."""

    def __init__(
        self,
        pool: Pool,
        agent_index: int,
        lanes: int | None,
        join_settings: JoinSettings,
        layout_cache: "ReplyLayoutCache",
        has_final: bool = False,
    ) -> None:
        self.pool = pool
        self.agent_index = agent_index
        self.join_settings = join_settings
        self.layout_cache = layout_cache
        self.lanes = lanes
        """Lanes of a vector world, else None."""
        self.has_final = has_final
        """Observations of ended episodes are offered, too."""
        self.actions: dict[int, Spec] = dict(enumerate(pool.family.actions, start=1))
        all_specs = _all_observations(pool, lanes, join_settings, has_final)
        self.observations = {spec.uid: spec for spec in _select(all_specs, join_settings.observations, pool)}
        if lanes is not None:
            layout_cache.check_size(self, tuple(self.observations.values()), "a request for all observations")
        by_name = {spec.name: spec for spec in all_specs}
        self.shared_bytes = {
            spec.shared_frame: by_name[spec.shared_frame].data_bytes
            for spec in self.observations.values()
            if spec.shared_frame is not None
        }
        """Bytes of each frame that is offered in shared memory, by name."""
        self._kept: dict[tuple[ReplyLayoutCache, tuple[int, ...]], ObservationRequest] = {}
        self._kept_bytes = 0

    def request(self, uids: Sequence[int], layout_cache: "ReplyLayoutCache | None" = None) -> ObservationRequest:
        """Return the request for the observations with these UIDs; with replies of another layout, if one is given."""
        layout_cache = layout_cache or self.layout_cache
        key = (layout_cache, tuple(uids))
        request = self._kept.get(key)
        if request is None:
            for uid in uids:
                if uid not in self.observations:
                    known = ", ".join(f"{spec.uid} ({spec.name})" for spec in self.observations.values())
                    raise InvalidArgument(
                        f"requested observation {uid} is not offered: expected some of {known or 'none'}"
                    )
            # Final observations come last: what is in front of them has the same place in every reply.
            specs = [self.observations[uid] for uid in dict.fromkeys(uids)]
            specs.sort(key=lambda spec: spec.final_of is not None)
            request = layout_cache.find(self, tuple(specs))
            if len(uids) <= _MAX_KEPT_UIDS:
                self._keep(key, request)
        return request

    def _keep(self, key: "tuple[ReplyLayoutCache, tuple[int, ...]]", request: ObservationRequest) -> None:
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
        names = tuple((spec.uid, spec.name) for spec in observations)
        frames = (join.width, join.height, join.samples, join.shadows)
        key = (specs.pool, specs.agent_index, specs.lanes, frames, names)
        self.check_size(specs, observations, "this step")
        request = self._requests.get(key)
        if request is None:
            self._memory.check_replies(sum(spec.max_bytes for spec in observations), _FEWER)
            request = self._requests[key] = ObservationRequest(observations, self._compute_layout(observations), self)
        return request

    def check_size(self, specs: AgentSpecs, observations: tuple[ObservationSpec, ...], what: str) -> None:
        """Raise ResourceExhausted if the reply would be too large for this server or its client."""
        size_bytes = sum(spec.max_bytes + _HEADER_BYTES for spec in observations)
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


def _all_observations(pool: Pool, lanes: int | None, join: JoinSettings, has_final: bool) -> list[ObservationSpec]:
    """Return all observations of a pool's worlds, numbered from 1; those that are offered by name only come last."""
    lead = () if lanes is None else (lanes,)
    family, named = pool.family, {name.partition("@")[0] for name in join.observations or ()}
    varied = [spec for spec in pool.variation_specs if spec.name in named]
    specs = [*common_observations(family), *family.observations, *varied]
    found = [
        ObservationSpec(uid, spec.name, spec.dtype, (*lead, *spec.shape), spec.minimum, spec.maximum)
        for uid, spec in enumerate(specs, start=1)
    ]
    for camera in family.cameras:
        for number, output in enumerate(OUTPUTS):
            if output.name not in camera.outputs:
                continue
            name = f"{camera.name}.{output.name}"
            shape = (*lead, *output.frame_shape(join.height, join.width))
            maximum = output.largest_value(len(family.labels))
            low, uid = output.minimum, len(found) + 1
            found.append(ObservationSpec(uid, name, output.dtype, shape, low, maximum, camera.name, number))
    if join.shm:
        in_replies = [spec for spec in found if spec.camera is not None]
        for uid, spec in enumerate(in_replies, start=len(found) + 1):
            name = f"{spec.name}{SHARED}"
            found.append(ObservationSpec(uid, name, "int64", (*lead, 3), 0, None, spec.camera, spec.output, spec.name))
    if has_final and lanes is not None:
        found += _final_observations(found, lanes)
    # The UIDs of all others do not depend on outputs that their clients have not heard of.
    found.sort(key=lambda spec: spec.is_by_name_only)
    return [spec._replace(uid=uid) for uid, spec in enumerate(found, start=1)]


def _final_observations(found: list[ObservationSpec], lanes: int) -> list[ObservationSpec]:
    """Return the observations of ended episodes, for those of the family and its frames."""
    name, varies = FINAL_LANES, (-1,)
    final = [ObservationSpec(len(found) + 1, name, "int64", varies, 0, lanes - 1, final_of=name, max_rows=lanes)]
    for spec in found:
        if spec.shared_frame is None and spec.name not in _EVERY_WORLD:
            uid = len(found) + len(final) + 1
            final.append(
                spec._replace(
                    uid=uid,
                    name=f"{spec.name}{FINAL}",
                    shape=(*varies, *spec.shape[1:]),
                    final_of=spec.name,
                    max_rows=lanes,
                )
            )
    return final


def _select(all_specs: list[ObservationSpec], names: tuple[str, ...] | None, pool: Pool) -> list[ObservationSpec]:
    """Return the observations with these names; without names all that are not offered by name only."""
    if names is None:
        return [spec for spec in all_specs if not spec.is_by_name_only]
    known = {spec.name: spec for spec in all_specs}
    family = pool.family
    for name in names:
        if name not in known:
            base = name.partition("@")[0]
            if pool.randomised is None and (base == VARIATION or base.startswith(f"{VARIATION}.")):
                raise InvalidArgument(
                    f"setting 'observations' names {name[:100]!r} in a world where nothing varies: {EXPECTED_TO_VARY}"
                )
            # Variants are for clients that know of them: they have an '@' in the name that they ask for.
            listed = (
                list(known)
                if "@" in name
                else [spec.name for spec in all_specs if spec.shared_frame is None and spec.final_of is None]
            )
            listed += [spec.name for spec in pool.variation_specs if spec.name not in known]
            nearest = difflib.get_close_matches(name, listed, n=1, cutoff=0.5)
            hint = f" (did you mean {nearest[0]!r}?)" if nearest else ""
            if _is_of_step(name) and any(camera.is_drawn for camera in family.cameras):
                hint = " (it is of a step, and states that are drawn have none before them)"
            advice = f"; {family.no_cameras_text}" if family.no_cameras_text and not hint else ""
            raise InvalidArgument(
                f"setting 'observations' names {name[:100]!r}{hint}: expected some of {', '.join(listed)}{advice}"
            )
    return [known[name] for name in names]


def _is_of_step(name: str) -> bool:
    """Return whether a name is that of frames of an output that only a step has."""
    output = name.partition("@")[0].rpartition(".")[2]
    return any(one.name == output and one.needs_step for one in OUTPUTS)
