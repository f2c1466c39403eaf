"""The loop of a collection: act, step, hand complete shards to the writer; and going on with one that was stopped.

Frames are drawn into a rollout that is used as a ring of parts, each as long as a shard. While one part is drawn into,
others are encoded and written. A collection that was stopped goes on where its last complete shard ended: the recorded
actions are replayed without drawing, which brings all lanes back to their states.
"""

import errno
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from worldloom.client import BadAction, ClientError, VectorEnv
from worldloom.data.errors import DamagedDataset, DatasetError, PolicyError
from worldloom.data.files import StoredFile, checksum_of_file, replace_file
from worldloom.data.index import Index, ShardEntry
from worldloom.data.layout import Arrays, Description
from worldloom.data.policies import LoadedPolicy
from worldloom.data.shards import ShardReader
from worldloom.data.writer import ShardWriter

STATE_FILES = "policy_*.state"
_REPORT_S = 0.1
"""Time between two reports of progress."""


@dataclass(frozen=True)
class Progress:
    """State of a collection, for callbacks and progress bars."""

    rows: int
    """Rows in complete shards."""
    all_rows: int
    """Rows of the complete dataset."""
    first_rows: int
    """Rows that were complete when this run began."""
    drawn_rows: int
    """Rows that were drawn, by this run and by those before."""
    elapsed_s: float
    """Time since this run began to draw."""
    episodes: int
    """Episodes that ended in complete shards."""
    return_sum: float
    """Sum of their returns."""
    size_bytes: int
    """Bytes of complete shards."""

    @classmethod
    def of(cls, index: Index, description: Description) -> "Progress":
        """Return the progress of a collection that nobody works on, by its index."""
        sums = (index.episodes, index.return_sum, index.size_bytes)
        return cls(index.rows, description.rows, index.rows, index.rows, 0.0, *sums)

    @property
    def collected_rows(self) -> int:
        """Rows in complete shards of this run."""
        return self.rows - self.first_rows

    @property
    def frames_per_s(self) -> float:
        """Rows that this run has drawn in a second; when it ends, all of them are written."""
        return (self.drawn_rows - self.first_rows) / self.elapsed_s if self.elapsed_s > 0 else 0.0

    @property
    def mean_return(self) -> float:
        """Mean of the returns of ended episodes; not a number if there are none."""
        return self.return_sum / self.episodes if self.episodes else float("nan")

    @property
    def left_s(self) -> float:
        """Time left at this rate; infinite before the first step."""
        return (self.all_rows - self.drawn_rows) / self.frames_per_s if self.frames_per_s else float("inf")


class Step(NamedTuple):
    """A step of all lanes, for callbacks. The arrays are used again later: copy what is to be kept."""

    number: int
    observations: Mapping[str, np.ndarray]
    """Observations that the actions were chosen by."""
    actions: Mapping[str, np.ndarray]
    rewards: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    last: np.ndarray
    """Lanes whose observations are the last of an episode: their actions are ignored."""


class Stopped(DatasetError):  # noqa: N818
    """A collection that a callback has stopped."""


