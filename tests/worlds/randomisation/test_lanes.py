"""What varies depends on seeds and numbers alone, and is drawn and applied as documented; compared with plain NumPy."""

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.determinism import ALL_SURROUNDINGS, check_same_bytes, draw, random_actions
from tests.support.toy import Toy
from worldloom.kernels.outputs import OUTPUT_NAMES, output_bits
from worldloom.kernels.tables import F64, I64
from worldloom.render.assets import AssetLibrary
from worldloom.render.cpu import CPURenderer
from worldloom.render.scene import Scene
from worldloom.worlds.pool import Pool
from worldloom.worlds.random import integers, lane_seeds, mix, normal, uniform
from worldloom.worlds.randomisation.draws import DRAWS, MOVES, NUMBERS
from worldloom.worlds.randomisation.settings import (
    CAMERA,
    COLORS,
    LIGHTS,
    SIZES,
    TEXTURES,
    TIMES,
    VARIATIONS,
    VISUAL,
    WALK,
    Randomisation,
    VariationChoice,
)
from worldloom.worlds.registry import find_family

ASSETS = AssetLibrary(texture_size=32)
BOX = ("cartpole", "catch", "maze")
SURROUNDINGS = (ALL_SURROUNDINGS[1], ALL_SURROUNDINGS[4])
_ROUNDING = 1e-6
"""Values are rounded to float32; those of a scene are of the order of one."""


def everything(amount: float, when: int) -> Randomisation:
    return Randomisation(
        tuple(amount if what in VISUAL else 0.0 for what in range(len(VARIATIONS))), (when,) * len(VARIATIONS)
    )


def only(what: int, amount: float = 1.0, when: int = 1) -> Randomisation:
    amounts = [0.0] * len(VARIATIONS)
    amounts[what] = amount
    return Randomisation(tuple(amounts), (when,) * len(VARIATIONS))


def make_pool(name: str, randomisation: Randomisation | None, **chosen: object) -> Pool:
    return Pool(find_family(name)(chosen, ASSETS), Scene(ASSETS), randomisation)


def step(pool: Pool, lanes: I64, steps: int) -> None:
    actions = random_actions(pool.family, steps, len(lanes), seed=0)
    for k in range(steps):
        pool.step(lanes, {name: action[k] for name, action in actions.items()})


@pytest.fixture(scope="module")
def renderer() -> Iterator[CPURenderer]:
    with CPURenderer() as made:
        yield made


@pytest.mark.parametrize("when", range(len(TIMES)), ids=TIMES)
@pytest.mark.parametrize("name", BOX)
def test_a_lane_depends_on_its_seed_alone(name: str, when: int) -> None:
    """In any pool, with other lanes that come and go, however seldom it is drawn."""
    chosen: dict[str, object] = {"size": 5} if name == "maze" else {}
    check_same_bytes(
        lambda assets: find_family(name)({**chosen, "max_steps": 6}, assets),
        lanes=2,
        steps=9,
        draw_every=4,
        randomisation=everything(0.5, when),
        among=SURROUNDINGS,
    )


def reference_numbers(what: int, count: int, seeds: np.ndarray, number: int, step: int, when: int) -> F64:
    """Return what is drawn for one variation in lanes with these seeds, [lanes, count]."""
    seeds = mix(mix(seeds, DRAWS + what), 0 if when == 0 else number)[:, None]
    columns = np.arange(count, dtype=np.uint64)
    if when == 2:
        return uniform(mix(seeds, MOVES + step), columns)
    place = uniform(seeds, columns)
    if when < WALK:
        return place
    keeps, deviation, largest = VARIATIONS[what].walk
    move = (2 * uniform(seeds, count + columns) - 1) * largest if keeps else np.zeros_like(place)
    for k in range(1, step + 1):
        wanted = np.clip(keeps * move + deviation * normal(mix(seeds, MOVES + k), columns), -largest, largest)
        after = np.clip(place + wanted, 0, 1)
        move, place = after - place, after
    return place


