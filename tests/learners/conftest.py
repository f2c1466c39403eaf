"""Tests with learning libraries: those of the environment that runs them, see scripts/setup-learners.sh."""

import importlib
import importlib.util
import warnings
from collections.abc import Iterator

import pytest
import torch

from scripts.support.server_process import serving

LIBRARIES = {
    "test_bench.py": ("stable_baselines3", "torchrl"),
    "test_datasets.py": ("pyarrow",),
    "test_examples.py": ("matplotlib", "stable_baselines3", "torchrl"),
    "test_gymnasium.py": ("stable_baselines3",),  # in one of the environments, with each version of Gymnasium
    "test_offline.py": ("minari", "pyarrow", "torchrl"),
    "test_pettingzoo.py": ("pettingzoo",),
    "test_ppo.py": ("matplotlib", "mujoco"),
    "test_rllib.py": ("ray",),
    "test_rllib_example.py": ("ray",),
    "test_sb3.py": ("stable_baselines3",),
    "test_torchrl.py": ("torchrl",),
}
collect_ignore = [
    name for name, modules in LIBRARIES.items() if not all(importlib.util.find_spec(module) for module in modules)
]

if importlib.util.find_spec("torchrl"):
    with warnings.catch_warnings():  # it warns of its own future while it is imported
        warnings.simplefilter("ignore")
        importlib.import_module("torchrl.collectors")


torch.set_num_threads(1)  # two workers share the cores, and threads that wait for each other spin


@pytest.fixture(scope="session")
def server_address() -> Iterator[str]:
    with serving() as server:
        yield server.address
