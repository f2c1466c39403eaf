"""The package `worldloom` itself: the names that users need, typed, and imported on first use."""

import tomllib
from pathlib import Path
from typing import assert_type

import pytest

import worldloom
import worldloom.client

VERSION = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]["version"]


def test_names_are_those_of_the_client() -> None:
    assert [name for name in worldloom.__all__ if name != "__version__"] == worldloom.client.__all__
    for name in worldloom.client.__all__:
        assert getattr(worldloom, name) is getattr(worldloom.client, name)
        assert getattr(worldloom, name).__doc__


def test_names_are_listed() -> None:
    assert {*worldloom.__all__, "client", "server", "worlds"} <= set(dir(worldloom))
    assert set(worldloom.client.__all__) <= set(dir(worldloom.client))


def test_names_have_types() -> None:
    """`make check` verifies these, and that the names of the next test are reported as errors."""
    assert_type(worldloom.VectorEnv, type[worldloom.client.VectorEnv])
    assert_type(worldloom.LostConnection("text"), worldloom.client.LostConnection)
    assert assert_type(worldloom.__version__, str) == VERSION


def test_unknown_names() -> None:
    with pytest.raises(AttributeError) as caught:
        worldloom.VectorEnw  # type: ignore[attr-defined]  # noqa: B018
    assert str(caught.value) == (
        f"module 'worldloom' has no attribute 'VectorEnw': expected one of {', '.join(worldloom.__all__)}"
    )
    with pytest.raises(AttributeError, match=r"module 'worldloom\.client' has no attribute 'Vector': expected one of"):
        worldloom.client.Vector  # type: ignore[attr-defined]  # noqa: B018
