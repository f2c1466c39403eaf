"""The renderers under test, each created once: tests that take `renderer` run with both."""

from collections.abc import Iterator

import pytest

from worldloom.render.choose import make_renderer
from worldloom.render.renderer import Renderer


@pytest.fixture(scope="session")
def cpu() -> Iterator[Renderer]:
    made = make_renderer("cpu")
    yield made
    made.close()


@pytest.fixture(scope="session")
def gl() -> Iterator[Renderer]:
    made = make_renderer("gl")
    yield made
    made.close()


@pytest.fixture(scope="session", params=["cpu", pytest.param("gl", marks=pytest.mark.gl)])
def renderer(request: pytest.FixtureRequest) -> Renderer:
    chosen: Renderer = request.getfixturevalue(request.param)
    return chosen
