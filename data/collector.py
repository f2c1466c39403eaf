"""Collector: a dataset collected into a directory, from the arguments of a user to the end of the run."""

import importlib.metadata
import os
import platform
import secrets
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, get_args

import gymnasium

from worldloom.client import VectorEnv
from worldloom.client.arguments import parse_integer
from worldloom.client.rollout import MAX_ROLLOUT_STEPS
from worldloom.client.vector_world import is_frame
from worldloom.data.collection import STATE_FILES, Collection, Progress, Step, explain_os_error
from worldloom.data.errors import DatasetError, PolicyError
from worldloom.data.files import TEMPORARY_SUFFIX, hold_directory, remove, replace_file
from worldloom.data.finish import finish_dataset
from worldloom.data.index import Index, cut_index, read_index
from worldloom.data.layout import (
    DESCRIPTION_FILE,
    KEY_COLUMNS,
    OUTCOME_COLUMNS,
    RAW,
    SHARDS_DIRECTORY,
    Column,
    Description,
    Format,
    Pictures,
)
from worldloom.data.policies import LoadedPolicy, Policy
from worldloom.data.spaces import bounds_of

DEFAULT_LANES = 64
MAX_TEXT = 4096
"""Most characters of a setting in the description of a dataset."""
DEFAULT_SHARD_MB = 128
MAX_WRITERS = 8
_PACKAGES = ("worldloom", "numpy", "numba", "gymnasium", "pyarrow", "pillow", "simplejpeg", "mujoco", "dm_control")
"""Packages whose versions may change what is drawn, or the bytes of files."""
_ARGUMENTS = {"width": 64, "height": 64, "samples": 1, "shadows": False, "action_repeat": 1}
"""Arguments of the env that change rows, and their defaults, which descriptions without them have."""