class Collection:
    """A run of a collection, from its last complete shard to its end."""

    def __init__(
        self,
        directory: Path,
        env: VectorEnv,
        policy: LoadedPolicy,
        description: Description,
        index: Index,
        *,
        writers: int,
        on_step: Callable[[Step], object] | None,
        on_shard: Callable[[Progress], object] | None,
        on_progress: Callable[[Progress], object] | None,
        should_stop: Callable[[], bool] | None,
    ) -> None:
        """Take what a collection needs; `index` is added to as shards become complete."""
        self._directory = directory
        self._env, self._policy, self._description, self._index = env, policy, description, index
        self._writers = writers
        self._on_step, self._on_shard, self._on_progress = on_step, on_shard, on_progress
        self._should_stop = should_stop
        seeds = np.random.SeedSequence([description.seed % 2**64, description.first_lane])
        self._generator = np.random.Generator(np.random.PCG64(seeds))
        self._episodes = EpisodeTracker(description)
        columns = [column.name for column in description.of_role("action")]
        self._actions = dict(zip(columns, policy.action_names, strict=True))
        """Column -> name of the action in the env."""
        self._is_first = np.ones(description.lanes, bool)
        """Lanes whose episode begins with the observations to act on."""
        self._statistics: dict[str, Any] = {}
        """Statistics of the episodes that ended in the shard that was drawn last."""
        self._first_rows = self._drawn_rows = index.rows
        self._began_s = self._reported_s = 0.0

    def progress(self) -> Progress:
        """Return the state of the collection."""
        elapsed_s = time.monotonic() - self._began_s if self._began_s else 0.0
        known = Progress.of(self._index, self._description)
        return replace(known, first_rows=self._first_rows, drawn_rows=self._drawn_rows, elapsed_s=elapsed_s)

    def run(self) -> None:
        """Collect all shards that are missing. Shards that are complete when something stops it stay."""
        description, first = self._description, len(self._index.shards)
        if first == description.shards:
            return
        parts = min(2 + self._writers, description.shards - first)
        writer = ShardWriter(self._directory, description, self._writers, self._note_entry)
        try:
            self._check_stop()
            self._env.reset()
            if first:
                self._resume()
            rollout = self._env.rollout(parts * description.shard_steps)
            self._began_s = time.monotonic()
            is_stored: list[Future[None] | None] = [None] * parts
            for shard in range(first, description.shards):
                part = (shard - first) % parts
                rows = self._collect_shard(shard, part, rollout, is_stored[(part + 1) % parts])
                is_stored[part] = writer.submit(self._make_entry(shard, rows), rows)
            writer.finish()
            self._report(0.0)
        except Exception as error:
            writer.stop()  # so that the error tells all that is complete
            explained = self._explain(error)
            if explained is error:
                raise
            raise explained from error
        finally:
            writer.stop()

    def _collect_shard(self, shard: int, part: int, rollout: Any, is_next_free: "Future[None] | None") -> Arrays:
        """Draw the rows of a shard into its part of the ring; return them as arrays [steps, lanes, ...] by column."""
        description = self._description
        begin, count = part * description.shard_steps, description.steps_in(shard)
        for k in range(count):
            number = shard * description.shard_steps + k
            self._check_stop()
            if k == count - 1 and is_next_free is not None:
                is_next_free.result()  # the step draws into the next part
            observations = rollout.begin()
            if number == description.steps - 1:
                break  # the last row has no action
            actions = self._act(number, observations)
            _, rewards, terminated, truncated, _ = self._step(number, actions, rollout)
            self._is_first = rollout.is_first[begin + k]
            if self._on_step is not None:
                one = Step(number, observations, actions, rewards, terminated, truncated, self._is_first)
                if self._on_step(one) is False:
                    raise Stopped(f"stopped by on_step at step {number}")
            self._drawn_rows += description.lanes
            self._report(_REPORT_S)
        if number == description.steps - 1:
            self._drawn_rows += description.lanes
        return self._make_rows(shard, rollout, slice(begin, begin + count))

    def _check_stop(self) -> None:
        if self._should_stop is not None and self._should_stop():
            raise Stopped("stopped as asked for")

    def _report(self, interval_s: float) -> None:
        if self._on_progress is not None and time.monotonic() >= self._reported_s + interval_s:
            self._reported_s = time.monotonic()
            self._on_progress(self.progress())

    def _act(self, number: int, observations: Mapping[str, np.ndarray]) -> dict[str, Any]:
        try:
            return self._policy.act(observations, self._generator, self._is_first)
        except PolicyError:
            raise
        except (Exception, SystemExit) as error:  # whatever a user's code raises but an interrupt
            raise PolicyError(
                f"the policy {self._policy.name} failed at step {number}: {type(error).__name__}: {error}"
            ) from error

    def _step(self, number: int, actions: dict[str, Any], rollout: Any) -> Any:
        try:
            return self._env.step(actions, out=rollout)
        except BadAction as error:
            raise PolicyError(
                f"the policy {self._policy.name} returned wrong actions at step {number}: {error}"
            ) from error

    def _make_rows(self, shard: int, rollout: Any, part: slice) -> Arrays:
        """Return the columns of a shard: frames where they were drawn, everything else copied."""
        description = self._description
        last = rollout.is_first[part].copy()
        outcome = {"reward": rollout.rewards[part].copy(), "terminated": rollout.terminated[part].copy()}
        outcome |= {"truncated": rollout.truncated[part].copy(), "last": last}
        if shard == description.shards - 1:
            last[-1] = True
        for name in ("reward", "terminated", "truncated"):
            outcome[name][last] = 0
        rows: Arrays = {}
        for column in description.columns:
            if column.role == "observation":
                rows[column.name] = rollout.observations[column.name][part]
            elif column.role == "action":
                rows[column.name] = rollout.actions[self._actions[column.name]][part].copy()
                rows[column.name][last] = 0
        self._statistics = self._episodes.advance(outcome)
        rows |= self._episodes.keys | outcome
        return {column.name: rows[column.name] for column in description.columns}

    def _make_entry(self, shard: int, rows: Arrays) -> ShardEntry:
        state, stored = self._policy.get_state(), None
        if state is not None:
            stored = replace_file(self._directory / f"policy_{shard:05d}.state", state)
        return ShardEntry(
            shard=shard,
            rows=rows["reward"].size,
            files=[],
            generator=dict(self._generator.bit_generator.state),
            policy_state=stored,
            **self._statistics,
        )

    def _note_entry(self, entry: ShardEntry) -> None:
        """Take note of a shard that is in the index. The writer's threads call this, one after the other."""
        self._index.shards.append(entry)
        if entry.policy_state is not None and len(self._index.shards) > 1:
            before = self._index.shards[-2].policy_state
            if before is not None:
                (self._directory / before.name).unlink(missing_ok=True)
        if self._on_shard is not None:
            self._on_shard(self.progress())

    def _resume(self) -> None:
        """Bring lanes, generator and policy to their states after the last complete shard."""
        entry = self._index.shards[-1]
        self._generator.bit_generator.state = dict(entry.generator)
        if self._policy.has_state:
            self._policy.set_state(_read_state(self._directory, entry.policy_state))
        self._env.replay(self._recorded_actions())

    def _recorded_actions(self) -> Iterator[dict[str, np.ndarray]]:
        """Yield the actions of all recorded steps, and follow the episodes in them."""
        description, reader = self._description, ShardReader(self._directory, self._description)
        names = [*self._actions, "reward", "terminated", "truncated", "last"]
        idle = self._policy.idle_actions()
        for entry in self._index.shards:
            begin = entry.shard * description.shard_steps
            steps = slice(begin, begin + description.steps_in(entry.shard))
            found = reader.read(names, slice(0, description.lanes), steps)
            rows = {name: np.ascontiguousarray(array.swapaxes(0, 1)) for name, array in found.items()}
            self._episodes.advance(rows)
            self._is_first = rows["last"][-1]
            for k in range(steps.stop - steps.start):
                self._check_stop()
                actions = {}
                for column, name in self._actions.items():
                    actions[name] = rows[column][k].copy()
                    ended = rows["last"][k]
                    actions[name][ended] = idle[name][ended]  # which is ignored, but has to be valid
                yield actions

    def _explain(self, error: Exception) -> Exception:
        """Return the error that users see: what happened, what is complete, and how to go on."""
        kept = f"{self._index.rows:,} of {self._description.rows:,} rows are complete; --resume goes on from there"
        if isinstance(error, OSError):
            return explain_os_error(error, self._directory, kept)
        if isinstance(error, PolicyError | Stopped):
            return type(error)(f"{error}; {kept}")
        if isinstance(error, ClientError):
            return DatasetError(f"{error}; {kept}")
        return error


