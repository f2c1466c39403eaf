"""What an agent is offered: actions, observations with their numbers, and what one step asks for of them."""

import difflib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from worldloom.kernels.tables import OUTPUTS
from worldloom.server.engine.joining import Joining
from worldloom.server.errors import InvalidArgument, ResourceExhausted
from worldloom.server.limits import Limits
from worldloom.worlds.describe import EVERY_WORLD
from worldloom.worlds.family import Family, Spec
from worldloom.worlds.pool import Pool

_MOST_KEPT = 64
"""Sets of observations that a stream's answers are remembered for; one that asks for more is served slower."""
_HEADER_BYTES = 64
"""More than the wire needs around the data of an observation."""

_EVERY = {spec.name for spec in EVERY_WORLD}


class Observation(NamedTuple):
    """One that is offered. Its shape has a leading dimension if the world has lanes."""

    uid: int
    name: str
    dtype: str
    shape: tuple[int, ...]
    minimum: float | None
    maximum: float | None
    camera: str | None = None
    """Where it is seen from, if it is a picture."""
    output: int = 0
    """Which output a picture is; see OUTPUTS."""

    @property
    def size_bytes(self) -> int:
        """How much data it is."""
        return int(np.prod(self.shape, dtype=np.int64)) * np.dtype(self.dtype).itemsize


class Wanted:
    """The observations that a step asks for, each once. `key` is the same for steps that can be drawn as one."""

    def __init__(self, observations: tuple[Observation, ...], pool: Pool, slot: int, joining: Joining) -> None:
        self.observations = observations
        cameras: dict[str, int] = {}
        for one in observations:
            if one.camera is not None:
                cameras[one.camera] = cameras.get(one.camera, 0) | 1 << one.output
        self.cameras = tuple(cameras.items())
        """(camera, bits of the outputs)."""
        self.family_names = tuple(one.name for one in observations if one.camera is None and one.name not in _EVERY)
        """The family's own observations among them."""
        names = tuple(one.name for one in observations)
        self.key = (pool, slot, joining.width, joining.height, joining.samples, names)


class Offer:
    """What one agent can do and see, until it leaves or resets."""

    def __init__(self, pool: Pool, slot: int, lanes: int | None, joining: Joining, limits: Limits) -> None:
        self.pool, self.slot, self.joining, self.limits = pool, slot, joining, limits
        self.lanes = lanes
        """Lanes of a vector world, else None."""
        self.actions: dict[int, Spec] = dict(enumerate(pool.family.actions, start=1))
        everything = _everything(pool.family, lanes, joining)
        self.observations = {one.uid: one for one in _chosen(everything, joining.observations)}
        self._kept: dict[tuple[int, ...], Wanted] = {}

    def want(self, uids: Sequence[int]) -> Wanted:
        """What a step with these numbers asks for."""
        asked = tuple(uids)
        wanted = self._kept.get(asked)
        if wanted is None:
            wanted = self._make_wanted(asked)
            if len(self._kept) >= _MOST_KEPT:
                self._kept.clear()
            self._kept[asked] = wanted
        return wanted

    def _make_wanted(self, uids: tuple[int, ...]) -> Wanted:
        for uid in uids:
            if uid not in self.observations:
                known = ", ".join(f"{one.uid} ({one.name})" for one in self.observations.values())
                raise InvalidArgument(f"requested observation {uid} is not offered: expected some of {known or 'none'}")
        observations = tuple(self.observations[uid] for uid in dict.fromkeys(uids))
        size_bytes = sum(one.size_bytes + _HEADER_BYTES for one in observations)
        if size_bytes > self.limits.max_message_bytes:
            raise ResourceExhausted(
                f"the reply would be about {size_bytes} bytes: expected at most {self.limits.max_message_bytes}; "
                "request fewer or smaller observations, or raise --max-message-bytes and the client's own limit"
            )
        return Wanted(observations, self.pool, self.slot, self.joining)


def _everything(family: Family, lanes: int | None, joining: Joining) -> list[Observation]:
    """Everything there is to see in a world of this family, numbered from 1."""
    lead = () if lanes is None else (lanes,)
    size = (joining.height, joining.width)
    pictures = {
        "rgb": ("uint8", (*size, 3), 255),
        "gray": ("uint8", size, 255),
        "depth": ("float32", size, None),
        "segmentation": ("uint8", size, len(family.labels) - 1),
    }
    specs = [*EVERY_WORLD, *family.observations]
    found = [
        Observation(uid, spec.name, spec.dtype, (*lead, *spec.shape), spec.minimum, spec.maximum)
        for uid, spec in enumerate(specs, start=1)
    ]
    for camera in family.cameras:
        for number, output in enumerate(OUTPUTS):
            dtype, shape, most = pictures[output]
            name = f"{camera.name}.{output}"
            found.append(Observation(len(found) + 1, name, dtype, (*lead, *shape), 0, most, camera.name, number))
    return found


def _chosen(everything: list[Observation], names: tuple[str, ...] | None) -> list[Observation]:
    """Those with these names; all if there are none."""
    if names is None:
        return everything
    known = {one.name: one for one in everything}
    for name in names:
        if name not in known:
            nearest = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
            hint = f" (did you mean {nearest[0]!r}?)" if nearest else ""
            raise InvalidArgument(
                f"setting 'observations' names {name[:100]!r}{hint}: expected some of {', '.join(known)}"
            )
    return [known[name] for name in names]
