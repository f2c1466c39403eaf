"""What an agent is offered: actions, observations with their numbers, and what one step asks for of them."""

import difflib
import math
from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple, TypeAlias
from weakref import WeakValueDictionary

import numpy as np

from worldloom.kernels.tables import OUTPUTS
from worldloom.kernels.wire import VARINT_BYTES
from worldloom.protos.errors import InvalidArgument, ResourceExhausted
from worldloom.server.config import Limits
from worldloom.server.engine.joining import Joining
from worldloom.server.engine.replies import Layout
from worldloom.worlds.describe import EVERY_WORLD, every_world
from worldloom.worlds.family import Bound, Family, Spec
from worldloom.worlds.pool import Pool

_MOST_KEPT = 64
"""Sets of observations that a stream's answers are remembered for; one that asks for more is served slower."""
_MOST_KEPT_BYTES = 16 << 20
"""Of replies with them: each set has memory of its own. The last one is kept whatever its size."""
_LONGEST_KEPT = 256
"""Numbers in a request for a set that is remembered; only one that repeats them has more."""
SHARED = "@shm"
"""How names of observations end that say where in shared memory a picture lies."""
_HEADER_BYTES = 64
"""More than the wire needs around the data of an observation."""

DTYPES_AS_IN_MEMORY = frozenset({"float32", "float64", "int8", "uint8", "bool"})
"""Numbers that are written into replies as they are; the others become integers of VARINT_BYTES."""
_EVERY = {spec.name for spec in EVERY_WORLD}


class Observation(NamedTuple):
    """One that is offered. Its shape has a leading dimension if the world has lanes."""

    uid: int
    name: str
    dtype: str
    shape: tuple[int, ...]
    minimum: Bound
    maximum: Bound
    camera: str | None = None
    """Where it is seen from, if it is a picture."""
    output: int = 0
    """Which output a picture is; see OUTPUTS."""
    shows: str | None = None
    """The picture that is painted into shared memory; the observation itself says where."""

    @property
    def is_picture(self) -> bool:
        """Pixels in the reply."""
        return self.camera is not None and self.shows is None

    @property
    def elements(self) -> int:
        """How many numbers it is."""
        return math.prod(self.shape)

    @property
    def data_bytes(self) -> int:
        """How much it takes in a reply."""
        in_memory = self.dtype in DTYPES_AS_IN_MEMORY
        return self.elements * (np.dtype(self.dtype).itemsize if in_memory else VARINT_BYTES)


LayOut: TypeAlias = Callable[[tuple[Observation, ...]], Layout]
"""Works out the form of replies with these observations; each protocol has its own."""


class Wanted:
    """The observations that a step asks for, each once. Steps that can be drawn as one have the same."""

    def __init__(self, observations: tuple[Observation, ...], layout: Layout) -> None:
        self.observations = observations
        self.layout = layout
        self.data_bytes = sum(one.data_bytes for one in observations)
        """How much of a reply is data."""
        self.is_shared = any(one.shows for one in observations)
        """Whether pictures go into shared memory."""
        cameras: dict[str, int] = {}
        for one in observations:
            if one.camera is not None:
                cameras[one.camera] = cameras.get(one.camera, 0) | 1 << one.output
        self.cameras = tuple(cameras.items())
        """(camera, bits of the outputs)."""
        self.family_names = tuple(one.name for one in observations if one.camera is None and one.name not in _EVERY)
        """The family's own observations among them."""


