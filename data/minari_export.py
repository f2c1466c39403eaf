"""Datasets for Minari: episodes in HDF5, which `minari.load_dataset` opens.

An episode of Minari has its steps, and one observation more than these. Frames are arrays of uint8, without loss.
Observations and actions have the form of a flat env where they can: a single observation is an array, frames with
channels, and actions are one array, in which integers count from 0 and floats are one dimension. So the env that
`recover_environment` makes has the spaces of the data. Others are dicts by name.
"""

import functools
import importlib.metadata
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from worldloom.client.registration import list_env_ids
from worldloom.data.card import make_command
from worldloom.data.check import require_good
from worldloom.data.errors import DatasetError
from worldloom.data.export import beside
from worldloom.data.files import checksum_of
from worldloom.data.layout import DESCRIPTION_FILE, INDEX_FILE, Arrays, Description
from worldloom.data.spaces import DatasetActions, DatasetObservations
from worldloom.data.whole import WholeDataset

if TYPE_CHECKING:
    from gymnasium.envs.registration import EnvSpec

_BLOCK_BYTES = 256 << 20
"""Memory for episodes under way in the lanes that are read together, about."""
_CHUNK_BYTES = 256 << 10
"""Size of a chunk of an HDF5 file, about: what is read at once."""
_FILE = "main_data.hdf5"
"""Name that Minari gives to the file with all episodes."""
_SOURCE_KEY = "worldloom_source"
"""Key of Minari's metadata for the checksum of the dataset that was exported."""


def export_minari(
    source: "str | os.PathLike[str]",
    dataset_id: str,
    *,
    cut_episodes: bool = False,
    author: str | None = None,
    author_email: str | None = None,
    code_permalink: str | None = None,
    text: str | None = None,
    on_progress: Callable[[float], object] | None = None,
) -> Path:
    """Export a complete dataset to Minari's directory, MINARI_DATASETS_PATH or ~/.minari/datasets; return its path.

    It is there when it is complete: a stopped export leaves nothing, and may be repeated. One that has been done before
    changes nothing; DatasetError if there is another dataset with this id.

    Args:
        source: Directory of the dataset.
        dataset_id: Id in Minari, (NAMESPACE/)NAME-vVERSION.
        cut_episodes: Export episodes that the end of the collection has cut, too, truncated where they were cut.
        author: Name of the author, for the metadata; so are the others.
        author_email: Address of the author.
        code_permalink: Link to the code that made the dataset.
        text: Description; the command that makes the dataset again by default.
        on_progress: Called with the fraction of the rows that are written.
    """
    minari = _import_minari()
    whole = WholeDataset(source)
    whole.require_complete()
    target = _find_target(minari, dataset_id)
    stamp = _stamp(whole, cut_episodes)
    if target.exists():
        if minari.MinariStorage.read_raw_metadata(target / "data").get(_SOURCE_KEY) == stamp:
            return target
        raise DatasetError(f"{target} has another dataset: expected an id that is not taken, such as a higher version")
    about = {"author": author, "author_email": author_email}
    metadata: dict[str, Any] = {name: {value} for name, value in about.items() if value is not None}
    metadata |= {} if code_permalink is None else {"code_permalink": code_permalink}
    metadata |= {
        "dataset_id": dataset_id,
        "minari_version": importlib.metadata.version("minari"),
        "algorithm_name": whole.description.policy,
        "description": text or _describe(whole.description),
        "requirements": [f"worldloom=={whole.description.versions.get('worldloom', '0')}"],
        _SOURCE_KEY: stamp,
    }
    require_good(source)
    _make_namespace(minari, dataset_id)
    with beside(target) as temporary:
        _write(minari, whole, temporary / "data", metadata, cut_episodes, on_progress)
    return target


def check_minari_id(dataset_id: str) -> None:
    """Raise DatasetError if Minari is not installed, or cannot have a dataset with this id."""
    _find_target(_import_minari(), dataset_id)