@pytest.mark.parametrize("when", range(len(TIMES)), ids=TIMES)
@pytest.mark.parametrize("what", [COLORS, LIGHTS, CAMERA], ids=["colors", "lights", "camera"])
def test_what_is_drawn_is_a_function_of_seed_number_and_step(what: int, when: int) -> None:
    pool = make_pool("catch", only(what, when=when))
    seeds = lane_seeds(4, 50)
    lanes = pool.add(seeds)
    name = f"variation.{VARIATIONS[what].name}"
    for steps_more, episode, steps in ((1, 0, 0), (3, 0, 3), (6, 0, 9), (1, 1, 0), (5, 1, 5)):
        step(pool, lanes, steps_more)
        assert (pool.steps[lanes] == steps).all()
        found = pool.observe(lanes, name)
        expected = reference_numbers(what, found.shape[1], seeds, episode, steps, when)
        assert found == pytest.approx(expected, abs=_ROUNDING)
        assert (pool.observe(lanes, "variation") == episode).all()


def test_numbers_are_uniform() -> None:
    pool = make_pool("catch", only(COLORS))
    lanes = pool.add(lane_seeds(4, 4000))
    numbers = pool.observe(lanes, "variation.colors")
    for column in numbers.T:  # Kolmogorov-Smirnov: 1.95 / sqrt(n) is exceeded in one of a thousand columns
        distance = np.abs(np.sort(column) - (np.arange(len(column)) + 0.5) / len(column)).max()
        assert distance < 1.95 / np.sqrt(len(column))
    assert np.abs(np.corrcoef(numbers.T) - np.eye(numbers.shape[1])).max() < 0.08  # five deviations of 1 / sqrt(n)


def test_the_number_can_be_chosen_and_limited() -> None:
    pool = make_pool("catch", only(COLORS))
    seeds = lane_seeds(4, 6)
    lanes = pool.add(seeds)
    pool.choose_variations(lanes, VariationChoice(seed=9, numbers=(3, 3, 4, 5, -1, -1)))
    numbers = pool.observe(lanes, "variation")
    assert numbers[:4].tolist() == [3, 3, 4, 5]
    assert numbers[4:].tolist() == integers(mix(seeds[4:], NUMBERS), 0, 2**31 - 1).tolist()
    drawn = pool.observe(lanes, "variation.colors")
    expected = [reference_numbers(COLORS, drawn.shape[1], np.array([9], np.uint64), k, 0, 1)[0] for k in numbers]
    assert drawn == pytest.approx(np.array(expected), abs=_ROUNDING)
    pool.choose_variations(lanes, VariationChoice(count=2))
    seen = set()
    for _ in range(12):
        step(pool, lanes, 10)
        seen |= {(int(lane), int(number)) for lane, number in zip(lanes, pool.observe(lanes, "variation"), strict=True)}
    assert seen == {(int(lane), number) for lane in lanes for number in (0, 1)}


def test_a_chosen_number_is_for_the_next_episode() -> None:
    pool = make_pool("catch", only(COLORS))
    lanes = pool.add(lane_seeds(4, 2))
    step(pool, lanes, 2)
    pool.choose_variations(lanes, VariationChoice(numbers=7))
    assert pool.observe(lanes, "variation").tolist() == [0, 0]
    step(pool, lanes, 9)
    assert pool.observe(lanes, "variation").tolist() == [7, 7]


def written(name: str, randomisation: Randomisation | None, seeds: np.ndarray, **chosen: object) -> tuple[Pool, I64]:
    """Return a pool whose lanes have written their scene."""
    pool = make_pool(name, randomisation, **chosen)
    lanes = pool.add(seeds)
    step(pool, lanes, 3)
    pool.views(lanes, "eye")
    return pool, pool.scene.rows(pool.scene_lane[lanes])


