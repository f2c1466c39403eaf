"""Lanes over one or several streams: each stream is a world of its own, with a part of the lanes.

All lanes of a stream step together, as soon as all have an action. Results of streams that are ready are merged. Which
lanes a stream has makes no difference to them: they have the numbers that they would have in one world.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from worldloom.client.arguments import FINAL_LANES, Autoreset
from worldloom.client.errors import ClientError, LostConnection
from worldloom.client.frames import Channels, FrameStack, arrange_channels
from worldloom.client.replies import Arrays
from worldloom.client.requests import StepWriter
from worldloom.client.vector_world import VectorWorld, is_frame

_FIRST, _LAST = 0, 2
"""The step_type of an episode's first state and of its last."""
_FINAL_SUFFIX = "@final"
_OF_LAST_STEP = frozenset({"reward", "discount", "step_type"})
"""Observations that are of the last step even where the next episode has begun."""


@dataclass(frozen=True)
class Observing:
    """Observations of an env, and how frames and ends of episodes come."""

    names: tuple[str, ...]
    rendered_name: str | None
    """The frames that `render` shows."""
    channels: Channels | None
    frame_stack: int
    autoreset: Autoreset

    @property
    def requested(self) -> tuple[str, ...]:
        """Names to ask the server for."""
        names = self.names if self.rendered_name is None else (*self.names, self.rendered_name)
        if self.autoreset != "same_step":
            return names
        return *names, FINAL_LANES, *(f"{name}{_FINAL_SUFFIX}" for name in self.names if name not in _OF_LAST_STEP)


@dataclass
class LaneResults:
    """Results of a step in some lanes."""

    lanes: np.ndarray
    """Their indices in the env."""
    observations: Arrays
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    is_first: np.ndarray
    """Lanes whose episode began with this step, which ignored their actions."""
    is_held: np.ndarray | None
    """Lanes whose episode had ended before, and which wait to be reset; None if there are none."""
    final_rows: np.ndarray
    """Rows in these results whose episode ended and whose next one has begun."""
    final: Arrays
    """The last observations of these, in the same order."""

    @cached_property
    def has_ended(self) -> np.ndarray:
        """Mask of lanes whose episode ended with this step."""
        is_last: np.ndarray = self.terminated | self.truncated
        return is_last if self.is_held is None else is_last & ~self.is_held


