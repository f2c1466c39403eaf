"""Datasets that are read, against plain NumPy over all of their rows."""

import pickle
import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import worldloom.data.samples
from worldloom.data import Collector, DamagedDataset, Dataset, DatasetError
from worldloom.data.collection import Step, Stopped
from worldloom.data.files import replace_file
from worldloom.data.index import EndEntry, ShardEntry, append_entry
from worldloom.data.layout import Column, Description, Format, PartPlace
from worldloom.data.samples import BatchOrder, Shuffle
from worldloom.data.writer import ShardWriter

ALL_FORMATS: list[tuple[Format, str]] = [
    ("npy", "raw"),
    ("parquet", "raw"),
    ("parquet", "zstd:3"),
    ("parquet", "png"),
    ("parquet", "jpeg"),
    ("parquet", "webp"),
]
DAMAGES = 60
COLUMNS = [
    Column("episode", "key", "int64"),
    Column("lane", "key", "int32"),
    Column("step", "key", "int32"),
    Column("seed", "key", "uint64"),
    Column("eye.rgb", "observation", "uint8", (6, 5, 3), "raw"),
    Column("eye.depth", "observation", "float32", (6, 5), "raw"),
    Column("matrix", "observation", "float64", (2, 3)),
    Column("action", "action", "int32"),
    Column("reward", "outcome", "float64"),
    Column("terminated", "outcome", "bool"),
    Column("truncated", "outcome", "bool"),
    Column("last", "outcome", "bool"),
]


def make_rows(lanes: int, steps: int, seed: int, end_share: float) -> dict[str, np.ndarray]:
    """Return made-up columns [steps, lanes, ...] with the episodes of a loop in plain Python."""
    generator = np.random.default_rng(seed)
    rows = {column.name: column.zeros(steps, lanes) for column in COLUMNS}
    rows["eye.rgb"][:] = generator.integers(0, 256, rows["eye.rgb"].shape)
    rows["eye.depth"][:] = generator.random(rows["eye.depth"].shape)
    rows["matrix"][:] = generator.random(rows["matrix"].shape)
    for lane in range(lanes):
        number, step, ended = 0, 0, False
        for k in range(steps):
            is_last = ended or k == steps - 1
            rows["episode"][k, lane], rows["lane"][k, lane], rows["step"][k, lane] = lane + lanes * number, lane, step
            rows["last"][k, lane] = is_last
            ended = not is_last and generator.random() < end_share
            if not is_last:
                rows["action"][k, lane], rows["reward"][k, lane] = generator.integers(1, 9), generator.random()
                rows["terminated" if generator.random() < 0.5 else "truncated"][k, lane] = ended
            number, step = (number + 1, 0) if is_last else (number, step + 1)
    return rows


def write_rows(directory: Path, rows: dict[str, np.ndarray], shard_steps: int, format: Format, pictures: str) -> None:
    """Write a dataset of given columns, as a collection would."""
    steps, lanes = rows["last"].shape
    kind = pictures.partition(":")[0]
    encoding = kind if kind in ("png", "jpeg", "webp") else "raw"
    columns = [replace(one, encoding=encoding) if one.name == "eye.rgb" else one for one in COLUMNS]
    first = int(rows["lane"][0, 0])
    description = Description(
        family="catch",
        settings={},
        seed=0,
        lanes=lanes,
        first_lane=first,
        all_lanes=lanes,
        steps=steps,
        shard_steps=shard_steps,
        format=format,
        pictures=pictures,
        policy="random",
        policy_hash="",
        arguments={},
        renderer="cpu: test",
        versions={},
        columns=columns,
    )
    (directory / "shards").mkdir(parents=True)
    replace_file(directory / "dataset.json", description.to_json())
    writer = ShardWriter(directory, description, 1, lambda entry: None)
    for shard in range(description.shards):
        begin = shard * shard_steps
        part = {name: np.ascontiguousarray(rows[name][begin : begin + shard_steps]) for name in rows}
        entry = ShardEntry(shard, part["last"].size, 0, 0.0, 0, [], {})
        writer.submit(entry, part)
    writer.finish()
    append_entry(directory, EndEntry(steps * lanes, 0, 0.0, 0, files=[]))


