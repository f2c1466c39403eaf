"""What tests of worlds share: the renderer, made once, and a registry that forgets what a test added."""

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
    """The families of this process, for this test alone."""
    fresh = registry.Registry(registry.installed_offers)
    monkeypatch.setattr(registry, "_registry", fresh)
    return fresh
