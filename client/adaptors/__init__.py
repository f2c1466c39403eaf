"""Adaptors: worlds as the environments of learning libraries, a module for each.

| module | class | for |
|---|---|---|
| `sb3` | `SB3VecEnv` | Stable-Baselines3 |
| `torchrl` | `TorchRLEnv` | TorchRL |
| `rllib` | `make_rllib_env` | RLlib of Ray |
| `pettingzoo` | `PettingZooEnv` | PettingZoo: worlds with several agents |

Each imports its library, which an extra of the same name installs: `pip install 'worldloom[sb3]'`.
"""

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def explain_missing(extra: str) -> Iterator[None]:
    """Tell which extra to install if the library that is imported in the `with` block is missing."""
    try:
        yield
    except ImportError as error:  # Ray raises it without a name where RLlib's part of it is missing
        raise ModuleNotFoundError(
            f"worldloom.client.adaptors.{extra} needs {error.name or f'all of {extra}'}, which is not installed: "
            f"pip install 'worldloom[{extra}]'",
            name=error.name,
        ) from error
