"""The lanes of an env over several servers: the home of each, what it is owed, and its results.

A lane has one home at a time: the stream whose results are its own. A lane without a home is parked. Results are
written into arrays of all lanes, each stream's into the rows of its lanes; parked lanes are reported as truncated and
lost, as they were last observed.
"""

import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from worldloom.client.placement import Made
from worldloom.client.replies import Arrays
from worldloom.client.results import LAST, LaneResults, Observing
from worldloom.client.servers import Server
from worldloom.client.specs import Spec
from worldloom.client.step_arrays import Outputs, StepArrays
from worldloom.client.streams import LaneStream


class PlacedStream(LaneStream):
    """A stream on one of several servers: a world with lanes of which some, or all, have their home there."""

    def __init__(self, number: int, made: Made, observing: Observing, results: dict[LaneStream, LaneResults]) -> None:
        super().__init__(made.world, made.lanes, observing, results)
        self.number = number
        self.server: Server = made.server
        self.shared_parts = made.shared_parts
        self.is_home = np.zeros(len(made.lanes), bool)
        """Mask of the lanes whose home this is."""
        self.is_needed = self.is_home
        self.targets: list[PlacedStream] = []
        """Streams that its lanes are handed over to."""
        self.is_return = False
        """Its first step brings back lanes that were parked."""

    @property
    def home_lanes(self) -> np.ndarray:
        """Lanes whose home this is."""
        return self.lanes[self.is_home]

    @property
    def home_count(self) -> int:
        """The number of these."""
        return int(np.count_nonzero(self.is_home))

    @property
    def is_idle(self) -> bool:
        """No step is under way, and no lane has an action."""
        return not (self.is_under_way or self.has_some_actions)

    def indices(self, lanes: np.ndarray) -> np.ndarray:
        """Return the positions of some of its lanes."""
        return np.searchsorted(self.lanes, lanes)

    def take_stacks(self, lanes: np.ndarray, source: "PlacedStream") -> None:
        """Go on with the stacked frames of lanes of another stream."""
        for name, stack in self._stacks.items():
            stack.take_over(self.indices(lanes), source._stacks[name], source.indices(lanes))


