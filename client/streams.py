"""Lanes over one or several streams: each stream is a world of its own, with a part of the lanes.

All lanes of a stream step together, as soon as all have an action. Results of streams that are ready are merged. Which
lanes a stream has makes no difference to them: they have the numbers that they would have in one world.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from worldloom.client.arguments import FINAL_LANES, is_in, is_range
from worldloom.client.errors import ClientError, LostConnection
from worldloom.client.frames import FrameStack, arrange_channels, restore_channels
from worldloom.client.replies import Arrays
from worldloom.client.requests import Seeds, StepWriter, reset_settings, variation_settings
from worldloom.client.results import FINAL_SUFFIX, FIRST, LAST, OF_LAST_STEP, LaneResults, Observing, merge_results
from worldloom.client.shared_memory import SharedPart
from worldloom.client.vector_world import StepTarget, VectorWorld, is_frame


class StreamOutput(NamedTuple):
    """Arrays of a caller's for the observations of one stream's step."""

    arrays: Arrays
    """By name, arranged and stacked as the caller gets them."""
    target: StepTarget
    """The arrays among these that the step is drawn into."""


class LaneStream:
    """One stream: a world, its lanes, the frames that are stacked, and the step that is under way."""

    def __init__(
        self,
        world: VectorWorld,
        lanes: np.ndarray,
        observing: Observing,
        results: "dict[LaneStream, LaneResults]",
    ) -> None:
        """Take a world for lanes of an env, given by their indices in ascending order.

        `results` are those of all streams of the env that were received and not taken.
        """
        count = len(lanes)
        self.world = world
        self.lanes = lanes
        self.part: Any = slice(int(lanes[0]), int(lanes[0]) + count) if is_range(lanes) else lanes
        """The rows of these lanes in arrays of all lanes: a slice, or their indices."""
        self.has_action = np.zeros(count, bool)
        """Lanes that have an action for the next step, while others have none."""
        self.is_needed: np.ndarray | None = None
        """Mask of the lanes whose actions a step waits for; None: all."""
        self.shared_parts: dict[str, SharedPart] | None = None
        """Its frames in shared memory, if they may become parts of arrays of all lanes."""
        self.has_some_actions = False
        self.rendered_frames: np.ndarray | None = None
        """The frames of the last step or reset, for `render`."""
        self.observations: Arrays = {}
        """Observations of the last step or reset."""
        self._actions: dict[str, np.ndarray] = {}
        """These actions, in arrays of all lanes."""
        self._observing = observing
        self._stacks: dict[str, FrameStack] = {}
        if observing.frame_stack > 1:
            assert observing.channels is not None
            frames = filter(is_frame, observing.names)
            self._stacks = {name: FrameStack(observing.frame_stack, observing.channels) for name in frames}
        self._is_reset = False
        """The step under way is the first after a reset."""
        self._reset_mask: np.ndarray | None = None
        """Lanes that the reset was for; None: all."""
        self._output: StreamOutput | None = None
        """Arrays for the step under way, if the caller gave some."""
        self._has_ended = (-1, np.zeros(count, bool), np.zeros(count, bool))
        """The number of the last step, and lanes whose episode had ended before and after it; for `disabled`."""
        self._results = results

    @property
    def has_shared_frames(self) -> bool:
        """Frames are returned as they are in shared memory."""
        return self.world.has_shared_memory and not self._stacks

    @property
    def is_under_way(self) -> bool:
        """A step was sent, or its result received, and the result not taken."""
        return self in self._results or self.world.is_under_way

    @property
    def is_ready(self) -> bool:
        """The result of the step under way can be taken without waiting."""
        return self in self._results or self.world.connection.has_reply

    def send_reset(self, settings: Mapping[str, Any], mask: np.ndarray | None) -> None:
        """Reset lanes; `settings` are those of ResetWorld without the mask. What is under way is dropped."""
        if mask is not None:
            settings = {**settings, "reset_mask": mask}
        self._results.pop(self, None)
        self.world.drop_step()
        self._drop_actions()
        self._output = None
        self._is_reset, self._reset_mask = True, mask
        self.world.send_reset(settings)

    def make_output(self, arrays: Arrays, ring_index: int | None) -> StreamOutput:
        """Return an output of these arrays, as the caller gets them; in shared memory if there is a ring index."""
        drawn = {}
        for name, array in arrays.items():
            spec = self.world.observations[name]
            if name in self._stacks or (ring_index is not None and not is_frame(name)):
                continue
            raw = restore_channels(array, self._observing.channels, len(spec.shape)) if is_frame(name) else array
            if raw.flags.c_contiguous:
                drawn[name] = raw
        return StreamOutput(arrays, self.world.make_target(drawn, ring_index))

    def step(self, actions: Mapping[str, np.ndarray], output: StreamOutput | None) -> None:
        """Step all lanes, with rows of arrays of all lanes of the env."""
        self._send({name: array[self.part] for name, array in actions.items()}, output)

    def put(self, actions: Mapping[str, np.ndarray], rows: np.ndarray, lanes: np.ndarray) -> None:
        """Take actions from rows of arrays for some lanes of this stream; step if now all lanes have one."""
        for name, array in actions.items():
            if name not in self._actions:  # with a valid action for lanes that need none
                self._actions[name] = np.repeat(array[rows[:1]], len(self.lanes), axis=0)
            self._actions[name][lanes] = array[rows]
        has_action = self.has_action.copy()
        has_action[lanes] = True
        if has_action.all() if self.is_needed is None else has_action[self.is_needed].all():
            self._send({name: array.copy() for name, array in self._actions.items()})
            self._drop_actions()
        else:
            self.has_action, self.has_some_actions = has_action, True

    def receive(self) -> None:
        """Wait for the result of the step under way, and keep it.

        After an interrupt this is called again: the reply is taken when its result is kept, and can be read until then.
        """
        if self.has_some_actions:  # those of the step under way: an interrupt came after it was sent
            self._drop_actions()
        try:
            if self not in self._results:
                self._results[self] = self._read(self.world.read())
        except ClientError:
            self.world.take()
            raise
        self.observations = self._results[self].observations
        self.world.take()

    def _send(self, actions: Mapping[str, np.ndarray], output: StreamOutput | None = None) -> None:
        self._output = output
        self._is_reset = False
        self.world.send_valid(actions, None if output is None else output.target)

    def _drop_actions(self) -> None:
        self.has_action[:] = self.has_some_actions = False

    def _read(self, found: Arrays) -> LaneResults:
        observing = self._observing
        step_type = found["step_type"]
        is_last = step_type == LAST
        terminated = is_last & (found["discount"] == 0.0)
        is_held = self._note_ends(is_last) if observing.autoreset == "disabled" else None
        final_rows = found.get(FINAL_LANES, _NONE)
        final = {name: self._read_final(name, found, final_rows) for name in observing.names} if len(final_rows) else {}
        if observing.rendered_name is not None:
            self.rendered_frames = found[observing.rendered_name]
        began = None
        if self._stacks:
            began = step_type == FIRST
            began[final_rows] = True
        return LaneResults(
            lanes=self.lanes,
            observations={name: self._observe(name, found[name], began, is_held) for name in observing.names},
            reward=found["reward"].astype(np.float64),
            terminated=terminated,
            truncated=is_last ^ terminated,  # those that are not terminated
            step_type=step_type,
            is_held=is_held,
            final_rows=final_rows,
            final=final,
        )

    def _note_ends(self, is_last: np.ndarray) -> np.ndarray | None:
        """Note lanes whose episode has ended, and return those where it had before; None after a reset."""
        number, before, now = self._has_ended
        if number != self.world.step_number:  # or else it is read again
            self._has_ended = (self.world.step_number, now, is_last)
            before = now
        return None if self._is_reset else before

    def _observe(
        self, name: str, array: np.ndarray, began: np.ndarray | None, is_held: np.ndarray | None
    ) -> np.ndarray:
        arranged = self._arrange(name, array, began, is_held)
        if self._output is None:
            return arranged
        wanted = self._output.arrays[name]
        if array is not self._output.target.arrays.get(name):  # it could not be drawn there
            np.copyto(wanted, arranged)
        return wanted

    def _arrange(
        self, name: str, array: np.ndarray, began: np.ndarray | None, is_held: np.ndarray | None
    ) -> np.ndarray:
        if name in self._stacks:
            stack = self._stacks[name]
            if self._is_reset:
                return stack.begin(array, self._reset_mask)
            assert began is not None, "it is known where frames are stacked"
            return stack.push(array, began, is_held, self.world.step_number)
        return arrange_channels(array, self._observing.channels) if is_frame(name) else array

    def _read_final(self, name: str, found: Arrays, rows: np.ndarray) -> np.ndarray:
        if name in OF_LAST_STEP:
            of_last_step: np.ndarray = found[name][rows]
            return of_last_step
        array = found[f"{name}{FINAL_SUFFIX}"]
        if name in self._stacks:
            return self._stacks[name].stack_final(array, rows, self.world.step_number)
        return arrange_channels(array, self._observing.channels) if is_frame(name) else array


_NONE = np.zeros(0, np.int64)


class LaneStreams:
    """All streams of an env."""

    def __init__(
        self,
        create_world: Callable[..., VectorWorld],
        world_settings: Mapping[str, Any],
        observing: Observing,
        *,
        lanes: int,
        streams: int,
        first_lane: int | list[int],
        seed: int | list[int] | None,
    ) -> None:
        """Create a world for each stream, by a function with arguments of `create_vector_world`."""
        self.lanes = lanes
        self._streams: list[LaneStream] = []
        self._results: dict[LaneStream, LaneResults] = {}
        """Results of streams that were received and not taken."""
        self._lost: LostConnection | None = None
        """The loss of a stream, after which nothing but a new connection helps."""
        try:
            for number in range(streams):
                first, end = lanes * number // streams, lanes * (number + 1) // streams
                settings = variation_settings(world_settings.get("variation"), slice(first, end))
                settings["lanes"] = end - first
                if isinstance(first_lane, list):
                    settings["first_lane"] = np.array(first_lane[first:end], np.uint64)
                elif first_lane + first:
                    settings["first_lane"] = first_lane + first
                if seed is not None:
                    settings["seed"] = np.array(seed[first:end], np.uint64) if isinstance(seed, list) else seed
                sibling = self.first_world if self._streams else None
                world = create_world(world_settings={**world_settings, **settings}, sibling=sibling)
                self._streams.append(LaneStream(world, np.arange(first, end), observing, self._results))
        except BaseException:
            self.close()
            raise

    @property
    def first_world(self) -> VectorWorld:
        """The world of the first stream. Others differ in their lanes alone."""
        return self._streams[0].world

    @property
    def first_lanes(self) -> int:
        """The number of its lanes."""
        return len(self._streams[0].lanes)

    @property
    def has_shared_frames(self) -> bool:
        """Frames are returned where the server wrote them, in shared memory: not stacked, nor joined with others."""
        return len(self._streams) == 1 and self._streams[0].has_shared_frames

    @property
    def unshared_steps(self) -> int:
        """Steps of all streams whose frames came in the replies because no shared memory was free."""
        return sum(stream.world.unshared_steps for stream in self._streams)

    @property
    def rendered_frames(self) -> np.ndarray | None:
        """The frames of all lanes to render, as they were last received; None if there are none yet."""
        frames = [stream.rendered_frames for stream in self._streams]
        known = [part for part in frames if part is not None]
        if len(known) < len(frames):
            return None
        return known[0] if len(known) == 1 else np.concatenate(known)

    @property
    def last_observations(self) -> Arrays:
        """Observations of all lanes, as they were last received."""
        parts = [stream.observations for stream in self._streams]
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    def reset(self, seeds: Seeds, mask: np.ndarray | None, variation: int | np.ndarray | None = None) -> None:
        """Reset lanes and ask for their first observations. Seeds, mask and variations are of all lanes."""
        self._check_connected()
        for stream in self._streams:
            settings = reset_settings(seeds, variation, stream.part)
            stream.send_reset(settings, None if mask is None else mask[stream.part])

    def check_idle(self, lanes: np.ndarray | None, what: str = "a step") -> None:
        """Raise ClientError if one of these lanes, or of all, is under way or has an action already."""
        self._check_connected()
        for stream in self._streams:
            if not (stream.is_under_way or stream.has_some_actions):
                continue
            mine = stream.lanes if lanes is None else lanes[is_in(lanes, stream.part)]
            if len(mine) and stream.is_under_way:
                raise ClientError(f"{what} of lane {mine[0]} while another is under way: expected env.recv() first")
            twice = mine[stream.has_action[mine - stream.part.start]]
            if len(twice):
                raise ClientError(
                    f"an action for lane {twice[0]}, which has one: expected those of its neighbours first"
                )

    def writer(self, lanes: int) -> StepWriter:
        """Return the encoder of actions of so many lanes."""
        return self.first_world.writer.with_lanes(lanes)

    def allocate_frames(self, sets: int) -> Arrays:
        """Return arrays [sets, lanes, ...] of frames in shared memory, not arranged; none where there can be none."""
        return self._streams[0].world.allocate_frames(sets) if self.has_shared_frames else {}

    def make_outputs(self, arrays: Arrays, ring_index: int | None = None) -> list[StreamOutput]:
        """Return outputs of arrays of all lanes, as the caller gets them; in shared memory if there is a ring index."""
        return [
            stream.make_output({name: array[stream.part] for name, array in arrays.items()}, ring_index)
            for stream in self._streams
        ]

    def read_by_lane(self, key: str) -> np.ndarray:
        """Return a property that has a value for each lane, of all lanes."""
        return np.concatenate([stream.world.read_property(key) for stream in self._streams])

    def step(self, actions: Mapping[str, np.ndarray], outputs: Sequence[StreamOutput] | None = None) -> None:
        """Step all lanes with valid actions. The arrays must not be changed until the results were received."""
        for number, stream in enumerate(self._streams):
            stream.step(actions, None if outputs is None else outputs[number])

    def step_unobserved(self, actions: Mapping[str, np.ndarray]) -> None:
        """Step all lanes with valid actions, without observations."""
        for stream in self._streams:
            stream.world.step_unobserved({name: array[stream.part] for name, array in actions.items()})

    def send(self, actions: Mapping[str, np.ndarray], lanes: np.ndarray) -> None:
        """Give actions, which are valid, to these lanes; step the streams whose lanes all have one."""
        for stream in self._streams:
            rows = np.flatnonzero(is_in(lanes, stream.part))
            if len(rows):
                stream.put(actions, rows, lanes[rows] - stream.part.start)

    def receive(self, min_lanes: int | None = None) -> LaneResults:
        """Wait for the results of streams that are under way: for all, or for some with so many lanes at least."""
        self._check_connected()
        try:
            return self._receive(min_lanes)
        except LostConnection as error:
            self._lost = error
            raise

    def _receive(self, min_lanes: int | None) -> LaneResults:
        chosen = [stream for stream in self._streams if stream.is_under_way]
        if not chosen:
            raise ClientError("nothing to receive: expected env.send(actions) first")
        if min_lanes is not None:
            self._wait(chosen, min_lanes)
            chosen = [stream for stream in chosen if stream.is_ready]
        for stream in chosen:
            stream.receive()
        merged = merge_results([self._results[stream] for stream in chosen])
        self._results.clear()  # all are taken at once
        return merged

    def close(self) -> None:
        """Destroy all worlds. Closing twice does nothing."""
        for stream in self._streams:
            stream.rendered_frames, stream.observations = None, {}
            stream.world.close()

    def _check_connected(self) -> None:
        if self._lost is not None:
            raise LostConnection(str(self._lost))

    def _wait(self, streams: Sequence[LaneStream], min_lanes: int) -> None:
        available = sum(len(stream.lanes) for stream in streams)
        if min_lanes > available:
            raise ClientError(f"min_lanes is {min_lanes} with {available} lanes under way: expected no more than these")
        pending = next((stream for stream in streams if not stream.is_ready), None)
        if pending is not None:
            pending.world.connection.wait_until(
                lambda: sum(len(stream.lanes) for stream in streams if stream.is_ready) >= min_lanes
            )
