"""Exports to Minari, read back by Minari and compared with the rows."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gymnasium
import minari
import numpy as np
import pytest

from tests.data.test_collector import read_all
from worldloom.data import minari_export
from worldloom.data.collector import Collector
from worldloom.data.errors import DatasetError, IncompleteDataset
from worldloom.data.minari_export import export_minari

SMALL: dict[str, Any] = {"lanes": 5, "steps": 200, "width": 34, "height": 32, "seed": 4, "shard_mb": 0.5}
"""Frames are as large as those that Minari would encode as JPEG by itself."""
DATASETS: dict[str, tuple[str, dict[str, Any]]] = {
    "catch": ("catch", {}),
    "cartpole": ("cartpole", {"settings": {"max_steps": 7}, "observations": ["eye.gray"], "format": "npy"}),
    "dict": ("catch", {"observations": ["ball", "eye.depth", "eye.rgb"], "pictures": "png"}),
    "maze": ("maze", {"settings": {"max_steps": 11}, "samples": 4}),
}


@pytest.fixture(scope="module")
def datasets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("datasets")
    for name, (family, arguments) in DATASETS.items():
        Collector(folder / name, family, **{**SMALL, **arguments}).run()
    return folder


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Minari's directory."""
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    return tmp_path / "minari"


def expected_episodes(rows: Mapping[str, np.ndarray], with_cut: bool) -> dict[int, dict[str, np.ndarray]]:
    """Return the rows of each episode by its number, found by a plain loop over all rows."""
    steps, lanes = rows["last"].shape
    found: dict[int, list[tuple[int, int]]] = {}
    for lane in range(lanes):
        for step in range(steps):
            found.setdefault(int(rows["episode"][step, lane]), []).append((step, lane))
    episodes = {}
    for number, places in found.items():
        one = {name: np.array([values[place] for place in places]) for name, values in rows.items()}
        has_ended = (one["terminated"] | one["truncated"]).any()
        if len(places) > 1 and (has_ended or with_cut):
            one["truncated"][-2] |= not has_ended
            episodes[number] = one
    return episodes


def flatten_actions(rows: Mapping[str, np.ndarray], family: str) -> np.ndarray:
    """Return the actions as a flat env of the family takes them."""
    if family == "catch":
        return rows["action"][:-1] + 1
    if family == "cartpole":
        return rows["action"][:-1, None] if rows["action"].ndim == 1 else rows["action"][:-1]
    return np.concatenate([rows["action.move"], rows["action.turn"][:, None]], axis=1)[:-1]


@pytest.mark.parametrize("with_cut", [False, True])
@pytest.mark.parametrize("name", DATASETS)
def test_minari_reads_the_rows(datasets: Path, root: Path, name: str, with_cut: bool) -> None:
    path = export_minari(datasets / name, f"{name}/random-v3", cut_episodes=with_cut)
    assert path == root / name / "random-v3"
    dataset = minari.load_dataset(f"{name}/random-v3")
    description, rows = read_all(datasets / name)
    expected = expected_episodes(rows, with_cut)
    numbers = [one["worldloom_episode"] for one in dataset.storage.get_episode_metadata(dataset.episode_indices)]
    assert sorted(numbers) == sorted(expected)
    assert dataset.total_episodes == len(expected) > SMALL["lanes"]
    assert dataset.total_steps == sum(len(one["last"]) - 1 for one in expected.values())
    observations = [column.name for column in description.of_role("observation")]
    for number, episode in zip(numbers, dataset.iterate_episodes(), strict=True):
        one = expected[number]
        found = episode.observations if len(observations) > 1 else {observations[0]: episode.observations}
        assert found.keys() == set(observations)
        for column in observations:
            assert found[column].dtype == one[column].dtype
            has_channels = found[column].ndim > one[column].ndim  # as in flat envs
            np.testing.assert_array_equal(found[column][..., 0] if has_channels else found[column], one[column])
        np.testing.assert_array_equal(episode.actions, flatten_actions(one, description.family))
        np.testing.assert_array_equal(episode.rewards, one["reward"][:-1])
        np.testing.assert_array_equal(episode.terminations, one["terminated"][:-1])
        np.testing.assert_array_equal(episode.truncations, one["truncated"][:-1])
        assert episode.terminations[-1] or episode.truncations[-1]
        for k in range(len(episode)):
            assert dataset.action_space.contains(episode.actions[k])
            observation = episode.observations
            taken = {key: array[k] for key, array in observation.items()} if len(found) > 1 else observation[k]
            assert dataset.observation_space.contains(taken)
    dataset.set_seed(1)
    assert len(dataset.sample_episodes(4)) == 4


@pytest.mark.parametrize("name", ["catch", "cartpole", "maze"])
def test_the_env_can_be_made_again(datasets: Path, name: str) -> None:
    export_minari(datasets / name, f"{name}-v0")
    dataset = minari.load_dataset(f"{name}-v0")
    assert dataset.env_spec.id == f"worldloom/{name.capitalize()}-v0"
    env = dataset.recover_environment()
    try:
        assert env.observation_space == dataset.observation_space
        assert env.action_space == dataset.action_space
        assert env.reset(seed=1)[0].shape == dataset[0].observations[0].shape
        env.step(dataset[0].actions[0])
    finally:
        env.close()