class LaneTable:
    """A row for each lane of an env."""

    def __init__(self, lanes: int, observing: Observing) -> None:
        self.home = np.full(lanes, -1)
        """The number of the stream that is the lane's home; -1 if it is parked."""
        self.is_owed = np.zeros(lanes, bool)
        """Lanes with a step under way."""
        self.is_owed_loss = np.zeros(lanes, bool)
        """Lanes with a step under way that will be reported as lost."""
        self.is_over = np.zeros(lanes, bool)
        """Lanes whose episode ended with the last result."""
        self._is_new_loss = np.zeros(lanes, bool)
        """Lanes that were lost, which was not reported yet."""
        self._reported_s = np.zeros(lanes)
        """Time of the last result."""
        self._parked: Arrays = {}
        """Last observations of lanes that were lost."""
        self._observing = observing
        self._arrays = StepArrays(observing, lanes)
        self._in_place: tuple[Arrays, Outputs] | None = None
        """Arrays of the step under way, and each stream's part of them, where its results are written at once."""

    def use_specs(self, specs: Mapping[str, Spec]) -> None:
        """Take the specs of a world, which all others have, too."""
        self._arrays.use_specs(specs)
        lanes = len(self.home)
        self._parked = {name: np.zeros((lanes, *shape), dtype) for name, (shape, dtype) in self._arrays.shapes.items()}

    @property
    def has_shared_frames(self) -> bool:
        """Servers draw into the arrays that are returned."""
        return self._arrays.is_joined

    def make_outputs(self, streams: Sequence[PlacedStream], out: Arrays | None) -> Outputs:
        """Return the arrays that the results of each stream in a step of all lanes are to be written into.

        There are none while lanes are on their way from one stream to another: then `merge` copies what is needed.
        """
        self._in_place = None
        if any(not (stream.is_home.all() and isinstance(stream.part, slice)) for stream in streams):
            self._arrays.drop_joined()
            return {}
        in_order = sorted(streams, key=lambda stream: int(stream.lanes[0]))
        if sum(len(stream.lanes) for stream in in_order) < len(self.home):  # some are parked
            self._arrays.drop_joined()
            return {}
        self._in_place = self._arrays.make_outputs(in_order, out)
        return self._in_place[1]

    def forget_outputs(self) -> None:
        """Have results of the next step merged, wherever they are."""
        self._in_place = None
        self._arrays.drop_joined()

    @property
    def is_parked(self) -> np.ndarray:
        """Mask of the lanes without a home."""
        parked: np.ndarray = self.home < 0
        return parked

    def owe(self, lanes: np.ndarray | slice) -> None:
        """Note that lanes are stepped, or reported as lost if they are parked."""
        self.is_owed[lanes] = True
        self.is_owed_loss[lanes] = self.home[lanes] < 0

    def drop_owed(self) -> None:
        """Note that nobody waits for results any more."""
        self.is_owed[:] = self.is_owed_loss[:] = False

    def park(self, stream: PlacedStream) -> None:
        """Take the home from the lanes of a stream that is lost, and keep their last observations."""
        lanes = stream.home_lanes
        for name, array in stream.observations.items():
            self._parked[name][lanes] = array[stream.is_home]
        self.home[lanes] = -1
        self._is_new_loss[lanes] = True
        self.is_owed_loss[lanes] = self.is_owed[lanes]

    def move(self, lanes: np.ndarray, target: PlacedStream, source: PlacedStream | None = None) -> None:
        """Give lanes another home."""
        if source is not None:
            source.is_home[source.indices(lanes)] = False
        target.is_home[target.indices(lanes)] = True
        self.home[lanes] = target.number

    def count_due(self, pause_s: float) -> int:
        """Count the lanes whose loss can be reported: a new one at once, the same again after a pause."""
        is_due = self._is_new_loss | (self._reported_s + pause_s <= time.monotonic())
        return int(np.count_nonzero(self.is_owed_loss & is_due))

    def last_observations(self, streams: Sequence[PlacedStream]) -> Arrays:
        """Return observations of all lanes, as they were last received."""
        arrays = {name: array.copy() for name, array in self._parked.items()}
        for stream in streams:
            for name, array in stream.observations.items():
                arrays[name][stream.home_lanes] = array[stream.is_home]
        return arrays

    def merge(
        self,
        streams: Sequence[PlacedStream],
        results: dict[LaneStream, LaneResults],
        out: Arrays | None,
    ) -> LaneResults:
        """Take the results of streams, and return them and those of parked lanes as one; in arrays of the caller's."""
        is_row = self.is_owed_loss.copy()
        for stream in streams:
            is_row[stream.home_lanes] = True
        lanes = np.flatnonzero(is_row)
        rows_of = np.cumsum(is_row) - 1
        # Memory that is shared with a server which was lost in this step is not given to the caller: it may be frozen,
        # and go on drawing when it wakes up.
        is_in_place = len(lanes) == len(is_row) and (out is not None or not self.is_owed_loss.any())
        arrays, outputs = (self._in_place if is_in_place else None) or (None, {})
        if arrays is None:
            arrays = self._arrays.make(len(lanes)) if out is None else out
        merged = LaneResults(
            lanes=lanes,
            observations=arrays,
            reward=np.zeros(len(lanes)),
            terminated=np.zeros(len(lanes), bool),
            truncated=np.zeros(len(lanes), bool),
            step_type=np.full(len(lanes), LAST, np.uint8),
            is_held=np.zeros(len(lanes), bool),
            final_rows=np.zeros(0, np.int64),
            final={},
            is_lost=np.zeros(len(lanes), bool),
        )
        finals = [self._write_stream(stream, results[stream], merged, rows_of, stream in outputs) for stream in streams]
        finals.append(self._write_lost(merged, rows_of))
        _join_finals(merged, [(rows, values) for rows, values in finals if len(rows)])
        assert merged.is_held is not None
        if not merged.is_held.any():
            merged.is_held = None
        for stream in streams:
            results.pop(stream, None)
        self.is_over[lanes] = merged.terminated | merged.truncated
        self.is_owed[lanes] = self.is_owed_loss[lanes] = self._is_new_loss[lanes] = False
        self._reported_s[lanes] = time.monotonic()
        return merged

    def _write_stream(
        self,
        stream: PlacedStream,
        part: LaneResults,
        merged: LaneResults,
        rows_of: np.ndarray,
        is_in_place: bool,
    ) -> tuple[np.ndarray, Arrays]:
        """Write the results of a stream into its rows, but for observations that are there already.

        Return the rows of final observations, and these.
        """
        home_rows = rows_of[stream.home_lanes]
        rows: Any = home_rows
        if rows[-1] - rows[0] == len(rows) - 1:  # without gaps: copied at once
            rows = slice(int(rows[0]), int(rows[-1]) + 1)
        own: Any = slice(None) if stream.is_home.all() else stream.is_home
        if not is_in_place:
            for name, array in merged.observations.items():
                array[rows] = part.observations[name][own]
        for field in ("reward", "terminated", "truncated", "step_type"):
            getattr(merged, field)[rows] = getattr(part, field)[own]
        assert merged.is_held is not None
        assert merged.is_lost is not None
        if part.is_held is not None:
            merged.is_held[rows] = part.is_held[own]
        is_return, stream.is_return = stream.is_return, False
        if is_return and self._observing.autoreset == "same_step":
            # The episode that was lost ends only now, where the next one begins.
            merged.truncated[rows] = merged.is_lost[rows] = merged.is_held[rows] = True
            merged.step_type[rows] = LAST
            return home_rows, {name: array[stream.home_lanes] for name, array in self._parked.items()}
        is_mine = stream.is_home[part.final_rows]
        where = rows_of[stream.lanes[part.final_rows[is_mine]]]
        return where, {name: array[is_mine] for name, array in part.final.items()}

    def _write_lost(self, merged: LaneResults, rows_of: np.ndarray) -> tuple[np.ndarray, Arrays]:
        """Report the lanes that are parked; return the rows of final observations, and these."""
        lost = np.flatnonzero(self.is_owed_loss)
        rows = rows_of[lost]
        if not len(lost):
            return rows, {}
        assert merged.is_held is not None
        assert merged.is_lost is not None
        merged.truncated[rows] = merged.is_lost[rows] = True
        merged.is_held[rows] = ~self._is_new_loss[lost] | self.is_over[lost]
        for name, array in merged.observations.items():
            array[rows] = self._parked[name][lost]
        if self._observing.autoreset != "same_step":
            return rows[:0], {}
        return rows, {name: array[lost] for name, array in self._parked.items()}


def _join_finals(merged: LaneResults, finals: Sequence[tuple[np.ndarray, Arrays]]) -> None:
    """Set the final observations, in the order of their rows."""
    if finals:
        rows = np.concatenate([rows for rows, _ in finals])
        order = np.argsort(rows)
        merged.final_rows = rows[order]
        names = finals[0][1]
        merged.final = {name: np.concatenate([values[name] for _, values in finals])[order] for name in names}