class LaneStream:
    """One stream: a world, its lanes, the frames that are stacked, and the step that is under way."""

    def __init__(self, world: VectorWorld, first: int, count: int, observing: Observing) -> None:
        self.world = world
        self.part = slice(first, first + count)
        self.lanes = np.arange(first, first + count)
        self.is_under_way = False
        self.has_action = np.zeros(count, bool)
        """Lanes that have an action for the next step, while others have none."""
        self.has_some_actions = False
        self.rendered_frames: np.ndarray | None = None
        """The frames of the last step or reset, for `render`."""
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
        self._was_last = np.zeros(count, bool)
        """Lanes whose episode had ended when the stream was last received."""
        self._result: LaneResults | None = None
        """The result of the step under way, if it has been received."""

    @property
    def has_shared_frames(self) -> bool:
        """Frames are returned as they are in shared memory."""
        return self.world.transport == "shm" and not self._stacks

    @property
    def is_ready(self) -> bool:
        """The result of the step under way can be taken without waiting."""
        return self._result is not None or self.world.connection.has_reply

    def send_reset(self, settings: Mapping[str, Any], mask: np.ndarray | None) -> None:
        """Reset lanes; `settings` are those of ResetWorld without the mask. What is under way is dropped."""
        if mask is not None:
            settings = {**settings, "reset_mask": mask}
        self.is_under_way = False
        self._result = None
        self._drop_actions()
        self.world.send_reset(settings)
        self._is_reset, self._reset_mask = True, mask
        self.is_under_way = True

    def put(self, actions: Mapping[str, np.ndarray], rows: np.ndarray | slice, lanes: np.ndarray | slice) -> None:
        """Take actions from rows of arrays for some lanes of this stream; step if now all lanes have one."""
        if isinstance(lanes, slice):  # all of them
            self._send({name: array[rows] for name, array in actions.items()})
            return
        for name, array in actions.items():
            if name not in self._actions:
                self._actions[name] = np.zeros((len(self.lanes), *array.shape[1:]), array.dtype)
            self._actions[name][lanes] = array[rows]
        self.has_action[lanes] = self.has_some_actions = True
        if self.has_action.all():
            self._send(self._actions)
            self._drop_actions()

    def receive(self) -> None:
        """Wait for the result of the step under way, and keep it."""
        if self._result is not None:
            return
        try:
            self._result = self._read(self.world.receive())
        except ClientError:
            self.is_under_way = False
            raise  # KeyboardInterrupt is none: then the result can still be received

    def take(self) -> LaneResults:
        """Return the result that was received."""
        result, self._result = self._result, None
        assert result is not None
        self.is_under_way = False
        return result

    def _send(self, actions: Mapping[str, np.ndarray]) -> None:
        self.world.send_valid(actions)
        self._is_reset = False
        self.is_under_way = True

    def _drop_actions(self) -> None:
        self.has_action[:] = self.has_some_actions = False

    def _read(self, found: Arrays) -> LaneResults:
        observing = self._observing
        is_last = found["step_type"] == _LAST
        is_first = found["step_type"] == _FIRST
        terminated = is_last & (found["discount"] == 0.0)
        is_held = self._was_last if observing.autoreset == "disabled" and not self._is_reset else None
        self._was_last = is_last
        final_rows = found.get(FINAL_LANES, _NONE)
        final = {name: self._read_final(name, found, final_rows) for name in observing.names} if len(final_rows) else {}
        if observing.rendered_name is not None:
            self.rendered_frames = found[observing.rendered_name]
        began = is_first
        if len(final_rows):
            began = is_first.copy()
            began[final_rows] = True
        return LaneResults(
            lanes=self.lanes,
            observations={name: self._arrange(name, found[name], began, is_held) for name in observing.names},
            reward=found["reward"].astype(np.float64),
            terminated=terminated,
            truncated=is_last & ~terminated,
            is_first=is_first,
            is_held=is_held,
            final_rows=final_rows,
            final=final,
        )

    def _arrange(self, name: str, array: np.ndarray, began: np.ndarray, is_held: np.ndarray | None) -> np.ndarray:
        if name in self._stacks:
            stack = self._stacks[name]
            return stack.begin(array, self._reset_mask) if self._is_reset else stack.push(array, began, is_held)
        return arrange_channels(array, self._observing.channels) if is_frame(name) else array

    def _read_final(self, name: str, found: Arrays, rows: np.ndarray) -> np.ndarray:
        if name in _OF_LAST_STEP:
            of_last_step: np.ndarray = found[name][rows]
            return of_last_step
        array = found[f"{name}{_FINAL_SUFFIX}"]
        if name in self._stacks:
            return self._stacks[name].stack_final(array, rows)
        return arrange_channels(array, self._observing.channels) if is_frame(name) else array


_NONE = np.zeros(0, np.int64)


