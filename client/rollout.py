"""Rollouts: memory for many steps of all lanes, which a learner trains on without a copy.

Frames are drawn straight into it: by an engine in this process, or over shared memory by a server on this machine. A
rollout has one more set of observations than steps, since step k leads from observation k to observation k + 1.
"""

import itertools
import math
import mmap
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np

from worldloom.client.distributed import Lanes
from worldloom.client.errors import ClientError
from worldloom.client.frames import arrange_channels
from worldloom.client.replies import Arrays
from worldloom.client.results import LaneResults, Observing
from worldloom.client.spaces import LaneSpaces
from worldloom.client.streams import StreamOutput
from worldloom.client.vector_world import is_frame

MAX_ROLLOUT_STEPS = 2**16 - 1
"""Most steps of a rollout. Memory is often a lower limit."""


class Rollout:
    """Observations, actions and outcomes of `steps` steps of all lanes, as arrays [steps, num_envs, ...].

    `VectorEnv.rollout` makes one. Steps are taken with `env.step(actions, out=rollout)`, which returns parts of these
    arrays; the step after the last begins anew, over what is there. It begins with the observations of the env's last
    step or reset, as they are then. `torch.from_numpy` makes tensors of the arrays without a copy.
    """

    def __init__(
        self,
        streams: Lanes,
        observing: Observing,
        spaces: LaneSpaces,
        steps: int,
        last_observations: Callable[[], Mapping[str, np.ndarray]],
    ) -> None:
        """Allocate the memory for a number of steps. `last_observations` returns those of the last step or reset."""
        self.steps = steps
        self._streams = streams
        self._spaces = spaces
        self._last_observations = last_observations
        lanes = streams.lanes
        shared = streams.allocate_frames(steps + 1)
        self.is_shared = bool(shared)
        """Frames are in memory that is shared with a server."""
        self._arrays: Arrays = {}
        for name, space in spaces.observations.items():
            shape = (steps + 1, lanes, *_shape(space))
            if name in shared:
                self._arrays[name] = arrange_channels(shared[name], observing.channels, leading=2)
            elif is_frame(name) and observing.frame_stack == 1 and observing.channels == "first":
                # Drawn with the channels last, and seen with the channels first.
                self._arrays[name] = np.moveaxis(_page_aligned((*shape[:2], *shape[3:], shape[2]), space.dtype), -1, 2)
            else:
                self._arrays[name] = _page_aligned(shape, space.dtype)
        self._sets = [{name: array[k] for name, array in self._arrays.items()} for k in range(steps + 1)]
        self._outputs = [streams.make_outputs(one, k if shared else None) for k, one in enumerate(self._sets)]
        self._actions = {
            name: np.zeros((steps, lanes, *_shape(space)), space.dtype) for name, space in spaces.actions.items()
        }
        self.rewards = np.zeros((steps, lanes))
        self.terminated = np.zeros((steps, lanes), bool)
        self.truncated = np.zeros((steps, lanes), bool)
        self.is_first = np.zeros((steps, lanes), bool)
        """Lanes whose episode began with the step, which ignored their actions: not transitions to learn from. The mode
        `next_step` has such steps; `disabled` after a reset of some lanes."""
        self.infos: list[dict[str, Any]] = []
        """The info of each step."""
        self.position = 0
        """Number of steps that were taken, from 0 to `steps`."""
        self._taken = 0
        """Steps that were taken since it was made."""

    def __len__(self) -> int:
        return self.steps

    def __iter__(self) -> Iterator[Any]:
        """Begin anew, and yield the observations to act on, once for each step."""
        self.position = 0
        for step in range(self.steps):
            self._begin_step()
            before = self._taken
            yield self.current_observations
            if self._taken != before + 1:
                raise ClientError(
                    f"{self._taken - before} steps were taken in turn {step} of a loop over a rollout: expected "
                    "env.step(actions, out=rollout) once in each turn"
                )

    @property
    def observations(self) -> Any:
        """Observations that the actions were chosen by: a dict of arrays by name, or one array if the env is flat."""
        return self._spaces.select({name: array[: self.steps] for name, array in self._arrays.items()})

    @property
    def last_observations(self) -> Any:
        """Observations after the last step, [num_envs, ...], in the same form."""
        return self._spaces.select(self._sets[self.steps])

    @property
    def current_observations(self) -> Any:
        """The observations after the steps that were taken, [num_envs, ...], in the same form."""
        return self._spaces.select(self._sets[self.position])

    @property
    def actions(self) -> Any:
        """Actions: a dict of arrays by name, or one array if the env is flat."""
        return self._spaces.select(self._actions)

    def begin(self) -> Any:
        """Return the observations to act on, [num_envs, ...], at the place where the next step begins.

        After the last step that is the first place. `env.step` does the same; this is for the observations alone.
        """
        self._begin_step()
        return self.current_observations

    def begin_step(self, streams: Lanes) -> Sequence[StreamOutput]:
        """Return the memory for the observations of the next step. `VectorEnv.step` calls this."""
        if streams is not self._streams:
            raise ClientError("out is a rollout of another env or connection: expected one of this env.rollout(...)")
        self._begin_step()
        return self._outputs[self.position + 1]

    def end_step(self, actions: Any, results: LaneResults, info: dict[str, Any]) -> LaneResults:
        """Keep the rest of a step, and return its results with arrays of this memory. `VectorEnv.step` calls this."""
        step = self.position
        for name, array in self._actions.items():
            array[step] = actions[name] if name else actions
        self.rewards[step], self.is_first[step] = results.reward, results.is_first
        self.terminated[step], self.truncated[step] = results.terminated, results.truncated
        self.infos.append(info)
        self.position += 1
        self._taken += 1
        results.observations = dict(self._sets[self.position])
        results.reward, results.terminated = self.rewards[step], self.terminated[step]
        results.truncated = self.truncated[step]
        return results

    def _begin_step(self) -> None:
        """Have the observations of the last step or reset where the next step begins."""
        if self.position == self.steps:
            self.position = 0
        del self.infos[self.position :]
        here, last = self._sets[self.position], self._last_observations()
        for name, array in here.items():
            if last[name] is not array:  # as it is if the last step was not the one before in this rollout
                np.copyto(array, last[name])