def plain_episodes(rows: dict[str, np.ndarray]) -> Iterator[dict[str, Any]]:
    """Find the episodes of columns [steps, lanes, ...] by following each lane."""
    steps, lanes = rows["last"].shape
    for lane in range(lanes):
        begin = 0
        for k in range(steps):
            if k == steps - 1 or rows["last"][k, lane]:
                ended = bool(k > begin and (rows["terminated"] | rows["truncated"])[k - 1, lane])
                yield {"lane": lane, "begin": begin, "end": k, "is_whole": ended}
                begin = k + 1


table = st.fixed_dictionaries(
    {
        "lanes": st.integers(1, 7),
        "steps": st.integers(1, 30),
        "shard_steps": st.integers(1, 12),
        "kind": st.sampled_from(ALL_FORMATS),
        "end_share": st.sampled_from([0.0, 0.15, 0.6]),
        "seed": st.integers(0, 1000),
    }
)


def open_table(folder: Path, drawn: dict[str, Any]) -> tuple[Dataset, dict[str, np.ndarray]]:
    """Write a dataset and return it with its columns [lanes, steps, ...]; lossy frames as they are read one by one."""
    rows = make_rows(drawn["lanes"], drawn["steps"], drawn["seed"], drawn["end_share"])
    write_rows(folder / "d", rows, drawn["shard_steps"], *drawn["kind"])
    dataset = Dataset(folder / "d")
    expected = {name: values.swapaxes(0, 1) for name, values in rows.items()}
    if drawn["kind"][1] in ("jpeg", "webp"):
        expected["eye.rgb"] = np.stack(
            [[row["eye.rgb"] for row in map(dataset.rows(["eye.rgb"]).__getitem__, range(k, k + dataset.steps))]
             for k in range(0, len(dataset), dataset.steps)]
        )  # fmt: skip
        assert expected["eye.rgb"].shape == (dataset.lanes, dataset.steps, 6, 5, 3)
    return dataset, expected


