"""Datasets: collected as fast as frames are drawn, and read by steps, episodes and sequences.

    from worldloom.data import Collector, Dataset

    Collector("out/maze", "maze", lanes=1024, steps=1_000_000).run()
    dataset = Dataset("out/maze")

`worldloom collect` and `worldloom data` do the same from a shell. The package needs the extra `worldloom[data]`.
"""

from worldloom.extras import explain_missing_extra

with explain_missing_extra("worldloom.data", "data"):
    from worldloom.data.collection import Progress, Step
    from worldloom.data.collector import Collector
    from worldloom.data.dataset import Dataset, Episode
from worldloom.data.errors import DamagedDataset, DatasetError, IncompleteDataset, PolicyError

__all__ = [
    "Collector",
    "DamagedDataset",
    "Dataset",
    "DatasetError",
    "Episode",
    "IncompleteDataset",
    "PolicyError",
    "Progress",
    "Step",
]