@pytest.mark.parametrize("amount", [0.2, 1.0])
@pytest.mark.parametrize("name", BOX)
def test_colors_are_within_the_range_and_equal_in_a_group(name: str, amount: float) -> None:
    seeds = lane_seeds(2, 9)
    (plain, plain_rows), (varied, rows) = written(name, None, seeds), written(name, only(COLORS, amount), seeds)
    before, after = plain.scene.instances.color[plain_rows], varied.scene.instances.color[rows]
    labels, shown = varied.scene.instances.label[rows], varied.scene.instances.mesh[rows] >= 0
    numbers = reference_numbers(COLORS, 3 * len(varied.family.labels), seeds, 0, 2, 1).reshape(len(seeds), -1, 3)
    low = np.maximum(before.astype(float) - amount, 0)
    high = np.minimum(before.astype(float) + amount, np.maximum(1, before))
    drawn = np.take_along_axis(numbers, labels.astype(int)[..., None], axis=1)
    assert after[shown] == pytest.approx((low + drawn * (high - low))[shown], abs=_ROUNDING)
    for column in ("pose", "texture", "label", "mesh", "uv_scale", "shine"):
        same = [getattr(pool.scene.instances, column)[of] for pool, of in ((plain, plain_rows), (varied, rows))]
        assert (same[0][shown] == same[1][shown]).all()


@pytest.mark.parametrize("name", BOX)
def test_sizes_are_about_the_middle_of_what_moves(name: str) -> None:
    seeds = lane_seeds(2, 9)
    (plain, plain_rows), (varied, rows) = written(name, None, seeds), written(name, only(SIZES), seeds)
    before, after = plain.scene.instances.pose[plain_rows], varied.scene.instances.pose[rows]
    labels, shown = varied.scene.instances.label[rows].astype(int), varied.scene.instances.mesh[rows] >= 0
    has_size = np.isin(labels, list(varied.family.sized_labels or ()))
    has_size[:, : varied.family.static_rows] = False
    numbers = reference_numbers(SIZES, len(varied.family.labels), seeds, 0, 2, 1)
    factor = np.where(has_size, 2 ** (2 * np.take_along_axis(numbers, labels, axis=1) - 1), 1)[..., None, None]
    assert after[shown][..., :3] == pytest.approx((before[..., :3] * factor)[shown], abs=_ROUNDING)
    assert (after[shown][..., 3] == before[shown][..., 3]).all()
    assert has_size.any()


def test_textures_are_of_the_set() -> None:
    seeds = lane_seeds(2, 400)
    varied, rows = written("catch", only(TEXTURES, 0.25), seeds)
    plain, plain_rows = written("catch", None, seeds)
    numbers = reference_numbers(TEXTURES, 2 * len(varied.family.labels), seeds, 0, 2, 1).reshape(len(seeds), -1, 2)
    drawn = np.take_along_axis(numbers, varied.scene.instances.label[rows].astype(int)[..., None], axis=1)
    found, before = varied.scene.instances.texture[rows], plain.scene.instances.texture[plain_rows]
    assert varied.randomised is not None
    known = varied.randomised.plan.textures
    assert (found == np.where(drawn[..., 0] < 0.25, known[(drawn[..., 1] * len(known)).astype(int)], before)).all()
    assert 0.2 < (drawn[..., 0] < 0.25).mean() < 0.3


@settings(max_examples=15)
@given(amount=st.floats(0.01, 1), seed=st.integers(0, 2**64 - 1))
def test_light_stays_within_its_limits(amount: float, seed: int) -> None:
    seeds = lane_seeds(seed, 5)
    plain, _ = written("cartpole", None, seeds)
    varied, _ = written("cartpole", only(LIGHTS, amount), seeds)
    before, after = plain.scene.lanes, varied.scene.lanes
    numbers = reference_numbers(LIGHTS, 52, seeds, 0, 2, 1)
    directions = after.light_direction.astype(float)
    lengths = np.linalg.norm(directions, axis=1)
    assert lengths == pytest.approx(np.linalg.norm(before.light_direction, axis=1), rel=1e-6)
    cosines = np.sum(directions * before.light_direction, axis=1) / lengths**2
    turns = np.tan(amount * np.pi / 4 * (2 * numbers[:, :2] - 1))
    # Two turns about axes across each other and the direction.
    assert cosines == pytest.approx(1 / np.sqrt(1 + np.sum(turns**2, axis=1)), abs=1e-6)
    for column, first in (("light_color", 2), ("ambient", 48), ("ambient_ground", 48)):
        bright = 1 + amount * (numbers[:, first : first + 1] - 0.5)
        tint = 1 + 0.5 * amount * (numbers[:, first + 1 : first + 4] - 0.5)
        assert getattr(after, column) == pytest.approx(getattr(before, column) * bright * tint, rel=1e-6)