def assert_same(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_array_equal(found[name], values, err_msg=name)
        assert found[name].dtype == values.dtype


@settings(max_examples=25)
@given(drawn=table, data=st.data())
def test_rectangles_and_rows_are_those_that_were_written(
    tmp_path_factory: pytest.TempPathFactory, drawn: dict[str, Any], data: st.DataObject
) -> None:
    dataset, expected = open_table(tmp_path_factory.mktemp("table"), drawn)
    assert (dataset.lanes, dataset.steps, dataset.is_complete) == (drawn["lanes"], drawn["steps"], True)
    assert_same(dataset.read(), expected)
    lanes, steps = (data.draw(st.slices(n).filter(lambda one: one.step in (None, 1))) for n in (dataset.lanes, 30))
    names = data.draw(st.lists(st.sampled_from(list(expected)), unique=True))
    assert_same(dataset.read(names, lanes=lanes, steps=steps), {name: expected[name][lanes, steps] for name in names})
    flat = {name: values.reshape(-1, *values.shape[2:]) for name, values in expected.items()}
    indices = data.draw(st.lists(st.integers(-len(dataset), len(dataset) - 1), min_size=1, max_size=20))
    assert_same(dataset[indices], {name: values[indices] for name, values in flat.items()})
    assert_same(dataset[indices[0]], {name: values[indices[0]] for name, values in flat.items()})
    assert len(dataset) == dataset.num_rows == len(flat["last"])


@settings(max_examples=25)
@given(drawn=table)
def test_episodes_and_transitions_are_those_of_a_plain_loop(
    tmp_path_factory: pytest.TempPathFactory, drawn: dict[str, Any]
) -> None:
    dataset, expected = open_table(tmp_path_factory.mktemp("episodes"), drawn)
    plain = list(plain_episodes({name: values.swapaxes(0, 1) for name, values in expected.items()}))
    episodes = dataset.episodes()
    assert dataset.num_episodes == len(episodes) == len(plain)
    transitions: list[tuple[int, int]] = []
    for episode, known in zip(episodes, plain, strict=True):
        lane, begin, end = known["lane"], known["begin"], known["end"]
        assert (episode.lane, episode.length, episode.is_whole) == (lane, end - begin, known["is_whole"])
        assert episode.number == expected["episode"][lane, begin]
        assert_same(episode.rows, {name: values[lane, begin : end + 1] for name, values in expected.items()})
        assert episode.observations.keys() == {"eye.rgb", "eye.depth", "matrix"}
        assert len(episode.observations["eye.rgb"]) == end - begin + 1
        np.testing.assert_array_equal(episode.actions["action"], expected["action"][lane, begin:end])
        np.testing.assert_array_equal(episode.rewards, expected["reward"][lane, begin:end])
        np.testing.assert_array_equal(episode.terminated, expected["terminated"][lane, begin:end])
        np.testing.assert_array_equal(episode.truncated, expected["truncated"][lane, begin:end])
        transitions += [(lane, k) for k in range(begin, end)]
    whole = dataset.episodes(["reward"], whole_only=True)
    assert [one.number for one in whole] == [one.number for one in episodes if one.is_whole]
    found = dataset.transitions(["matrix", "action", "terminated"])
    assert len(found) == len(transitions)
    if transitions:
        lanes, steps = np.array(transitions).T
        batch = found.batch(np.arange(len(found)))
        chosen = {name: expected[name][lanes, steps] for name in ("matrix", "action", "terminated")}
        assert_same(batch, chosen | {"next.matrix": expected["matrix"][lanes, steps + 1]})


@settings(max_examples=25)
@given(
    drawn=table,
    length=st.integers(1, 20),
    stride=st.none() | st.integers(1, 9),
    within_episodes=st.booleans(),
    batch_size=st.integers(1, 5),
    shuffle=st.booleans(),
    drop_last=st.booleans(),
)
def test_sequences_are_windows_of_lanes(
    tmp_path_factory: pytest.TempPathFactory,
    drawn: dict[str, Any],
    length: int,
    stride: int | None,
    within_episodes: bool,
    batch_size: int,
    shuffle: bool,
    drop_last: bool,
) -> None:
    dataset, expected = open_table(tmp_path_factory.mktemp("sequences"), drawn)
    plain = plain_episodes({name: values.swapaxes(0, 1) for name, values in expected.items()})
    spans = [(one["lane"], one["begin"], one["end"] + 1) for one in plain]
    if not within_episodes:
        spans = [(lane, 0, dataset.steps) for lane in range(dataset.lanes)]
    begins = [(lane, k) for lane, begin, end in spans for k in range(begin, end, stride or length) if k + length <= end]
    names = ["eye.rgb", "reward", "episode"]
    sequences = dataset.sequences(length, names, stride=stride, within_episodes=within_episodes)
    assert len(sequences) == len(begins)
    expected["is_first"] = expected["step"] == 0
    windows = [{name: expected[name][lane, k : k + length] for name in [*names, "is_first"]} for lane, k in begins]
    for found, window in zip(sequences, windows, strict=True):
        assert_same(found, window)
        if within_episodes:
            assert len(set(found["episode"])) == 1
    options: dict[str, Any] = {"shuffle": shuffle, "seed": 3, "epoch": 2, "drop_last": drop_last}
    if not (len(begins) // batch_size if drop_last else len(begins)):
        with pytest.raises(ValueError, match="expected at most as many"):
            sequences.batches(batch_size, **options)
        return
    order = BatchOrder(len(begins), batch_size, **options)
    batches = list(sequences.batches(batch_size, **options))
    assert len(batches) == len(order) == (len(begins) // batch_size if drop_last else -(-len(begins) // batch_size))
    seen: list[int] = []
    for number, batch in enumerate(batches):
        chosen = order[number].tolist()
        seen += chosen
        assert_same(batch, {name: np.stack([windows[k][name] for k in chosen]) for name in batch})
    assert len(set(seen)) == len(seen) == (len(begins) // batch_size * batch_size if drop_last else len(begins))
    if not shuffle:
        assert seen == sorted(seen)


@pytest.mark.parametrize("limit", [0, 1 << 20], ids=["network", "memory"])
@settings(max_examples=20)
@given(count=st.integers(1, 3000), seed=st.integers(0, 2**64 - 1), epoch=st.integers(0, 9))
def test_a_shuffle_is_a_permutation(limit: int, count: int, seed: int, epoch: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(worldloom.data.samples, "_SHUFFLED_IN_MEMORY", limit)
        order = Shuffle(count, seed, epoch).at(np.arange(count))
        assert sorted(order.tolist()) == list(range(count))
        again = Shuffle(count, seed, epoch)
        pieces = [again.at(np.arange(begin, min(begin + 7, count))) for begin in range(0, count, 7)]
        np.testing.assert_array_equal(np.concatenate(pieces), order)
        if count > 20:  # the chance that two are the same is one in 20!
            assert order.tolist() != Shuffle(count, seed, epoch + 1).at(np.arange(count)).tolist()
            assert order.tolist() != Shuffle(count, seed ^ 1, epoch).at(np.arange(count)).tolist()


def test_a_computed_shuffle_leaves_no_order() -> None:
    count = 1 << 24
    order = Shuffle(count, 5, 0).at(np.arange(0, count, 97))
    assert abs(np.corrcoef(np.arange(len(order)), order)[0, 1]) < 0.01  # 4 / sqrt(172,961), four deviations
    assert abs(np.corrcoef(order[:-1], order[1:])[0, 1]) < 0.01
    counts = np.bincount(order * 16 // count, minlength=16)
    assert abs(counts / len(order) - 1 / 16).max() < 0.0025  # four deviations


def test_a_read_of_npy_shards_is_the_memory_of_the_file(tmp_path: Path) -> None:
    rows = make_rows(4, 20, 0, 0.2)
    write_rows(tmp_path / "d", rows, 10, "npy", "raw")
    found = Dataset(tmp_path / "d").read(["eye.rgb"], lanes=slice(1, 2), steps=slice(2, 9))["eye.rgb"]
    assert not found.flags.owndata
    assert not found.flags.writeable


def test_parts_are_one_table(tmp_path: Path) -> None:
    arguments: dict[str, Any] = {"steps": 6 * 40, "width": 8, "height": 8, "seed": 11, "policy": "idle"}
    Collector(tmp_path / "all", "catch", lanes=6, **arguments).run()
    for first, lanes in ((0, 2), (2, 4)):
        part = tmp_path / "d" / "parts" / f"00{first}"
        part.parent.mkdir(parents=True, exist_ok=True)
        options: dict[str, Any] = {"lanes": lanes, "first_lane": first, "all_lanes": 6, "shard_mb": 0.01}
        Collector(part, "catch", **options, **arguments).run()
    whole = Dataset(tmp_path / "all")
    places = [PartPlace("parts/000", 0, 2), PartPlace("parts/002", 2, 4, "node-b")]
    shard_steps = Dataset(tmp_path / "d" / "parts" / "000").description.shard_steps
    description = replace(whole.description, parts=places, shard_steps=shard_steps)
    replace_file(tmp_path / "d" / "dataset.json", description.to_json())
    shutil.copy(tmp_path / "all" / "index.jsonl", tmp_path / "d" / "index.jsonl")
    dataset = Dataset(tmp_path / "d")
    assert_same(dataset.read(), whole.read())
    assert_same(dataset.read(lanes=slice(1, 4), steps=slice(3, 9)), whole.read(lanes=slice(1, 4), steps=slice(3, 9)))
    for one, other in zip(dataset.episodes(), whole.episodes(), strict=True):
        assert one.number == other.number
        assert_same(one.rows, other.rows)
    batches = [list(each.sequences(5).batches(3, seed=1)) for each in (dataset, whole)]
    for one, other in zip(*batches, strict=True):
        assert_same(one, other)
    (tmp_path / "d" / "parts" / "002").rename(tmp_path / "elsewhere")
    with pytest.raises(DatasetError, match=r"parts/002.*node-b"):
        Dataset(tmp_path / "d")


@pytest.mark.parametrize("format", ["parquet", "npy"])
def test_an_incomplete_dataset_has_its_complete_shards(tmp_path: Path, format: Any) -> None:
    def stop(step: Step) -> bool:
        return step.number < 30

    arguments: dict[str, Any] = {"lanes": 3, "steps": 3 * 40, "width": 8, "height": 8, "seed": 1, "format": format}
    arguments |= {"shard_mb": 0.006}
    with pytest.raises(Stopped):
        Collector(tmp_path / "d", "catch", on_step=stop, **arguments).run()
    dataset = Dataset(tmp_path / "d")
    Collector(tmp_path / "whole", "catch", **arguments).run()
    whole = Dataset(tmp_path / "whole")
    assert not dataset.is_complete
    assert whole.is_complete
    assert 0 < dataset.steps <= 30
    assert dataset.steps % dataset.description.shard_steps == 0
    assert_same(dataset.read(), whole.read(steps=slice(0, dataset.steps)))
    plain = plain_episodes({name: values.swapaxes(0, 1) for name, values in dataset.read().items()})
    assert [(one.lane, one.length, one.is_whole) for one in dataset.episodes([])] == [
        (one["lane"], one["end"] - one["begin"], one["is_whole"]) for one in plain
    ]
    assert sum(one.length for one in dataset.episodes([])) == len(dataset.transitions())
    (tmp_path / "d" / "index.jsonl").unlink()
    empty = Dataset(tmp_path / "d")
    assert (len(empty), empty.num_episodes, len(empty.sequences(2)), len(empty.transitions())) == (0, 0, 0, 0)
    assert empty.read(["eye.rgb"])["eye.rgb"].shape == (3, 0, 8, 8, 3)


@pytest.mark.parametrize("kind", ALL_FORMATS, ids="-".join)
def test_a_pickled_dataset_reads_the_same(tmp_path: Path, kind: tuple[Format, str]) -> None:
    write_rows(tmp_path / "d", make_rows(3, 20, 0, 0.2), 6, *kind)
    dataset = Dataset(tmp_path / "d")
    expected = dataset.read()
    sequences = dataset.sequences(4, within_episodes=True)
    copied, data = pickle.loads(pickle.dumps(sequences)), pickle.dumps(dataset)
    assert_same(copied.batch(range(len(copied))), sequences.batch(range(len(sequences))))
    assert_same(pickle.loads(data).read(), expected)
    assert len(data) < 10_000  # files are opened again, not sent


@pytest.mark.parametrize("kind", [("parquet", "zstd"), ("parquet", "raw"), ("parquet", "png"), ("npy", "raw")])
def test_damaged_shards_are_explained(tmp_path: Path, kind: tuple[Format, str]) -> None:
    write_rows(tmp_path / "d", make_rows(3, 20, 0, 0.2), 20, *kind)
    suffix = "00000.parquet" if kind[0] == "parquet" else "00000/eye.rgb.npy"
    path = tmp_path / "d" / "shards" / suffix
    content = path.read_bytes()
    generator = np.random.default_rng(0)
    for _ in range(DAMAGES):
        damaged = bytearray(content)
        for at in generator.integers(0, len(content), 40).tolist():
            damaged[at] = 255 - damaged[at]
        path.write_bytes(damaged)
        with suppress(DamagedDataset):  # reading is not checking: other bytes may be frames, too
            Dataset(tmp_path / "d").read()
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(DamagedDataset, match="cannot be read"):
        Dataset(tmp_path / "d").read()
    path.unlink()
    with pytest.raises(DamagedDataset, match="cannot be read"):
        Dataset(tmp_path / "d").read()


def test_wrong_arguments_are_explained(tmp_path: Path) -> None:
    write_rows(tmp_path / "d", make_rows(3, 20, 0, 0.2), 20, "npy", "raw")
    dataset = Dataset(tmp_path / "d")
    assert "3 lanes × 20 steps" in repr(dataset)
    with pytest.raises(DatasetError, match=r"no column 'eye.red': expected some of episode, lane"):
        dataset.read(["eye.red"])
    with pytest.raises(TypeError, match="expected a list of names"):
        dataset.sequences(4, "eye.rgb")
    with pytest.raises(DatasetError, match="expected a slice of consecutive lanes"):
        dataset.read(lanes=slice(0, 3, 2))
    with pytest.raises(DatasetError, match="expected a slice of consecutive steps"):
        dataset.read(steps=3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="length is 0: expected at least 1"):
        dataset.sequences(0)
    with pytest.raises(ValueError, match="stride is 0: expected at least 1"):
        dataset.sequences(4, stride=0)
    with pytest.raises(ValueError, match="batch_size is 0"):
        dataset.sequences(4).batches(0)
    with pytest.raises(IndexError, match="expected indices below 60"):
        dataset[60]
    with pytest.raises(DatasetError, match="expected the directory of a dataset"):
        Dataset(tmp_path)