class _Minari(NamedTuple):
    """Names of Minari that are used. It is imported when something is exported."""

    MinariStorage: Any
    parse_dataset_id: Any
    get_dataset_path: Any
    create_namespace: Any
    list_local_namespaces: Any


@functools.cache
def _import_minari() -> _Minari:
    try:
        import h5py  # noqa: F401  # which Minari asks for only when a file is written
        from minari.dataset.minari_dataset import parse_dataset_id
        from minari.dataset.minari_storage import MinariStorage
        from minari.namespace import create_namespace, list_local_namespaces
        from minari.storage import get_dataset_path
    except ImportError as error:
        raise DatasetError(
            f"exporting to Minari needs minari and h5py ({error}): pip install 'worldloom[minari]'"
        ) from error
    names = (MinariStorage, parse_dataset_id, get_dataset_path, create_namespace, list_local_namespaces)
    return _Minari(*names)


def _find_target(minari: _Minari, dataset_id: str) -> Path:
    try:
        minari.parse_dataset_id(dataset_id)
    except (ValueError, TypeError):  # the latter without a version
        raise ValueError(
            f"the id of the dataset is {dataset_id!r}: expected (NAMESPACE/)NAME-vVERSION, such as catch/random-v0"
        ) from None
    return Path(minari.get_dataset_path(dataset_id))


def _make_namespace(minari: _Minari, dataset_id: str) -> None:
    namespace = minari.parse_dataset_id(dataset_id)[0]
    if namespace is not None and namespace not in minari.list_local_namespaces():
        minari.create_namespace(namespace)


def _stamp(whole: WholeDataset, cut_episodes: bool) -> str:
    """Return a checksum of a dataset, and of how it is exported."""
    files = [(whole.directory / name).read_bytes() for name in (DESCRIPTION_FILE, INDEX_FILE)]
    return checksum_of(*files, b"cut episodes" if cut_episodes else b"")


def _describe(description: Description) -> str:
    command = make_command(description)
    again = f" It is made again by: {command}" if command is not None else ""
    return f"Episodes of {description.family} with the policy {description.policy}, collected with worldloom.{again}"


def _write(
    minari: _Minari,
    whole: WholeDataset,
    path: Path,
    metadata: dict[str, Any],
    cut_episodes: bool,
    on_progress: Callable[[float], object] | None,
) -> None:
    """Write the files of a dataset of Minari, one episode after the other."""
    import h5py

    description = whole.description
    observations, actions = DatasetObservations(description), DatasetActions(description)
    storage = minari.MinariStorage.new(
        path,
        observation_space=observations.space,
        action_space=actions.space,
        env_spec=_make_env_spec(description) if observations.is_flat and actions.is_flat else None,
        jpeg_encoding=False,
    )
    total_episodes = total_steps = 0
    with h5py.File(path / _FILE, "a", track_order=True) as file:
        for rows in _read_episodes(whole, [*observations.columns, *actions.columns], cut_episodes, on_progress):
            steps = {name: array[:-1] for name, array in rows.items()}
            episode, lane = int(rows["episode"][0]), int(rows["lane"][0])
            group = file.create_group(f"episode_{total_episodes}")
            group.attrs["id"] = total_episodes
            group.attrs["total_steps"] = len(steps["reward"])
            group.attrs.update({"worldloom_episode": episode, "worldloom_lane": lane})
            _add(group, "observations", observations.select(rows))
            _add(group, "actions", actions.select(steps))
            _add(group, "rewards", steps["reward"])
            _add(group, "terminations", steps["terminated"])
            _add(group, "truncations", steps["truncated"])
            _add(group, "infos", {})
            total_episodes += 1
            total_steps += len(steps["reward"])
    if not total_episodes:
        hint = "" if cut_episodes else "; episodes that the end of the collection cut are exported with --cut-episodes"
        raise DatasetError(f"{whole.directory} has no episode that ended: expected some{hint}")
    sums = {"total_episodes": total_episodes, "total_steps": total_steps, "dataset_size": storage.get_size()}
    storage.update_metadata(metadata | sums)
    for one in path.iterdir():
        with one.open("rb") as written:
            os.fsync(written.fileno())