@settings(max_examples=15)
@given(amount=st.floats(0.01, 1), seed=st.integers(0, 2**64 - 1))
def test_cameras_go_around_their_focus(amount: float, seed: int) -> None:
    seeds = lane_seeds(seed, 5)
    pool = make_pool("cartpole", only(CAMERA, amount))
    lanes = pool.add(seeds)
    placement = pool.place_camera(lanes, "eye", 0)
    own = pool.family.place_camera(pool.state, lanes, "eye", 0)
    focus_m = pool.family.cameras[0].focus_m
    around, rise, roll, away = reference_numbers(CAMERA, 4, seeds, 0, 0, 1).T
    pose, before = placement.pose.astype(float), own.pose.astype(float)
    focus = before[:, 3] - focus_m * before[:, 2]
    axes = pose[:, :, :3]
    assert np.einsum("nij,nik->njk", axes, axes) == pytest.approx(np.broadcast_to(np.eye(3), (5, 3, 3)), abs=1e-6)
    distance = focus_m * (1 - 0.5 * amount + 2 * amount * away)
    assert pose[:, :, 3] == pytest.approx(focus + distance[:, None] * pose[:, :, 2], abs=1e-5)
    start, limit = np.arcsin(before[2, 2]), amount * np.pi / 2
    low, high = max(start - limit, 0), min(start + limit, np.radians(89))
    assert np.arcsin(pose[:, 2, 2]) == pytest.approx(low + rise * (high - low), abs=1e-5)
    bearing = (2 * around - 1) * limit
    level = np.stack([np.sin(bearing), -np.cos(bearing)], axis=1)  # the camera stands in the south
    horizontal = pose[:, :2, 2] / np.linalg.norm(pose[:, :2, 2], axis=1, keepdims=True)
    assert horizontal == pytest.approx(level, abs=1e-4)  # of vectors down to 0.017 long
    right = np.stack([np.cos(bearing), np.sin(bearing), np.zeros(5)], axis=1)
    assert np.sum(pose[:, :, 0] * right, axis=1) == pytest.approx(np.cos((2 * roll - 1) * limit), abs=1e-5)
    assert placement.near == pytest.approx(own.near * (1 - 0.5 * amount))


def test_an_eye_turns_in_place_and_a_map_stays_over_its_middle() -> None:
    pool = make_pool("maze", only(CAMERA, 0.3))
    lanes = pool.add(lane_seeds(1, 20))
    step(pool, lanes, 2)
    eye, own = pool.place_camera(lanes, "eye", 0), pool.family.place_camera(pool.state, lanes, "eye", 0)
    assert (eye.pose[:, :, 3] == own.pose[:, :, 3]).all()
    assert (np.sum(eye.pose[:, :, 2] * own.pose[:, :, 2], axis=1) < 1).all()
    overhead = pool.place_camera(lanes, "map", 0)
    focus_m = pool.family.cameras[1].focus_m
    middle = overhead.pose[:, :, 3] - focus_m * overhead.pose[:, :, 2]
    assert middle[:, :2] == pytest.approx(np.full((20, 2), 4.5), abs=1e-5)
    assert np.ptp(overhead.half_height) > 0