class Collector:
    """A collection of a dataset into a directory."""

    def __init__(
        self,
        directory: str | os.PathLike[str],
        family: str | None = None,
        *,
        lanes: int | None = None,
        steps: int | None = None,
        policy: "str | Policy | None" = None,
        seed: int | None = None,
        observations: Sequence[str] | None = None,
        settings: Mapping[str, Any] | None = None,
        width: int | None = None,
        height: int | None = None,
        samples: int | None = None,
        shadows: bool | None = None,
        action_repeat: int | None = None,
        format: Format | None = None,
        pictures: str | None = None,
        shard_mb: float | None = None,
        writers: int | None = None,
        resume: bool = False,
        address: str = "local",
        env_arguments: Mapping[str, Any] | None = None,
        on_step: Callable[[Step], object] | None = None,
        on_shard: Callable[[Progress], object] | None = None,
        on_progress: Callable[[Progress], object] | None = None,
        should_stop: Callable[[], bool] | None = None,
        first_lane: int = 0,
        all_lanes: int | None = None,
    ) -> None:
        """Check what can be checked before there is an env.

        Args:
            directory: Directory of the dataset, which is made. It must not exist, or be empty, unless `resume`.
            family: The kind of world. May be left out with `resume`, as all arguments that make the dataset.
            lanes: The number of lanes; 64 by default.
            steps: The number of rows of all lanes together, rounded up to as many for each lane; 100,000 by default.
            policy: `random` (the default), `idle`, MODULE:CALLABLE or a callable; see `worldloom.data.policies`.
            seed: Seed of the worlds and of the policy's generator; random unless given.
            observations: Names of observations; the default is `eye.rgb`.
            settings: Settings of the family.
            width: Width of frames in pixels; 64 by default.
            height: Height of frames in pixels; 64 by default.
            samples: Samples per pixel, 1 or 4.
            shadows: True draws the shadows of lights.
            action_repeat: Times that each step applies its actions.
            format: `parquet` (the default), or `npy` for arrays that are mapped into memory.
            pictures: Encoding of frames in Parquet files: `raw`, `zstd:LEVEL`, `png:LEVEL`, `jpeg:QUALITY` or
                `webp:QUALITY`; `zstd:1` by default. Shards of `npy` are raw.
            shard_mb: Size of a shard before compression in MiB, 128 by default. Memory holds several: two and two
                for each of the writers.
            writers: Threads that encode and write; by default as many as there are processors, at most 8, for
                Parquet, and one for `npy`, which is written as it is.
            resume: Go on with a collection that was stopped. Where there is none, begin one.
            address: Address of a server; `local` draws in this process.
            env_arguments: Further arguments of VectorEnv that change no rows, such as `token` or `renderer`.
            on_step: Called with each step; a return value of False stops the collection, which can be resumed.
            on_shard: Called with the progress after each shard, by one of the writers' threads.
            on_progress: Called with the progress a few times a second and at the end, by the thread that runs it.
            should_stop: Called before each step, and each step that is replayed; True stops the collection, which can
                be resumed.
            first_lane: The number of the first lane, if others collect further lanes of the same dataset.
            all_lanes: The number of lanes of all these collectors together.
        """
        if isinstance(observations, str):
            raise TypeError(f"observations is {observations!r}: expected a list of names, such as [{observations!r}]")
        self.directory = Path(directory)
        given: dict[str, Any] = {
            "family": family,
            "lanes": lanes,
            "steps": steps,
            "policy": policy,
            "seed": seed,
            "observations": None if observations is None else sorted(set(observations)),
            "settings": settings,
            "width": width,
            "height": height,
            "samples": samples,
            "shadows": shadows,
            "action_repeat": action_repeat,
            "format": format,
            "pictures": pictures,
            "shard_mb": shard_mb,
        }
        self._given = {name: value for name, value in given.items() if value is not None}
        self._resume = resume
        self._address, self._env_arguments = address, dict(env_arguments or {})
        self._callbacks: dict[str, Any] = {"on_step": on_step, "on_shard": on_shard, "on_progress": on_progress}
        self._callbacks |= {"should_stop": should_stop}
        self._first_lane, self._all_lanes = first_lane, all_lanes
        self.transport = ""
        """Transport of the env, once there is one."""
        self._writers = writers
        _check_arguments(self._given, writers)

    def run(self) -> Progress:
        """Collect until the dataset is complete; return the last progress.

        Whatever stops it, an error, an interrupt or a callback, shards that are complete stay, and `resume` goes on.
        """
        with hold_directory(self.directory):
            return self._run()

    def describe(self) -> Description:
        """Return the description of the dataset that `run` would begin, from an env and the policy; write nothing."""
        with self._make_env(None) as env:
            return self._describe(env, self._load_policy(None, env))

    def _run(self) -> Progress:
        description = self.find_description()
        if description is not None and description.parts:
            raise DatasetError(f"{self.directory} was collected on a fleet: expected --fleet NAME, to go on with it")
        index = read_index(self.directory)
        if description is not None and index.end is not None:
            return Progress.of(index, description)
        with self._make_env(description) as env:
            self.transport = env.transport
            policy = self._load_policy(description, env)
            if description is None:
                description = self._describe(env, policy)
                (self.directory / SHARDS_DIRECTORY).mkdir(exist_ok=True)
                replace_file(self.directory / DESCRIPTION_FILE, description.to_json())
            else:
                _warn_of_changes(description, env, policy)
            _clean(self.directory, index)
            collection = Collection(
                self.directory,
                env,
                policy,
                description,
                index,
                writers=self._writers or _default_writers(description),
                **self._callbacks,
            )
            collection.run()
        try:
            finish_dataset(self.directory, description, index)
        except OSError as error:
            kept = "all rows are complete; --resume writes the rest"
            raise explain_os_error(error, self.directory, kept) from error
        return collection.progress()

    def find_description(self) -> Description | None:
        """Return the description of the dataset that is resumed; None if there is none yet."""
        path = self.directory / DESCRIPTION_FILE
        if path.exists():
            if not self._resume:
                raise DatasetError(
                    f"{self.directory} has a dataset: expected --resume to go on with it, or another directory"
                )
            description = Description.from_json(path.read_bytes(), path)
            _compare(description, self._given)
            return description
        others = [one.name for one in self.directory.iterdir() if one.name != SHARDS_DIRECTORY]
        if [name for name in others if not name.endswith(TEMPORARY_SUFFIX)]:
            raise DatasetError(f"{self.directory} has {sorted(others)[0]}: expected a directory that is new or empty")
        if "family" not in self._given:
            resumed = " to resume" if self._resume else ""
            raise DatasetError(f"{self.directory} has no dataset{resumed}: expected a family, to begin one")
        return None

    def _load_policy(self, description: Description | None, env: VectorEnv) -> LoadedPolicy:
        return LoadedPolicy(self._choose_policy(description), env.single_action_space, env.num_envs)

    def _choose_policy(self, description: Description | None) -> "str | Policy":
        given: str | Policy | None = self._given.get("policy")
        if given is not None or description is None:
            return "random" if given is None else given
        if ":" in description.policy and not description.policy_hash:
            raise PolicyError(f"the policy {description.policy} was given as an object: expected the same again")
        return description.policy

    def _make_env(self, description: Description | None) -> VectorEnv:
        given = self._given
        if description is not None:
            arguments: dict[str, Any] = dict(description.arguments)
            arguments |= {"observations": [column.name for column in description.of_role("observation")]}
            arguments |= {"seed": description.seed, "settings": dict(description.settings)}
            arguments |= {"first_lane": description.first_lane}
            family, lanes = description.family, description.lanes
        else:
            family, lanes = given["family"], given.get("lanes", DEFAULT_LANES)
            arguments = {name: given[name] for name in (*_ARGUMENTS, "settings", "observations") if name in given}
            self._seed = given.get("seed", secrets.randbits(32))
            arguments |= {"seed": self._seed, "first_lane": self._first_lane}
        return VectorEnv(self._address, family, lanes, **arguments, **self._env_arguments)

    def _describe(self, env: VectorEnv, policy: LoadedPolicy) -> Description:
        given = self._given
        lanes = env.num_envs
        pictures = Pictures.parse("raw" if given.get("format") == "npy" else given.get("pictures", "zstd"))
        columns = make_columns(env, pictures)
        row_bytes = sum(column.row_bytes for column in columns)
        all_lanes = self._all_lanes or lanes
        steps = steps_of_each_lane(given.get("steps", 100_000), all_lanes)
        limit = int(given.get("shard_mb", DEFAULT_SHARD_MB) * 2**20) // (row_bytes * lanes)
        shard_steps = max(1, min(limit, steps, MAX_ROLLOUT_STEPS // (2 + MAX_WRITERS)))
        return Description(
            family=given["family"],
            settings=dict(given.get("settings", {})),
            seed=self._seed,
            lanes=lanes,
            first_lane=self._first_lane,
            all_lanes=all_lanes,
            steps=steps,
            shard_steps=shard_steps,
            format=given.get("format", "parquet"),
            pictures=str(pictures),
            policy=policy.name,
            policy_hash=policy.hash,
            arguments={name: given.get(name, default) for name, default in _ARGUMENTS.items()},
            renderer=_renderer_of(env),
            versions=_versions(env),
            columns=columns,
            steps_per_s=float(env.metadata["render_fps"]),
        )


def _renderer_of(env: VectorEnv) -> str:
    """Return the name of the renderer, with its device where frames depend on that."""
    name = str(env.read_property("server.renderer"))
    return name if name == "cpu" else f"{name}: {env.read_property('server.device')}"


def _versions(env: VectorEnv) -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in _PACKAGES:
        with suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    found["server"] = str(env.read_property("server.version"))
    return found


def make_columns(env: VectorEnv, pictures: Pictures) -> list[Column]:
    """Return the columns of a dataset of an env."""
    found = [Column(name, "key", dtype) for name, dtype in KEY_COLUMNS.items()]
    observations, actions = env.single_observation_space, env.single_action_space
    assert isinstance(observations, gymnasium.spaces.Dict), "the env is not flat"
    assert isinstance(actions, gymnasium.spaces.Dict), "the env is not flat"
    for name, space in observations.items():
        encoding = pictures.encoding_of(name, str(space.dtype)) if is_frame(name) else ""
        shape = tuple(space.shape or ())
        found.append(Column(name, "observation", str(space.dtype), shape, encoding, *bounds_of(space)))
    for name, space in actions.items():
        title = "action" if len(actions) == 1 else f"action.{name}"
        found.append(Column(title, "action", str(space.dtype), tuple(space.shape or ()), "", *bounds_of(space)))
    found += [Column(name, "outcome", dtype) for name, dtype in OUTCOME_COLUMNS.items()]
    taken = [*KEY_COLUMNS, *OUTCOME_COLUMNS, "action"]
    for column in found:
        if column.role == "observation" and (column.name in taken or column.name.startswith("action.")):
            raise DatasetError(
                f"observations has {column.name!r}: expected none of {', '.join(taken)}, which are columns anyway"
            )
    return found


def _default_writers(description: Description) -> int:
    """Return a number of writers: raw arrays leave most of their time to the disk, encoding takes processors."""
    return 1 if description.format == "npy" else min(MAX_WRITERS, len(os.sched_getaffinity(0)))


def _check_arguments(given: Mapping[str, Any], writers: int | None) -> None:
    """Raise ValueError or TypeError for arguments that can be checked without an env."""
    limits = {"lanes": (1, 2**31 - 1), "steps": (1, 2**62), "seed": (0, 2**64 - 1)}
    for name, (least, greatest) in limits.items():
        if name in given:
            parse_integer(name, given[name], least, greatest)
    if not isinstance(given.get("shadows", False), bool):
        raise TypeError(f"shadows is {given['shadows']!r}: expected True or False")
    if writers is not None:
        parse_integer("writers", writers, 1, MAX_WRITERS)
    size = given.get("shard_mb", DEFAULT_SHARD_MB)
    if isinstance(size, bool) or not isinstance(size, int | float) or not 0 < size <= 2**20:
        raise ValueError(f"shard_mb is {size!r}: expected a number of MiB above 0")
    if given.get("format", "parquet") not in get_args(Format):
        raise ValueError(f"format is {given['format']!r}: expected one of {', '.join(get_args(Format))}")
    for name, value in given.get("settings", {}).items():
        if isinstance(value, bytes | bytearray | memoryview) or (isinstance(value, str) and len(value) > MAX_TEXT):
            raise ValueError(
                f"setting {name!r} has {len(value)} {'characters' if isinstance(value, str) else 'bytes'}: expected a "
                f"number or a text of up to {MAX_TEXT}, since a dataset names the settings it was made with; use a "
                "model of the server (setting 'model', --model-dir)"
            )
    pictures = Pictures.parse(given.get("pictures", "zstd"))
    if given.get("format") == "npy" and "pictures" in given and pictures.kind != RAW:
        raise ValueError(f"pictures are {str(pictures)!r} with the format npy: expected raw, or the format parquet")


def _compare(description: Description, given: Mapping[str, Any]) -> None:
    """Raise DatasetError if arguments that were given are not those that the collection began with."""
    before: dict[str, Any] = {
        "family": description.family,
        "lanes": description.lanes,
        "seed": description.seed,
        "observations": [column.name for column in description.of_role("observation")],
        "settings": dict(description.settings),
        "format": description.format,
        **_ARGUMENTS,
        **description.arguments,
    }
    given = dict(given)
    if "steps" in given and steps_of_each_lane(given["steps"], description.all_lanes) != description.steps:
        before["steps"] = description.steps * description.all_lanes
    if "pictures" in given:
        before["pictures"], given["pictures"] = description.pictures, str(Pictures.parse(given["pictures"]))
    if isinstance(given.get("policy"), str):
        before["policy"] = description.policy
    for name, value in before.items():
        if name in given and given[name] != value:
            raise DatasetError(f"{name} is {given[name]!r}: expected {value!r}, as the collection began; leave it out")


def steps_of_each_lane(steps: int, lanes: int) -> int:
    """Return the rows of each lane: at least two, so that there is an action."""
    return max(2, -(-steps // lanes))


def _warn_of_changes(description: Description, env: VectorEnv, policy: LoadedPolicy) -> None:
    """Warn of what may make further rows, or their bytes, differ from those of a run that was never stopped."""
    now = {**_versions(env), "renderer": _renderer_of(env), "the policy's file": policy.hash}
    then = {**description.versions, "renderer": description.renderer, "the policy's file": description.policy_hash}
    for name, value in then.items():
        if now.get(name) != value:
            warnings.warn(
                f"{name} was {value} when the collection began, and is {now.get(name)} now: further rows may differ "
                "from those of a run that was not stopped",
                stacklevel=3,
            )


def _clean(directory: Path, index: Index) -> None:
    """Remove what an earlier run has left half done."""
    cut_index(directory, index)
    known = {Path(file.name).parts[1] for entry in index.shards for file in entry.files}
    for path in (directory / SHARDS_DIRECTORY).iterdir():
        if path.name not in known:
            remove(path)
    state = index.shards[-1].policy_state if index.shards else None
    for path in [*directory.glob(f"*{TEMPORARY_SUFFIX}"), *directory.glob(STATE_FILES)]:
        if state is None or path.name != state.name:
            remove(path)
