"""Observations of actors: the form that the engine paints them in, what changed since the last, and who shares which.

    Observation { observations: { name: Tensor { payload { array }, shape }, … } }

An ObservationDelta lies on the wire as an Observation does, and an entry of a map is a run of bytes. So a delta is put
together from runs of the new observation, and merging it into the last one gives the new one: entries of a map that
come later win.
"""

from collections.abc import Sequence
from typing import NamedTuple

from worldloom.protos.worldloom import trials_pb2
from worldloom.server.engine.layout import Layout, Place
from worldloom.server.engine.offer import DTYPES_AS_IN_MEMORY, Observation, Wanted
from worldloom.server.env_rpc.fields import field
from worldloom.server.env_rpc.templates import entry_head

_OBSERVATIONS = trials_pb2.Observation.DESCRIPTOR.fields_by_name["observations"].number
_KEY = 1


def observation_layout(observations: tuple[Observation, ...]) -> Layout:
    """The form of an Observation with these, in this order. It does not tell the state."""
    pieces, places, end = {}, [], 0
    for one in observations:
        name = one.name.encode()
        head = entry_head(_OBSERVATIONS, field(_KEY, len(name)) + name, one)
        pieces[end] = head
        places.append(Place(end + len(head), one.dtype not in DTYPES_AS_IN_MEMORY))
        end += len(head) + one.data_bytes
    return Layout(end, pieces, None, tuple(places))


class Seen(NamedTuple):
    """The content of an ObservationData."""

    content: bytes
    is_snapshot: bool


class Memory:
    """What an actor saw last, for one who takes deltas."""

    def __init__(self, wanted: Wanted) -> None:
        ends = [
            place.start + one.data_bytes for one, place in zip(wanted.observations, wanted.layout.places, strict=True)
        ]
        self._entries = [slice(start, end) for start, end in zip([0, *ends], ends, strict=False)]
        self._last: bytes | None = None

    def forget(self) -> None:
        """It is not sure to have seen it: the next is a snapshot."""
        self._last = None

    def see(self, snapshot: bytes, as_snapshot: bool) -> Seen:
        """The actor sees this next, as a delta if it can be."""
        last, self._last = self._last, snapshot
        if as_snapshot or last is None:
            return Seen(snapshot, is_snapshot=True)
        changed = (snapshot[entry] for entry in self._entries if snapshot[entry] != last[entry])
        return Seen(b"".join(changed), is_snapshot=False)


def share(seen: Sequence[Seen]) -> tuple[list[Seen], list[int]]:
    """Each once, and for each actor which it is."""
    # Contents are not put into a set: bytes remember their hash, and the engine writes these bytes anew.
    distinct: list[Seen] = []
    places = []
    for one in seen:
        if one not in distinct:
            distinct.append(one)
        places.append(distinct.index(one))
    return distinct, places
