"""Backdrops save time and change no byte of a view."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.scene_assets import evening
from tests.support.scene_builder import Lamp
from worldloom.kernels.outputs import DEFAULT_OUTPUT_NAMES, NORMALS, output_bits
from worldloom.kernels.raster.backdrop import CACHE_ENTRIES, MAX_ROWS
from worldloom.kernels.tables import (
    DIRECTIONAL,
    HEADLIGHT,
    LAMP_CONE,
    LAMP_DIFFUSE,
    LAMP_EXPONENT,
    LAMP_KIND,
    NO_MESH,
    SPOT,
    ViewTable,
)
from worldloom.render.arena import allocate_arena, lay_out
from worldloom.render.assets import AssetLibrary
from worldloom.render.cpu import CPURenderer
from worldloom.render.scene import Scene
from worldloom.render.views import look_at, make_views

ROWS = 6
STILL = 4
LANES = 5
LAMPS = (
    Lamp(SPOT, (0.5, -4, 2), (-0.1, 1, -0.5), "202020", "806040", "ffffff", (0.5, 0.1, 0.02), 60.0, 2.0),
    Lamp(DIRECTIONAL, towards=(1, 2, -3), diffuse="405060", specular="ffffff"),
)
TIMES_TO_KEEP = 3
"""Draws until a backdrop is used: one that misses, one that draws it, one that finds it."""


def furnish(
    scene: Scene, lanes: np.ndarray, rows: int = ROWS, still: int = STILL, seed: int = 0, glass: Sequence[int] = ()
) -> None:
    """Return a scene with the same still rows in all lanes, and different other rows."""
    rng = np.random.default_rng(seed)
    instances = scene.instances
    for lane in lanes.tolist():
        own, same = np.random.default_rng((seed, lane)), np.random.default_rng(seed)
        for index, row in enumerate(scene.rows([lane])[0].tolist()):
            rng = same if index < still else own
            instances.mesh[row] = rng.integers(0, 6)
            instances.pose[row, :, :3] = np.linalg.qr(rng.normal(size=(3, 3)))[0] * rng.uniform(0.3, 1.4)
            instances.pose[row, :, 3] = rng.uniform(-1.2, 1.2, 3)
            instances.color[row] = rng.uniform(0.2, 1.0, 3)
            instances.texture[row] = rng.integers(-1, 2) if index else 0
            instances.label[row] = 1 + index
    instances.shine[:] = (0.1, 0.5, 4.0)
    instances.alpha[scene.rows(lanes)[:, glass]] = 0.4
    scene.lanes.fog_range[lanes] = (2.0, 12.0)
    scene.lanes.light_direction[lanes] = rng.normal(size=3)


def stage(
    still: int = STILL,
    rows: int = ROWS,
    library: AssetLibrary | None = None,
    lamps: int = 0,
    glass: Sequence[int] = (),
) -> tuple[Scene, ViewTable]:
    scene = Scene(library or with_sky())
    lanes = scene.add(LANES, rows, still)
    furnish(scene, lanes, rows, still, glass=glass)
    for number, lamp in enumerate(LAMPS[:lamps]):
        scene.lanes.lamps[lanes, number] = lamp.numbers()
    scene.lanes.lamp_count[lanes] = lamps
    return scene, look(lanes)


def with_sky() -> AssetLibrary:
    library = AssetLibrary(texture_size=32)
    for side in range(6):
        library.add_texture(f"evening {side}", evening(side, 32))
    return library


def look(lanes: np.ndarray, **how: object) -> ViewTable:
    how = {"camera": look_at((0.5, -5, 1), (0, 0, 0)), "far": 30.0, "width": 23, "height": 17, **how}
    outputs = output_bits(DEFAULT_OUTPUT_NAMES)
    return make_views(lanes, **{"outputs": outputs, **how})  # type: ignore[arg-type]


def draw(renderer: CPURenderer, scene: Scene, views: ViewTable) -> bytes:
    """Return the bytes of all frames."""
    offsets, size_bytes = lay_out(views)
    arena = allocate_arena(size_bytes)
    renderer.draw(scene, views, arena, offsets)
    return arena.tobytes()


def draw_plainly(scene: Scene, views: ViewTable) -> bytes:
    """Draw with a new renderer and without still rows."""
    before = scene.lanes.static_rows.copy()
    scene.lanes.static_rows[:] = 0
    with CPURenderer(threads=1) as fresh:
        drawn = draw(fresh, scene, views)
    scene.lanes.static_rows[:] = before
    return drawn


@pytest.fixture
def alone() -> CPURenderer:
    return CPURenderer(threads=1)


def keep(renderer: CPURenderer, scene: Scene, views: ViewTable) -> None:
    for _ in range(TIMES_TO_KEEP):
        draw(renderer, scene, views)


def kept(renderer: CPURenderer) -> int:
    """Return the number of cached backdrops."""
    return int(np.count_nonzero(renderer._memory[0][1].length))


@pytest.mark.parametrize("size", [(23, 17), (64, 64), (1, 1), (8, 3), (200, 40)])
@pytest.mark.parametrize("orthographic", [False, True])
def test_bytes_are_the_same(alone: CPURenderer, size: tuple[int, int], orthographic: bool) -> None:
    scene, _ = stage()
    height = 4.0 if orthographic else np.nan
    views = look(np.arange(LANES), width=size[0], height=size[1], orthographic_height=height)
    expected = draw_plainly(scene, views)
    for _ in range(TIMES_TO_KEEP):
        assert draw(alone, scene, views) == expected
    assert kept(alone) == 1


@pytest.mark.parametrize("glass", [(), (1,), (0, 5), (4, 5)])
@pytest.mark.parametrize("outputs", range(1, 16))
def test_for_any_outputs(alone: CPURenderer, outputs: int, glass: tuple[int, ...]) -> None:
    scene, views = stage(glass=glass)
    views.outputs[:] = outputs
    expected = draw_plainly(scene, views)
    for _ in range(TIMES_TO_KEEP):
        assert draw(alone, scene, views) == expected
    assert kept(alone) == 1


def test_views_with_normals_have_no_backdrop_beside_those_that_have(alone: CPURenderer) -> None:
    scene, views = stage()
    keep(alone, scene, views)
    with_normals = look(np.arange(LANES), outputs=views.outputs | NORMALS)
    expected = draw_plainly(scene, with_normals)
    for _ in range(TIMES_TO_KEEP):
        assert draw(alone, scene, with_normals) == expected
    assert expected.startswith(draw(alone, scene, views)), "normals come after the other outputs, which are the same"
    assert kept(alone) == 1


def set_to(table: str, column: str, value: object) -> Callable[[Scene, ViewTable, int], None]:
    """Change a number of the views, of the lanes, or of one of the still rows of all lanes."""

    def change(scene: Scene, views: ViewTable, row: int) -> None:
        if table == "rows":
            getattr(scene.instances, column)[scene.rows(np.arange(LANES))[:, row]] = value
        else:
            array = getattr(views if table == "views" else scene.lanes, column)
            array[...] = value if not callable(value) else value(array)

    return change


CHANGES = {
    **{
        f"view's {column}": set_to("views", column, value)
        for column, value in {
            "camera": look_at((0.5, -5, 1.001), (0, 0, 0)),
            "orthographic": 1,
            "half_height": 0.51,
            "near": 4.5,
            "far": 5.0,
            "width": 24,
            "height": 16,
            "samples": 4,
        }.items()
    },
    **{
        f"lane's {column}": set_to("lanes", column, 0.3)
        for column in ("light_color", "ambient", "ambient_ground", "sky_horizon", "sky_zenith", "fog_color")
    },
    "lane's light_direction": set_to("lanes", "light_direction", (0.3, 0.2, -1.0)),
    "lane's fog_range": set_to("lanes", "fog_range", (3.0, 9.0)),
    "lane's static_rows": set_to("lanes", "static_rows", STILL - 1),
    **{
        f"row's {column}": set_to("rows", column, value)
        for column, value in {
            "mesh": NO_MESH,
            "pose": np.eye(3, 4),
            "color": 0.1,
            "texture": 2,
            "uv_scale": 3.0,
            "label": 99,
            "alpha": 0.6,
        }.items()
    },
    "lane's sky_textures": set_to("lanes", "sky_textures", 4),
}


def set_lamp(lamp: int, number: int, value: float) -> Callable[[Scene, ViewTable, int], None]:
    def change(scene: Scene, views: ViewTable, row: int) -> None:
        scene.lanes.lamps[:, lamp, number] = value

    return change


LAMP_CHANGES = {
    "lane's lamp_count": set_to("lanes", "lamp_count", 1),
    "lane's last lamp": set_lamp(1, LAMP_DIFFUSE + 2, 0.6),
    **{
        f"lane's lamps, number {number}": set_lamp(0, number, {LAMP_KIND: HEADLIGHT, LAMP_CONE: 0.98}.get(number, 0.8))
        for number in range(LAMP_EXPONENT + 1)
    },
    **{
        f"row's shine, {shine}": set_to("rows", "shine", shine)
        for shine in ((0.3, 0.5, 4.0), (0.1, 0.3, 4.0), (0.1, 0.5, 3.0))
    },
}


@pytest.mark.parametrize(
    ("what", "row"),
    [
        (what, row)
        for what in [*CHANGES, *LAMP_CHANGES]
        for row in range(STILL if what.startswith("row") and what in CHANGES else 1)
    ],
)
def test_a_backdrop_serves_only_what_is_the_same_in_everything(alone: CPURenderer, what: str, row: int) -> None:
    scene, views = stage(lamps=len(LAMPS) if what in LAMP_CHANGES else 0)
    keep(alone, scene, views)
    assert kept(alone) == 1
    before = draw_plainly(scene, views)
    {**CHANGES, **LAMP_CHANGES}[what](scene, views, row)
    expected = draw_plainly(scene, views)
    for _ in range(TIMES_TO_KEEP):
        assert draw(alone, scene, views) == expected
    if row == 0 and what != "lane's static_rows":
        assert expected != before, "the change is to be seen, or it tests nothing"


def test_lanes_that_differ_get_what_is_theirs(alone: CPURenderer) -> None:
    scene, views = stage()
    scene.instances.color[scene.rows(np.arange(LANES))[:, 0]] = np.linspace(0.1, 0.9, LANES)[:, None]
    expected = draw_plainly(scene, views)
    for _ in range(2 * TIMES_TO_KEEP):
        assert draw(alone, scene, views) == expected


def test_another_library_has_other_meshes_under_the_same_numbers(alone: CPURenderer) -> None:
    scene, views = stage()
    keep(alone, scene, views)
    other = AssetLibrary(texture_size=32)
    other.texture("brick")
    pixels = np.full((32, 32, 3), 7, np.uint8)
    other._textures = {name: np.full_like(texels, int(pixels[0, 0, 0])) for name, texels in other._textures.items()}
    elsewhere, _ = stage(library=other)
    expected = draw_plainly(elsewhere, views)
    assert expected != draw_plainly(scene, views)
    for _ in range(TIMES_TO_KEEP):
        assert draw(alone, elsewhere, views) == expected


def test_things_with_more_triangles_than_ever(alone: CPURenderer) -> None:
    scene, views = stage()
    scene.instances.mesh[:] = scene.assets.mesh("box")
    keep(alone, scene, views)
    scene.instances.mesh[scene.rows(np.arange(LANES))[:, STILL:]] = scene.assets.mesh("capsule")
    assert draw(alone, scene, views) == draw_plainly(scene, views)


def test_more_kinds_of_views_than_are_kept(alone: CPURenderer) -> None:
    scene, _ = stage()
    kinds = [
        look(np.arange(LANES), camera=look_at((0.1 * number, -5, 1), (0, 0, 0))) for number in range(3 * CACHE_ENTRIES)
    ]
    expected = [draw_plainly(scene, views) for views in kinds]
    for _ in range(TIMES_TO_KEEP):
        assert [draw(alone, scene, views) for views in kinds] == expected
    assert kept(alone) > CACHE_ENTRIES // 2


def test_more_rows_than_a_backdrop_has(alone: CPURenderer) -> None:
    scene, views = stage(still=MAX_ROWS + 1, rows=MAX_ROWS + 2)
    keep(alone, scene, views)
    assert draw(alone, scene, views) == draw_plainly(scene, views)
    assert kept(alone) == 0


def test_nothing_is_kept_of_what_does_not_stand_still(alone: CPURenderer) -> None:
    scene, views = stage(still=0)
    keep(alone, scene, views)
    assert kept(alone) == 0


@pytest.mark.parametrize("static_rows", [-1, 3])
def test_more_static_rows_than_rows_are_refused(static_rows: int) -> None:
    scene = Scene(AssetLibrary(texture_size=32))
    with pytest.raises(ValueError, match=f"static_rows is {static_rows}: expected 0 to 2"):
        scene.add(1, 2, static_rows)


@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_whatever_changes_between_draws(data: st.DataObject) -> None:
    scene, views = stage(
        still=data.draw(st.integers(0, ROWS)),
        lamps=data.draw(st.integers(0, len(LAMPS))),
        glass=data.draw(st.lists(st.integers(0, ROWS - 1), max_size=3)),
    )
    changed = [*CHANGES.items(), *LAMP_CHANGES.items()]
    with CPURenderer(threads=data.draw(st.sampled_from([1, 2]))) as renderer:
        for _ in range(data.draw(st.integers(1, 6))):
            draw(renderer, scene, views)
            _, change = data.draw(st.sampled_from(changed))
            change(scene, views, data.draw(st.integers(0, ROWS - 1)))
            assert draw(renderer, scene, views) == draw_plainly(scene, views)
