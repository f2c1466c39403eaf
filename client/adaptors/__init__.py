"""Adaptors: worlds as the environments of learning libraries, a module for each.

| module | class | for |
|---|---|---|
| `sb3` | `SB3VecEnv` | Stable-Baselines3 |
| `torchrl` | `TorchRLEnv` | TorchRL |
| `rllib` | `make_rllib_env` | RLlib of Ray |
| `pettingzoo` | `PettingZooEnv` | PettingZoo: worlds with several agents |

Each imports its library, which an extra of the same name installs: `pip install 'worldloom[sb3]'`.
"""