@settings(max_examples=25)
@given(
    name=st.sampled_from(BOX),
    amounts=st.tuples(*[st.sampled_from([0.0, 1.0]) | st.floats(0, 1)] * len(VISUAL)),
    times=st.tuples(*[st.integers(0, 3)] * len(VISUAL)),
    seed=st.integers(0, 2**64 - 1),
)
def test_whatever_is_drawn_can_be_rendered(
    renderer: CPURenderer, name: str, amounts: tuple[float, ...], times: tuple[int, ...], seed: int
) -> None:
    """Colours, poses, cameras and lights are as renderers accept them, and the things of a lane stay what they are."""
    others = (0.0,) * (len(VARIATIONS) - len(VISUAL))
    pool = make_pool(name, Randomisation((*amounts, *others), (*times, *(1 for _ in others))))
    lanes = pool.add(lane_seeds(seed, 3))
    for _ in range(3):
        step(pool, lanes, 3)
        for camera in pool.family.cameras:
            views = pool.views(lanes, camera.name, width=12, height=10, outputs=output_bits(OUTPUT_NAMES))
            for frames in draw(pool, views, renderer):
                assert np.isfinite(frames["depth"]).all()
                assert frames["segmentation"].max() < len(pool.family.labels)
        rows = pool.scene.rows(pool.scene_lane[lanes])
        colors = pool.scene.instances.color[rows][pool.scene.instances.mesh[rows] >= 0]
        assert ((colors >= 0) & (colors <= 1.2)).all()  # goals of mazes are brighter than 1
        for spec in pool.variation_specs:
            numbers = pool.observe(lanes, spec.name)
            assert numbers.shape == (3, *spec.shape)
            assert ((numbers >= spec.minimum) & (numbers <= spec.maximum)).all()


def test_a_reused_row_keeps_nothing(renderer: CPURenderer) -> None:
    def frames(pool: Pool, lanes: I64) -> list[bytes]:
        step(pool, lanes, 4)
        return [one["rgb"].tobytes() for one in draw(pool, pool.views(lanes, "eye", width=16, height=16), renderer)]

    randomisation = everything(0.5, WALK)
    fresh = make_pool("catch", randomisation)
    expected = frames(fresh, fresh.add(lane_seeds(5, 3)))
    used = make_pool("catch", randomisation)
    before = used.add(lane_seeds(8, 5))
    used.choose_variations(before, VariationChoice(seed=1, count=3, numbers=5))
    frames(used, before)
    used.free(before)
    assert frames(used, used.add(lane_seeds(5, 3))) == expected


def test_steps_that_failed_leave_nothing() -> None:
    """Rows that are restored after an error have the walk of the step before, not that of the step that failed."""
    pool = make_pool("catch", only(COLORS, when=WALK))
    lanes = pool.add(lane_seeds(5, 3))
    step(pool, lanes, 4)
    expected = pool.observe(lanes, "variation.colors")
    saved = pool.save(lanes)
    step(pool, lanes, 12)
    pool.observe(lanes, "variation.colors")
    pool.restore(lanes, saved)
    assert (pool.observe(lanes, "variation.colors") == expected).all()


def test_pools_without_variations_have_none() -> None:
    pool = make_pool("catch", None)
    assert pool.randomised is None
    assert pool.variation_specs == ()
    assert pool.memory_bytes(10) == pool.family.memory_bytes(10)
    assert make_pool("catch", everything(0.5, 1)).memory_bytes(10) > pool.memory_bytes(10)


@pytest.mark.parametrize(
    ("attribute", "value", "message"),
    [
        ("row_groups", (0,), r"'toy': expected 2 numbers of 0 or more, .*; got 1, the least of them 0"),
        ("row_groups", (0, 1, 2), "got 3, the least of them 0"),
        ("row_groups", (), "got 0, the least of them 0"),
        ("row_groups", np.array([0, -1]), "got 2, the least of them -1"),
        ("sized_labels", (1, 256), r"'toy': expected labels from 0 to 255, got \[1, 256\]"),
        ("sized_labels", (-1,), r"got \[-1\]"),
    ],
)
def test_families_of_others_are_told_what_is_no_row_or_label(attribute: str, value: object, message: str) -> None:
    family = Toy({}, ASSETS)
    setattr(family, attribute, value)
    with pytest.raises(ValueError, match=f"{attribute} of family .*{message}"):
        Pool(family, Scene(ASSETS), only(COLORS))


def test_families_of_others_choose_groups_and_sizes() -> None:
    family = Toy({}, ASSETS)
    family.row_groups, family.sized_labels = (1, 0), (0, 255)
    assert Pool(family, Scene(ASSETS), everything(1.0, WALK)).randomised is not None