def test_an_export_is_done_once(datasets: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = export_minari(
        datasets / "catch", "worlds/games/catch-v0", author="Ada", author_email="ada@example.org", text="Of catch."
    )
    before = {one: one.stat().st_mtime_ns for one in path.rglob("*")}
    assert export_minari(datasets / "catch", "worlds/games/catch-v0") == path  # a repeated call
    assert {one: one.stat().st_mtime_ns for one in path.rglob("*")} == before
    with pytest.raises(DatasetError, match="has another dataset: expected an id that is not taken"):
        export_minari(datasets / "dict", "worlds/games/catch-v0")
    with pytest.raises(DatasetError, match="has another dataset"):
        export_minari(datasets / "catch", "worlds/games/catch-v0", cut_episodes=True)
    metadata = minari.load_dataset("worlds/games/catch-v0").storage.metadata
    assert metadata["author"] == {"Ada"}
    assert metadata["description"] == "Of catch."
    assert metadata["algorithm_name"] == "random"
    assert list(minari.list_local_datasets()) == ["worlds/games/catch-v0"]


def test_a_stopped_export_leaves_nothing_and_can_be_repeated(
    datasets: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(fraction: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        export_minari(datasets / "catch", "catch-v0", on_progress=interrupt)
    assert list(root.iterdir()) == []
    leftover = root / ".catch-v0.tmp" / "data"  # of an export that was killed
    leftover.mkdir(parents=True)
    (leftover / "main_data.hdf5").write_bytes(b"half")
    (leftover / "metadata.json").write_bytes(b"{}")
    assert list(minari.list_local_datasets()) == []
    told: list[float] = []
    export_minari(datasets / "catch", "catch-v0", on_progress=told.append)
    assert told == sorted(told)
    assert told[-1] == 1.0
    assert os.listdir(root) == ["catch-v0"]


def test_few_lanes_are_read_at_once_where_memory_is_short(datasets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    export_minari(datasets / "catch", "all-v0")
    monkeypatch.setattr(minari_export, "_BLOCK_BYTES", 1)
    export_minari(datasets / "catch", "one-v0")
    numbers = []
    for name in ("all-v0", "one-v0"):
        dataset = minari.load_dataset(name)
        found = dataset.storage.get_episode_metadata(dataset.episode_indices)
        numbers.append([int(one["worldloom_episode"]) for one in found])
    assert sorted(numbers[0]) == sorted(numbers[1])
    assert [one % 5 for one in numbers[1]] == sorted(one % 5 for one in numbers[1])  # lane after lane


@pytest.mark.parametrize("dataset_id", ["catch", "", "a b-v0", "../catch-v0", "catch-vx", "/catch-v0"])
def test_wrong_ids_are_explained(datasets: Path, root: Path, dataset_id: str) -> None:
    with pytest.raises(ValueError, match=r"expected \(NAMESPACE/\)NAME-vVERSION"):
        export_minari(datasets / "catch", dataset_id)
    assert not root.exists() or list(root.iterdir()) == []


def test_datasets_without_whole_episodes_and_incomplete_ones_are_explained(tmp_path: Path, root: Path) -> None:
    arguments: dict[str, Any] = {**SMALL, "steps": 20, "width": 8, "height": 8}
    Collector(tmp_path / "short", "catch", **arguments).run()
    with pytest.raises(DatasetError, match=r"no episode that ended: expected some; .* --cut-episodes"):
        export_minari(tmp_path / "short", "short-v0")
    assert list(root.iterdir()) == []
    export_minari(tmp_path / "short", "short-v0", cut_episodes=True)
    episode = minari.load_dataset("short-v0")[0]
    assert episode.truncations.tolist() == [False, False, True]
    lines = (tmp_path / "short" / "index.jsonl").read_bytes().splitlines(keepends=True)
    (tmp_path / "short" / "index.jsonl").write_bytes(b"".join(lines[:-1]))
    with pytest.raises(IncompleteDataset, match="is incomplete: expected a complete dataset; go on with"):
        export_minari(tmp_path / "short", "other-v0")


def test_minari_can_add_steps_and_episodes(datasets: Path) -> None:
    export_minari(datasets / "catch", "catch-v0")
    dataset = minari.load_dataset("catch-v0")
    episode, count = dataset[0], dataset.total_episodes
    buffer = minari.data_collector.EpisodeBuffer(
        observations=episode.observations,
        actions=episode.actions,
        rewards=episode.rewards,
        terminations=episode.terminations,
        truncations=episode.truncations,
        infos={},
    )
    dataset.update_dataset_from_buffer([buffer])
    again = minari.load_dataset("catch-v0")
    assert again.total_episodes == count + 1
    np.testing.assert_array_equal(again[count].observations, episode.observations)
    assert isinstance(again.action_space, gymnasium.spaces.Discrete)