class Offer:
    """What one agent can do and see, until it leaves or resets."""

    def __init__(self, pool: Pool, slot: int, lanes: int | None, joining: Joining, wardrobe: "Wardrobe") -> None:
        self.pool, self.slot, self.joining, self.wardrobe = pool, slot, joining, wardrobe
        self.lanes = lanes
        """Lanes of a vector world, else None."""
        self.actions: dict[int, Spec] = dict(enumerate(pool.family.actions, start=1))
        everything = _everything(pool.family, lanes, joining)
        self.observations = {one.uid: one for one in _chosen(everything, joining.observations)}
        if lanes is not None:
            wardrobe.check_size(self, tuple(self.observations.values()), "asking for everything that is offered")
        named = {one.name: one for one in everything}
        self.shared_bytes = {
            one.shows: named[one.shows].data_bytes for one in self.observations.values() if one.shows is not None
        }
        """The pictures that are offered in shared memory, and how much they take."""
        self._kept: dict[tuple[int, ...], Wanted] = {}
        self._kept_bytes = 0

    def want(self, uids: Sequence[int]) -> Wanted:
        """What a step with these numbers asks for."""
        asked = tuple(uids)
        wanted = self._kept.get(asked)
        if wanted is None:
            for uid in asked:
                if uid not in self.observations:
                    known = ", ".join(f"{one.uid} ({one.name})" for one in self.observations.values())
                    raise InvalidArgument(
                        f"requested observation {uid} is not offered: expected some of {known or 'none'}"
                    )
            wanted = self.wardrobe.find(self, tuple(self.observations[uid] for uid in dict.fromkeys(asked)))
            if len(asked) <= _LONGEST_KEPT:
                self._keep(asked, wanted)
        return wanted

    def _keep(self, asked: tuple[int, ...], wanted: Wanted) -> None:
        """Remember it, and forget the others if all of them would take too much."""
        self._kept_bytes += wanted.data_bytes
        if len(self._kept) >= _MOST_KEPT or self._kept_bytes > _MOST_KEPT_BYTES:
            self._kept.clear()
            self._kept_bytes = wanted.data_bytes
        self._kept[asked] = wanted


class Wardrobe:
    """What steps ask for at present, so that those who ask for the same share it: one batch, one form of replies."""

    def __init__(self, lay_out: LayOut, limits: Limits) -> None:
        self._lay_out = lay_out
        self._limits = limits
        self._shared: WeakValueDictionary[Hashable, Wanted] = WeakValueDictionary()

    @property
    def reply_slots(self) -> int:
        """Replies that there is memory for."""
        return sum(len(wanted.layout.slots) for wanted in self._shared.values())

    def find(self, offer: Offer, observations: tuple[Observation, ...]) -> Wanted:
        """What an agent asks for that wants these observations."""
        joining = offer.joining
        names = tuple(one.name for one in observations)
        key = (offer.pool, offer.slot, offer.lanes, joining.width, joining.height, joining.samples, names)
        self.check_size(offer, observations, "this step")
        wanted = self._shared.get(key)
        if wanted is None:
            wanted = self._shared[key] = Wanted(observations, self._lay_out(observations))
        return wanted

    def check_size(self, offer: Offer, observations: tuple[Observation, ...], what: str) -> None:
        """Refuse what would make a reply that is too large for this server, or for its client."""
        size_bytes = sum(one.data_bytes + _HEADER_BYTES for one in observations)
        server_takes, client_takes = self._limits.max_reply_bytes, offer.joining.max_reply_bytes
        fewer = "name fewer in the join setting 'observations', or take smaller pictures or fewer lanes"
        if size_bytes > server_takes:
            raise ResourceExhausted(
                f"the reply to {what} takes {size_bytes} bytes: expected {server_takes} at most; {fewer}, "
                "or raise --max-reply-bytes"
            )
        if size_bytes > client_takes:
            raise ResourceExhausted(
                f"the reply to {what} takes {size_bytes} bytes: expected {client_takes} at most, as its client takes "
                f"no more; {fewer}, or raise grpc.max_receive_message_length of its channel and say so in the join "
                "setting 'max_reply_bytes'"
            )


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
    specs = [*every_world(family), *family.observations]
    found = [
        Observation(uid, spec.name, spec.dtype, (*lead, *spec.shape), spec.minimum, spec.maximum)
        for uid, spec in enumerate(specs, start=1)
    ]
    for camera in family.cameras:
        for number, output in enumerate(OUTPUTS):
            dtype, shape, most = pictures[output]
            name = f"{camera.name}.{output}"
            found.append(Observation(len(found) + 1, name, dtype, (*lead, *shape), 0, most, camera.name, number))
    if joining.shm:
        pictures_found = [one for one in found if one.camera is not None]
        for uid, one in enumerate(pictures_found, start=len(found) + 1):
            name = f"{one.name}{SHARED}"
            found.append(Observation(uid, name, "int64", (*lead, 3), 0, None, one.camera, one.output, one.name))
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
