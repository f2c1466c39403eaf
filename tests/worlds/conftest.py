"""Fixtures of the tests of worlds: one renderer, and a registry for each test."""

from collections.abc import Iterator

import pytest

from worldloom.render.choose import make_renderer
from worldloom.render.renderer import Renderer
from worldloom.worlds import registry


@pytest.fixture(scope="session")
def cpu() -> Iterator[Renderer]:
    made = make_renderer("cpu")
    yield made
    made.close()


@pytest.fixture
def fresh_registry(monkeypatch: pytest.MonkeyPatch) -> registry.Registry:
    """A registry of families that is used by one test only."""
    fresh = registry.Registry(registry.installed_entry_points)
    monkeypatch.setattr(registry, "_registry", fresh)
    return fresh
