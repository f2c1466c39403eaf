"""What tests of the server share: one renderer, made once, and an engine that ticks when it is told to."""

from collections.abc import Iterator

import pytest

from scripts.support.engine_streams import EngineHarness
from worldloom.render.cpu import CPURenderer
from worldloom.worlds import registry


@pytest.fixture(scope="session")
def cpu() -> Iterator[CPURenderer]:
    with CPURenderer(threads=1) as made:
        yield made


@pytest.fixture
def harness(cpu: CPURenderer) -> EngineHarness:
    return EngineHarness(cpu)


@pytest.fixture(scope="module")
def fresh_registry() -> Iterator[registry.Registry]:
    """The families of this process, for the tests of this file alone."""
    fresh = registry.Registry(registry.installed_entry_points)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registry, "_registry", fresh)
        yield fresh