class LaneStreams:
    """All streams of an env."""

    def __init__(
        self,
        create_world: Callable[[Mapping[str, Any], VectorWorld | None], VectorWorld],
        observing: Observing,
        *,
        lanes: int,
        streams: int,
        first_lane: int | list[int],
        seed: int | list[int] | None,
        clip_actions: bool,
    ) -> None:
        """Create a world for each stream, by a function of the settings about its lanes and of a sibling."""
        self._streams: list[LaneStream] = []
        self._lost: LostConnection | None = None
        """The loss of a stream, after which nothing but a new connection helps."""
        self._writers: dict[int, StepWriter] = {}
        self._clip_actions = clip_actions
        try:
            for number in range(streams):
                first, end = lanes * number // streams, lanes * (number + 1) // streams
                settings: dict[str, Any] = {"lanes": end - first}
                if isinstance(first_lane, list):
                    settings["first_lane"] = np.array(first_lane[first:end], np.uint64)
                elif first_lane + first:
                    settings["first_lane"] = first_lane + first
                if seed is not None:
                    settings["seed"] = np.array(seed[first:end], np.uint64) if isinstance(seed, list) else seed
                world = create_world(settings, self.first_world if self._streams else None)
                self._streams.append(LaneStream(world, first, end - first, observing))
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

    def reset(self, seeds: int | list[int | None] | None, mask: np.ndarray | None) -> None:
        """Reset lanes and ask for their first observations. Seeds and mask are of all lanes."""
        self._check_connected()
        for stream in self._streams:
            settings = _seed_settings(seeds if seeds is None or isinstance(seeds, int) else seeds[stream.part])
            stream.send_reset(settings, None if mask is None else mask[stream.part])

    def check_idle(self, lanes: np.ndarray | None, what: str = "a step") -> None:
        """Raise ClientError if one of these lanes, or of all, is under way or has an action already."""
        self._check_connected()
        for stream in self._streams:
            if not (stream.is_under_way or stream.has_some_actions):
                continue
            mine = stream.lanes if lanes is None else lanes[_is_in(lanes, stream.part)]
            if len(mine) and stream.is_under_way:
                raise ClientError(f"{what} of lane {mine[0]} while another is under way: expected env.recv() first")
            twice = mine[stream.has_action[mine - stream.part.start]]
            if len(twice):
                raise ClientError(
                    f"an action for lane {twice[0]}, which has one: expected those of its neighbours first"
                )

    def writer(self, lanes: int) -> StepWriter:
        """Return the encoder of actions of so many lanes."""
        if lanes not in self._writers:
            specs = {name: spec.with_lanes(lanes) for name, spec in self.first_world.actions.items()}
            self._writers[lanes] = StepWriter(specs, self._clip_actions)
        return self._writers[lanes]

    def send(self, actions: Mapping[str, np.ndarray], lanes: np.ndarray | None) -> None:
        """Give actions, which are valid, to these lanes, or to all; step the streams whose lanes all have one."""
        for stream in self._streams:
            if lanes is None:
                stream.put(actions, stream.part, slice(None))
                continue
            rows = np.flatnonzero(_is_in(lanes, stream.part))
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
        return _merge([stream.take() for stream in chosen])

    def close(self) -> None:
        """Destroy all worlds. Closing twice does nothing."""
        for stream in self._streams:
            stream.rendered_frames = None
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


def _is_in(lanes: np.ndarray, part: slice) -> np.ndarray:
    found: np.ndarray = (lanes >= part.start) & (lanes < part.stop)
    return found


def _seed_settings(seeds: int | list[int | None] | None) -> dict[str, Any]:
    """Return the settings of ResetWorld for a seed, or for one or None for each lane."""
    if seeds is None or isinstance(seeds, int):
        return {} if seeds is None else {"seed": seeds}
    has_seed = np.array([seed is not None for seed in seeds])
    if not has_seed.any():
        return {}
    return {"seed": np.array([seed or 0 for seed in seeds], np.uint64), "seed_mask": has_seed}


def _merge(results: list[LaneResults]) -> LaneResults:
    if len(results) == 1:
        return results[0]
    starts = np.cumsum([0, *(len(part.lanes) for part in results[:-1])])
    with_final = [part.final for part in results if len(part.final_rows)]
    return LaneResults(
        lanes=np.concatenate([part.lanes for part in results]),
        observations=_join([part.observations for part in results]),
        reward=np.concatenate([part.reward for part in results]),
        terminated=np.concatenate([part.terminated for part in results]),
        truncated=np.concatenate([part.truncated for part in results]),
        is_first=np.concatenate([part.is_first for part in results]),
        is_held=_merge_held(results),
        final_rows=np.concatenate([part.final_rows + start for part, start in zip(results, starts, strict=True)]),
        final=_join(with_final) if with_final else {},
    )


def _merge_held(results: list[LaneResults]) -> np.ndarray | None:
    if all(part.is_held is None for part in results):
        return None
    return np.concatenate(
        [np.zeros(len(part.lanes), bool) if part.is_held is None else part.is_held for part in results]
    )


def _join(parts: Sequence[Arrays]) -> Arrays:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