def _add(group: Any, name: str, values: "np.ndarray | Arrays") -> None:
    """Add arrays to a group of HDF5 as Minari does, but in chunks of whole rows instead of parts of frames.

    Writing takes a quarter of the time, and reading less. They can be resized, so that Minari can add steps.
    """
    if isinstance(values, dict):
        within = group.create_group(name)
        for key, array in values.items():
            _add(within, key, array)
        return
    rows = max(1, min(len(values), _CHUNK_BYTES * len(values) // max(1, values.nbytes)))
    shape = values.shape[1:]
    group.create_dataset(name, data=values, chunks=(rows, *shape), maxshape=(None, *shape))


def _make_env_spec(description: Description) -> "EnvSpec":
    """Return the spec of an env with the spaces of the dataset, as `gymnasium.make` makes it."""
    from gymnasium.envs.registration import EnvSpec

    def has_settings(arguments: Mapping[str, Any]) -> bool:
        chosen = {"family": arguments["family"], **arguments.get("task_settings", {})}
        return {"family": description.family, **description.settings}.items() >= chosen.items()

    known = (env_id for env_id, arguments in list_env_ids() if has_settings(arguments))
    return EnvSpec(
        id=next(known, f"worldloom/{description.family}-v0"),
        entry_point="worldloom.client.registration:make_single_env",
        vector_entry_point="worldloom.client.registration:make_vector_env",
        kwargs={
            "family": description.family,
            "settings": dict(description.settings),
            "observations": [column.name for column in description.of_role("observation")],
            **description.arguments,
        },
    )


def _read_episodes(
    whole: WholeDataset, names: list[str], cut_episodes: bool, on_progress: Callable[[float], object] | None
) -> Iterator[Arrays]:
    """Yield the rows of each episode by column. Some lanes are read together, as many as there is memory for."""
    description, rows_done = whole.description, 0
    names = [*names, "episode", "lane", "reward", "terminated", "truncated", "last"]
    shards = [
        (k, min(k + description.shard_steps, whole.steps)) for k in range(0, whole.steps, description.shard_steps)
    ]
    longest = 1 + max(
        int(whole.read(["step"], slice(0, description.lanes), slice(*steps))["step"].max()) for steps in shards
    )
    row_bytes = sum(description.column(name).row_bytes for name in names)
    block = max(1, min(description.lanes, _BLOCK_BYTES // (row_bytes * (longest + description.shard_steps))))
    for first in range(0, description.lanes, block):
        lanes = slice(first, min(first + block, description.lanes))
        under_way: list[list[Arrays]] = [[] for _ in range(lanes.start, lanes.stop)]
        for begin, end in shards:
            rows = whole.read(names, lanes, slice(begin, end))
            for lane, pieces in enumerate(under_way):
                yield from _end_episodes({name: rows[name][lane] for name in names}, pieces, cut_episodes)
            rows_done += (lanes.stop - lanes.start) * (end - begin)
            if on_progress is not None:
                on_progress(rows_done / description.rows)


def _end_episodes(rows: Arrays, pieces: list[Arrays], cut_episodes: bool) -> Iterator[Arrays]:
    """Yield the episodes of a lane that end in further rows of it. `pieces` has the rows of the one under way."""
    begin = 0
    for end in (np.flatnonzero(rows["last"]) + 1).tolist():
        pieces.append({name: array[begin:end] for name, array in rows.items()})
        found = {name: np.concatenate([piece[name] for piece in pieces]) for name in rows}
        pieces.clear()
        begin = end
        is_whole = len(found["last"]) > 1 and bool(found["terminated"][-2] | found["truncated"][-2])
        if len(found["last"]) > 1 and not is_whole and cut_episodes:
            found["truncated"][-2] = is_whole = True
        if is_whole:
            yield found
    if begin < len(rows["last"]):  # copied, so that the memory of the other lanes can go
        pieces.append({name: array[begin:].copy() for name, array in rows.items()})
