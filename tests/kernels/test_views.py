"""Offsets, sizes and validity of views, compared with plain NumPy and with the checks that explain errors."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from worldloom.kernels.outputs import OUTPUT_COUNT, PIXEL_BYTES
from worldloom.kernels.simd import SIMD_WIDTH
from worldloom.kernels.tables import (
    DIRECTIONAL,
    HEADLIGHT,
    I64,
    LAMP_KIND,
    LAMP_SHADOW,
    MAX_LAMPS,
    SCREEN_SKY,
    SPOT,
    TINTED_SKY,
    U8,
    ViewTable,
)
from worldloom.kernels.views import assign_offsets, is_valid_draw, measure_views
from worldloom.render.arena import PROCESS_MEMORY, address_of
from worldloom.render.assets import AssetLibrary
from worldloom.render.check import _is_valid, raise_first_error
from worldloom.render.scene import Scene
from worldloom.render.views import frame_bytes, look_at, make_views

ASSETS = AssetLibrary(texture_size=4)
for number in range(4):
    ASSETS.add_texture(f"side {number}", np.zeros((4, 4, 3), np.uint8))
LANES, ROWS = 5, 3
SPOILS: dict[str, tuple[Any, ...]] = {
    "lane": (-1, LANES, LANES - 1, 0),
    "width": (0, -1, 1, 8192, 8193),
    "height": (0, -1, 1, 8192, 8193),
    "samples": (0, 1, 2, 4, 5),
    "shadows": (0, 1, 2, 255),
    "outputs": (0, 1, 15, 16, 255),
    "orthographic": (0, 1, 2),
    "half_height": (0.0, -1.0, np.nan, np.inf, 3e38, 1e-30),
    "near": (0.0, -1.0, np.nan, np.inf, -np.inf, 1e-30, -3e38),
    "far": (0.0, -1.0, np.nan, np.inf, -np.inf, 3e38, 0.05),
}
"""Values at and around the limits of each column."""
LANE_SPOILS = {
    "lamp_count": (-1, 0, MAX_LAMPS, MAX_LAMPS + 1),
    "sky_textures": (
        *(-(2**31), SCREEN_SKY - 8, SCREEN_SKY - 7, SCREEN_SKY, SCREEN_SKY + 1, -10, -9, -2, -1, 0, 2, 3),
        *(TINTED_SKY - 1, TINTED_SKY, TINTED_SKY + 2, TINTED_SKY + 3, 2**31 - 1),
    ),
}


def make_scene(rng: np.random.Generator) -> Scene:
    scene = Scene(ASSETS)
    every = scene.rows(scene.add(LANES, ROWS)).ravel()
    scene.lanes.lamp_count[:] = rng.integers(0, MAX_LAMPS, LANES)
    scene.lanes.lamps[..., LAMP_KIND] = rng.choice([DIRECTIONAL, SPOT, HEADLIGHT], (LANES, MAX_LAMPS))
    scene.lanes.lamps[..., LAMP_SHADOW] = rng.choice([0.0, 2.0], (LANES, MAX_LAMPS))
    scene.lanes.sky_textures[:] = rng.integers(-1, len(ASSETS.table.texels) - 5, LANES)
    scene.instances.mesh[every] = rng.integers(-1, len(ASSETS.table.mesh_first_triangle), every.size)
    scene.instances.texture[every] = rng.integers(-1, len(ASSETS.table.texels), every.size)
    return scene


def random_views(rng: np.random.Generator, count: int) -> ViewTable:
    return make_views(
        rng.integers(0, LANES, count),
        camera=look_at(rng.normal(size=(count, 3)), rng.normal(size=(count, 3))),
        width=rng.integers(1, 40, count),
        height=rng.integers(1, 40, count),
        outputs=rng.integers(0, 16, count),
        samples=rng.choice([1, 4], count),
        shadows=rng.integers(0, 2, count),
        orthographic_height=rng.choice([np.nan, 2.0], count),
    )


def lay_out_by(views: ViewTable, order: str, rng: np.random.Generator, gap: int = 0) -> tuple[I64, int]:
    """Offsets one after another, view after view, output after output or anyhow."""
    sizes = frame_bytes(views)
    indices = np.argwhere(np.ones_like(sizes))
    indices = {"views": indices, "outputs": indices[np.lexsort(indices.T)], "any": rng.permutation(indices)}[order]
    offsets, end = np.full(sizes.shape, -1), 0
    for view, output in indices:
        if sizes[view, output]:
            offsets[view, output] = end
            end += sizes[view, output] + gap
    return offsets, int(end)


def fault(scene: Scene, views: ViewTable, arena: U8, offsets: I64) -> str:
    try:
        raise_first_error(scene, views, arena, offsets)
    except ValueError as error:
        return str(error)
    return ""


@given(seed=st.integers(0, 2**32), count=st.integers(0, 7), start=st.integers(0, 99))
def test_frames_lie_output_after_output(seed: int, count: int, start: int) -> None:
    views = random_views(np.random.default_rng(seed), count)
    offsets = np.empty((count, OUTPUT_COUNT), np.int64)
    end = assign_offsets(views.width, views.height, views.outputs, start, offsets)
    sizes = frame_bytes(views)
    before = (np.cumsum(sizes.T.ravel()) - sizes.T.ravel()).reshape(OUTPUT_COUNT, count).T
    assert (offsets == np.where(sizes > 0, start + before, -1)).all()
    assert end == start + sizes.sum()


def test_frames_of_any_size_have_a_place() -> None:
    views = make_views([0, 0], width=[2**31 - 1, 8192], height=[2**31 - 1, 8192], outputs=4)
    offsets = np.empty((2, OUTPUT_COUNT), np.int64)
    end = assign_offsets(views.width, views.height, views.outputs, 0, offsets)
    assert end == PIXEL_BYTES[2] * ((2**31 - 1) ** 2 + 8192**2) - 2**64 * (end < 0)


@given(seed=st.integers(0, 2**32), count=st.integers(0, 7))
def test_views_are_measured(seed: int, count: int) -> None:
    rng = np.random.default_rng(seed)
    scene, views, table = make_scene(rng), random_views(rng, count), ASSETS.table
    measured = measure_views(
        views.lane,
        views.width,
        views.height,
        views.shadows,
        scene.lanes.lamp_count,
        scene.lanes.lamps,
        scene.lanes.first_row,
        scene.lanes.row_count,
        scene.instances.mesh,
        table.mesh_triangle_count,
        table.mesh_corner_count,
    )
    mesh = scene.instances.mesh[scene.rows(views.lane)] if count else np.zeros((0, ROWS), np.int32)
    lanes = scene.lanes
    casts = (lanes.lamps[..., LAMP_KIND] != HEADLIGHT) & (lanes.lamps[..., LAMP_SHADOW] > 0)
    there = np.arange(MAX_LAMPS) < lanes.lamp_count[:, np.newaxis]
    lights = np.where(lanes.lamp_count > 0, (casts & there).sum(axis=1), 1)[views.lane]  # without lamps, the sun
    padded = -(-views.width.astype(np.int64) // SIMD_WIDTH) * SIMD_WIDTH
    assert measured == (
        np.where(mesh >= 0, table.mesh_corner_count[mesh], 0).max(initial=0),
        np.where(mesh >= 0, table.mesh_triangle_count[mesh], 0).sum(axis=1).max(initial=0),
        (padded * views.height).max(initial=0),
        # A light map has at least 128 texels a side; no view here needs more.
        (views.shadows * lights * 128**2).max(initial=1),
        (views.width.astype(np.int64) * views.height).sum(),
    )


@settings(max_examples=400)
@given(
    seed=st.integers(0, 2**32),
    count=st.integers(0, 4),
    order=st.sampled_from(["views", "outputs", "any"]),
    spoiled=st.sampled_from([None, *SPOILS, *LANE_SPOILS, "camera", "mesh", "texture", "offsets", "arena"]),
)
def test_sound_is_what_nothing_is_wrong_with(seed: int, count: int, order: str, spoiled: str | None) -> None:
    rng = np.random.default_rng(seed)
    scene, views = make_scene(rng), random_views(rng, count)
    offsets, size_bytes = lay_out_by(views, order, rng, gap=int(rng.integers(0, 3)))
    arena = np.zeros(max(0, size_bytes - (rng.integers(0, 9) if spoiled == "arena" else 0)), np.uint8)
    if spoiled in ("mesh", "texture"):
        known = len(ASSETS.table.mesh_first_triangle if spoiled == "mesh" else ASSETS.table.texels)
        getattr(scene.instances, spoiled)[rng.integers(LANES * ROWS)] = rng.choice([-2, -1, known - 1, known])
    elif spoiled in LANE_SPOILS:
        getattr(scene.lanes, spoiled)[rng.integers(LANES)] = rng.choice(LANE_SPOILS[spoiled])
    elif count and spoiled == "offsets":
        offsets.ravel()[rng.integers(offsets.size)] += rng.integers(-40, 40)
    elif count and spoiled == "camera":
        views.camera[rng.integers(count), rng.integers(3), rng.integers(4)] += rng.choice([1e-4, 0.1, np.nan, np.inf])
    elif count and spoiled in SPOILS:
        getattr(views, spoiled)[rng.integers(count)] = rng.choice(SPOILS[spoiled])
        if spoiled in ("width", "height", "outputs"):
            offsets, size_bytes = lay_out_by(views, order, rng)
            arena = np.zeros(min(max(0, size_bytes), 1 << 22), np.uint8)
    assert _is_valid(scene, views, arena, offsets) == (not fault(scene, views, arena, offsets))


@settings(max_examples=30)
@given(seed=st.integers(0, 2**32), count=st.integers(2, 300))
def test_slots_that_overlap_are_found_in_any_order(seed: int, count: int) -> None:
    rng = np.random.default_rng(seed)
    scene, views = make_scene(rng), random_views(rng, count)
    views.outputs[:2] |= 1
    offsets, size_bytes = lay_out_by(views, "any", rng, gap=int(rng.integers(0, 2)))
    offsets[offsets >= 0] += 1 << 40
    memory = np.lib.stride_tricks.as_strided(np.zeros(1, np.uint8), ((1 << 40) + size_bytes,), (1,))  # never touched
    assert _is_valid(scene, views, memory, offsets)
    sizes = frame_bytes(views)
    asked = np.argwhere(sizes > 0)
    one, other = asked[rng.permutation(len(asked))[:2]]
    offsets[tuple(one)] = offsets[tuple(other)] + rng.integers(1 - sizes[tuple(one)], sizes[tuple(other)])
    assert not _is_valid(scene, views, memory, offsets)


@pytest.mark.parametrize("lane", range(LANES))
def test_rows_that_no_view_can_show_do_not_matter(lane: int) -> None:
    rng = np.random.default_rng(lane)
    scene, views = make_scene(rng), make_views([3, 1, 3], camera=look_at((0, 0, 0), (0, 1, 0)))
    offsets, size_bytes = lay_out_by(views, "outputs", rng)
    arena = np.zeros(size_bytes, np.uint8)
    scene.instances.mesh[scene.rows(lane)[0, 1]] = 999
    shown, last = lane in (1, 3), len(scene.assets.table.mesh_coarser) - 1
    assert _is_valid(scene, views, arena, offsets) == (not shown)
    expected = f"instance row {lane * ROWS + 1}: mesh is 999, expected -1 for none, or 0 to {last}" if shown else ""
    assert fault(scene, views, arena, offsets) == expected


@pytest.mark.parametrize(
    ("column", "value", "expected"),
    [
        ("lamp_count", MAX_LAMPS + 1, f"lamp_count is {MAX_LAMPS + 1}, expected 0 to {MAX_LAMPS}"),
        (
            "sky_textures",
            3,
            "sky_textures is 3, expected -1 for none, the first of 6 textures of the 8 there are, or -2 or "
            f"{SCREEN_SKY} less the only one",
        ),
    ],
)
@pytest.mark.parametrize("lane", range(LANES))
def test_lanes_that_no_view_is_of_do_not_matter(lane: int, column: str, value: int, expected: str) -> None:
    rng = np.random.default_rng(lane)
    scene, views = make_scene(rng), make_views([3, 1, 3], camera=look_at((0, 0, 0), (0, 1, 0)))
    offsets, size_bytes = lay_out_by(views, "outputs", rng)
    arena = np.zeros(size_bytes, np.uint8)
    getattr(scene.lanes, column)[lane] = value
    shown = lane in (1, 3)
    assert _is_valid(scene, views, arena, offsets) == (not shown)
    assert fault(scene, views, arena, offsets) == (f"lane {lane}: {expected}" if shown else "")


def test_all_memory_is_an_arena_like_any_other() -> None:
    rng = np.random.default_rng(1)
    scene, views = make_scene(rng), random_views(rng, 3)
    offsets, size_bytes = lay_out_by(views, "any", rng)
    arena = np.zeros(size_bytes, np.uint8)
    offsets[offsets >= 0] += address_of(arena)
    assert _is_valid(scene, views, PROCESS_MEMORY, offsets)


def test_tables_that_kernels_were_not_made_for_are_left_to_the_words() -> None:
    rng = np.random.default_rng(1)
    scene, views = make_scene(rng), random_views(rng, 3)
    offsets, size_bytes = lay_out_by(views, "outputs", rng)
    arena = np.zeros(size_bytes, np.uint8)
    assert _is_valid(scene, views, arena, offsets)
    compiled = len(is_valid_draw.signatures)  # type: ignore[attr-defined]
    for column in ViewTable._fields:
        values = getattr(views, column)
        for other in (values.astype(np.float64), np.repeat(values, 2, axis=0)[::2], values[:2], values[..., None]):
            changed = views._replace(**{column: other})
            assert not _is_valid(scene, changed, arena, offsets)
            assert fault(scene, changed, arena, offsets)
    flat = views._replace(camera=views.camera.ravel()[:3])
    assert not _is_valid(scene, flat, arena, offsets)
    wrongs: list[Any] = [offsets.astype(np.int32), offsets[:2], np.asfortranarray(offsets)]
    for wrong in wrongs:
        assert not _is_valid(scene, views, arena, wrong)
        assert fault(scene, views, arena, wrong)
    assert len(is_valid_draw.signatures) == compiled  # type: ignore[attr-defined]
