"""Parquet shards in the programs that people have: each opens them as they are, and finds the values of Dataset."""

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from worldloom.data import Collector, Dataset

NAMES = ["eye.rgb", "eye.depth", "ball"]
SIZE: dict[str, Any] = {"lanes": 4, "steps": 4 * 30, "width": 8, "height": 6, "seed": 5, "shard_mb": 0.02}


def collect(folder: Path, pictures: str) -> Dataset:
    Collector(folder / "d", "catch", observations=NAMES, pictures=pictures, **SIZE).run()
    dataset = Dataset(folder / "d")
    assert dataset.description.shards > 2
    return dataset


@pytest.fixture(scope="module", params=["raw", "zstd:1"])
def dataset(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return collect(tmp_path_factory.mktemp("readers"), request.param)


@pytest.fixture(scope="module", params=["png", "jpeg", "webp"])
def image_dataset(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return collect(tmp_path_factory.mktemp("images"), request.param)


def shards(dataset: Dataset) -> list[str]:
    return sorted(str(path) for path in (dataset.directory / "shards").glob("*.parquet"))


def rows_by_shard(dataset: Dataset) -> dict[str, np.ndarray]:
    """Return all columns [rows, ...] in the order of the files: shard after shard, lane after lane."""
    length = dataset.description.shard_steps
    parts = [dataset.read(steps=slice(begin, begin + length)) for begin in range(0, dataset.steps, length)]
    return {
        name: np.concatenate([part[name].reshape(-1, *part[name].shape[2:]) for part in parts]) for name in parts[0]
    }


def assert_same(column: str, found: Any, expected: dict[str, np.ndarray]) -> None:
    np.testing.assert_array_equal(np.array(found), expected[column], err_msg=column)


def frames_of(values: list[bytes], metadata: dict[bytes, bytes]) -> np.ndarray:
    """Return frames by what the metadata of their field says, and nothing else."""
    shape, dtype = json.loads(metadata[b"shape"]), metadata[b"dtype"].decode()
    assert metadata[b"encoding"] == b"raw"
    return np.frombuffer(b"".join(values), dtype).reshape(-1, *shape)


def test_pyarrow(dataset: Dataset) -> None:
    import pyarrow.dataset
    import pyarrow.parquet as pq

    expected = rows_by_shard(dataset)
    table = pyarrow.dataset.dataset(dataset.directory / "shards", format="parquet").to_table()
    assert table.column_names == list(expected)
    for name, column in dataset.columns.items():
        if column.is_frame:
            assert_same(name, frames_of(table[name].to_pylist(), table.schema.field(name).metadata), expected)
        else:
            assert_same(name, table[name].to_pylist(), expected)
    schema = pq.read_schema(shards(dataset)[0])
    assert json.loads(schema.metadata[b"worldloom"])["family"] == "catch"
    long = pq.read_table(dataset.directory / "shards", filters=[("reward", "!=", 0)], columns=["reward"])
    assert long.num_rows == (expected["reward"] != 0).sum() > 0


def test_polars(dataset: Dataset) -> None:
    import polars as pl

    expected = rows_by_shard(dataset)
    table = pl.read_parquet(shards(dataset))
    for name, column in dataset.columns.items():
        if column.is_frame:
            frames = np.frombuffer(b"".join(table[name].to_list()), column.dtype)
            assert_same(name, frames.reshape(-1, *column.shape), expected)
        else:
            assert_same(name, table[name].to_list(), expected)
    returns = pl.scan_parquet(shards(dataset)).group_by("episode").agg(pl.col("reward").sum()).collect()
    for episode, value in returns.iter_rows():
        assert value == expected["reward"][expected["episode"] == episode].sum()  # whole numbers


def test_duckdb(dataset: Dataset) -> None:
    import duckdb

    expected = rows_by_shard(dataset)
    with duckdb.connect() as connection:
        query = f"SELECT * FROM '{dataset.directory}/shards/*.parquet' ORDER BY step, lane, episode"
        order = np.lexsort((expected["episode"], expected["lane"], expected["step"]))
        ordered = {name: values[order] for name, values in expected.items()}
        found = connection.sql(query)
        values = dict(zip(found.columns, zip(*found.fetchall(), strict=True), strict=True))
        for name, column in dataset.columns.items():
            if column.is_frame:
                frames = np.frombuffer(b"".join(values[name]), column.dtype)
                assert_same(name, frames.reshape(-1, *column.shape), ordered)
            else:
                assert_same(name, values[name], ordered)
        count = "SELECT count(*), sum(reward) FROM '{}/shards/*.parquet' WHERE terminated"
        ended = expected["terminated"]
        known = (ended.sum(), expected["reward"][ended].sum())
        assert connection.sql(count.format(dataset.directory)).fetchall() == [known]


def test_hugging_face_datasets(dataset: Dataset, tmp_path: Path) -> None:
    import datasets

    expected = rows_by_shard(dataset)
    found = datasets.load_dataset("parquet", data_files=shards(dataset), split="train", cache_dir=str(tmp_path))
    assert found.num_rows == dataset.num_rows
    for name, column in dataset.columns.items():
        if column.is_frame:
            frames = np.frombuffer(b"".join(found[name]), column.dtype)
            assert_same(name, frames.reshape(-1, *column.shape), expected)
        else:
            assert_same(name, list(found[name]), expected)
    streamed = datasets.load_dataset("parquet", data_files=shards(dataset), split="train", streaming=True)
    assert next(iter(streamed))["eye.rgb"] == expected["eye.rgb"][0].tobytes()


def test_images_in_hugging_face_datasets(image_dataset: Dataset, tmp_path: Path) -> None:
    import datasets

    expected = rows_by_shard(image_dataset)
    files = shards(image_dataset)
    found = datasets.load_dataset("parquet", data_files=files, split="train", cache_dir=str(tmp_path))
    assert isinstance(found.features["eye.rgb"], datasets.Image)
    frames = np.stack([np.asarray(image.convert("RGB")) for image in found["eye.rgb"]])
    assert_same("eye.rgb", frames, expected)
    depth = np.frombuffer(b"".join(found["eye.depth"]), "float32")
    assert_same("eye.depth", depth.reshape(-1, 6, 8), expected)
    for name in ("ball", "action", "reward", "episode"):
        assert_same(name, list(found[name]), expected)


def test_images_elsewhere(image_dataset: Dataset) -> None:
    import duckdb
    import polars as pl

    expected = rows_by_shard(image_dataset)["eye.rgb"]
    column = pl.read_parquet(shards(image_dataset), columns=["eye.rgb"])["eye.rgb"]
    with duckdb.connect() as connection:
        query = f'SELECT "eye.rgb".bytes FROM read_parquet({shards(image_dataset)!r})'
        from_duckdb = [one for (one,) in connection.sql(query).fetchall()]
    from_polars = column.struct.field("bytes").to_list()
    assert from_duckdb == from_polars
    images = [Image.open(io.BytesIO(data)) for data in from_polars]
    kind = image_dataset.description.pictures.partition(":")[0]
    assert {image.format for image in images} == {kind.upper()}
    np.testing.assert_array_equal(np.stack([np.asarray(image.convert("RGB")) for image in images]), expected)