def explain_os_error(error: OSError, directory: Path, kept: str) -> DatasetError:
    """Return the error that users see if a directory cannot be written to; `kept` says what is complete."""
    room = ", once there is room" if error.errno in (errno.ENOSPC, errno.EDQUOT) else ""
    return DatasetError(f"cannot write to {directory}: {error.strerror or error}; {kept}{room}")


class EpisodeTracker:
    """Numbers, steps and returns of the episodes under way in all lanes."""

    def __init__(self, description: Description) -> None:
        lanes = description.lanes
        self._all_lanes, self._seed = description.all_lanes, description.seed % 2**64
        self._lanes = np.arange(description.first_lane, description.first_lane + lanes, dtype=np.int64)
        self._number = np.zeros(lanes, np.int64)
        self._step = np.zeros(lanes, np.int64)
        self._return = np.zeros(lanes)
        self.keys: Arrays = {}
        """Key columns [steps, lanes] of the rows that were advanced by last."""

    def advance(self, rows: Mapping[str, np.ndarray]) -> dict[str, Any]:
        """Go on by rows [steps, lanes]; return the statistics of the episodes that ended in them."""
        last, reward = rows["last"], rows["reward"]
        has_ended = rows["terminated"] | rows["truncated"]
        steps, lanes = last.shape
        self.keys = {
            "episode": np.zeros((steps, lanes), np.int64),
            "lane": np.broadcast_to(self._lanes, (steps, lanes)).astype(np.int32),
            "step": np.zeros((steps, lanes), np.int32),
            "seed": np.full((steps, lanes), self._seed, np.uint64),
        }
        episodes, return_sum, length_sum = 0, 0.0, 0
        for k in range(steps):
            self.keys["episode"][k] = self._lanes + self._all_lanes * self._number
            self.keys["step"][k] = self._step
            self._return += reward[k]
            self._step += 1
            ended = has_ended[k]
            if ended.any():
                episodes += int(ended.sum())
                return_sum += float(self._return[ended].sum())
                length_sum += int(self._step[ended].sum())
            begins = last[k]
            if begins.any():
                self._number[begins] += 1
                self._step[begins] = 0
                self._return[begins] = 0.0
        return {"episodes": episodes, "return_sum": return_sum, "length_sum": length_sum}


def _read_state(directory: Path, stored: StoredFile | None) -> bytes:
    if stored is None:
        raise DatasetError("the policy's state was not kept: expected the policy that the collection began with")
    path = directory / stored.name
    if not path.exists() or checksum_of_file(path) != (stored.size_bytes, stored.checksum):
        raise DamagedDataset(f"{path} is missing or damaged: expected the state of the policy; the run cannot go on")
    return path.read_bytes()
