"""Shards in Ray Data, which opens them as they are."""

import warnings
from pathlib import Path

import numpy as np
import pytest

from worldloom.data import Collector, Dataset


@pytest.mark.usefixtures("ray_folder")
def test_ray_data_reads_shards(tmp_path: Path) -> None:
    import ray

    Collector(tmp_path / "d", "catch", lanes=4, steps=4 * 30, width=8, height=6, seed=5, shard_mb=0.02).run()
    dataset = Dataset(tmp_path / "d")
    with warnings.catch_warnings():  # Ray's own
        warnings.simplefilter("ignore")
        ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False, configure_logging=False)
        try:
            context = ray.data.DataContext.get_current()
            context.enable_progress_bars = False
            table = ray.data.read_parquet(str(tmp_path / "d" / "shards"))
            rows = sorted(table.take_all(), key=lambda row: (row["lane"], row["episode"], row["step"]))
        finally:
            ray.shutdown()
    assert len(rows) == len(dataset)
    for name, column in dataset.columns.items():
        expected = dataset.rows([name]).batch(range(len(dataset)))[name]
        values = [row[name] for row in rows]
        found = np.frombuffer(b"".join(values), column.dtype).reshape(expected.shape) if column.is_frame else values
        np.testing.assert_array_equal(found, expected, err_msg=name)
