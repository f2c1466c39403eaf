"""RLlib's vector environments: an environment creator for `register_env`.

Environments that are registered with Gymnasium need no adaptor: give RLlib the id with the module that registers it,
`worldloom:worldloom/Maze-v0`. This is for any other family. RLlib wants next-step autoreset, the default.
"""

from collections.abc import Mapping
from typing import Any

from worldloom.client.adaptors import explain_missing
from worldloom.client.vector_env import VectorEnv

with explain_missing("rllib"):
    from ray.rllib.env.env_context import EnvContext

_DEFAULTS = {"address": "local", "flat": True, "clip_actions": True}


def make_rllib_env(config: "EnvContext | Mapping[str, Any]") -> VectorEnv:
    """Make the env of one env runner, from `env_config`: the arguments of VectorEnv.

    Use it with `gym_env_vectorize_mode="vector_entry_point"`. RLlib says how many lanes. Each runner has lanes of its
    own: with the same seed, lane 0 of the second runner follows the last lane of the first.
    """
    num_envs = config.get("num_envs", 1)
    runner = max(getattr(config, "worker_index", 0), 0)
    return VectorEnv(**{**_DEFAULTS, "num_envs": num_envs, "first_lane": runner * num_envs, **config})
