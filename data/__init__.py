"""Datasets: collected as fast as frames are drawn, and read by steps, episodes and sequences.

    from worldloom.data import Collector, Dataset

    Collector("out/maze", "maze", lanes=1024, steps=1_000_000).run()
    dataset = Dataset("out/maze")

`worldloom collect` and `worldloom data` do the same from a shell; `worldloom render` draws states that are in files.
The package needs the extra `worldloom[data]`, but for states in NumPy's files, which are drawn without it. So each name
is imported when it is first used.
"""

import importlib
from typing import TYPE_CHECKING, Any

from worldloom.data.errors import DamagedDataset, DatasetError, IncompleteDataset, PolicyError

if TYPE_CHECKING:
    from worldloom.data.collection import Progress, Step
    from worldloom.data.collector import Collector
    from worldloom.data.dataset import Dataset, Episode

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
_MODULES = {
    "Collector": "collector",
    "Dataset": "dataset",
    "Episode": "dataset",
    "Progress": "collection",
    "Step": "collection",
}

if not TYPE_CHECKING:  # so that type checkers report names that do not exist

    def __getattr__(name: str) -> Any:
        """Import a public name when it is first used."""
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}: expected one of {', '.join(__all__)}")
        value = getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
