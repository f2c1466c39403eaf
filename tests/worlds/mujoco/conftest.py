"""Permissions as at the start of a process, for tests with environments of Gymnasium."""

import pytest

from worldloom.worlds.gym.permissions import allow_gym_ids, allow_gym_kwargs


@pytest.fixture(autouse=True)
def permissions() -> None:
    """Nothing but the defaults is allowed, whatever commands another test ran in this process."""
    for allow in (allow_gym_ids, allow_gym_kwargs):
        allow([])