def _page_aligned(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Return zeros that begin at a page, so that the system can write them to a disk without a copy."""
    memory = mmap.mmap(-1, max(1, math.prod(shape) * np.dtype(dtype).itemsize))
    if hasattr(mmap, "MADV_HUGEPAGE"):
        memory.madvise(mmap.MADV_HUGEPAGE)  # the first pass through it takes half the time
    return np.frombuffer(memory, dtype, math.prod(shape)).reshape(shape)


def _shape(space: gymnasium.Space[Any]) -> tuple[int, ...]:
    assert space.shape is not None, "spaces of worldloom are of one array each"
    return space.shape


def parse_out(out: Any, spaces: LaneSpaces, lanes: int) -> Arrays:
    """Return arrays by name that observations are to be written into; ValueError if they cannot be."""
    names = tuple(spaces.observations)
    given = {names[0]: out} if spaces.is_flat else out
    if not isinstance(given, Mapping) or given.keys() != spaces.observations.keys():
        kind = ", ".join(map(repr, given)) if isinstance(given, Mapping) else type(given).__name__
        raise ValueError(f"out is {kind}: expected arrays for {', '.join(map(repr, names))}, or a rollout of this env")
    for name, space in spaces.observations.items():
        array, shape = given[name], (lanes, *_shape(space))
        expected = f"a NumPy array {space.dtype} {list(shape)}, as it is observed"
        if not isinstance(array, np.ndarray):
            raise ValueError(f"out for {name!r} is {type(array).__name__}: expected {expected}")
        if array.shape != shape or array.dtype != space.dtype:
            raise ValueError(f"out for {name!r} is {array.dtype} {list(array.shape)}: expected {expected}")
        if not array.flags.writeable:
            raise ValueError(f"out for {name!r} is read-only: expected {expected}")
        if _overlaps_itself(array):
            raise ValueError(f"out for {name!r} has elements that share memory: expected {expected}")
    for first, second in itertools.combinations(names, 2):
        if np.shares_memory(given[first], given[second]):
            raise ValueError(
                f"out for {first!r} and for {second!r} share memory: expected an array of its own for each"
            )
    return {name: given[name] for name in names}


def _overlaps_itself(array: np.ndarray) -> bool:
    """Return whether elements of an array share memory, or may do so by an unusual order of its strides."""
    end = array.itemsize
    for stride, size in sorted((abs(stride), size) for stride, size in zip(array.strides, array.shape, strict=True)):
        if size > 1:
            if stride < end:
                return True
            end += stride * (size - 1)
    return False
