"""Environments that only these tests have, and permissions as at the start of a process."""

from collections.abc import Iterator

import gymnasium
import pytest

from tests.support import odd_environments
from worldloom.worlds.gym.permissions import allow_gym_ids, allow_gym_kwargs


@pytest.fixture(autouse=True)
def permissions() -> Iterator[None]:
    """The environments of `odd_environments` are registered, and nothing but the defaults is allowed afterwards."""
    _allow_defaults()  # commands that another test ran in this process may have changed them
    odd_environments.register()
    yield
    for env_id in [one for one in gymnasium.registry if one.startswith("odd/")]:
        del gymnasium.registry[env_id]
    _allow_defaults()


def _allow_defaults() -> None:
    allow_gym_ids([])
    allow_gym_kwargs([])
