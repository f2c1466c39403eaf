"""Catch: compared with a model in plain Python, deterministic in any pool, and visible in its frames."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from scripts.support.catch_model import CatchModel
from tests.support.determinism import check_same_bytes, check_seeds_differ, draw
from worldloom.kernels.outputs import OUTPUT_NAMES, output_bits
from worldloom.kernels.tables import I64
from worldloom.render.assets import AssetLibrary
from worldloom.render.renderer import Renderer
from worldloom.render.scene import Scene
from worldloom.worlds.catch.family import Catch
from worldloom.worlds.episodes import FIRST, INTERRUPTED, LAST, MID, RUNNING, TERMINATED
from worldloom.worlds.family import State
from worldloom.worlds.pool import Pool
from worldloom.worlds.random import lane_seeds
from worldloom.worlds.settings import SettingError

ASSETS = AssetLibrary(texture_size=32)
STEP_TYPES = {"FIRST": FIRST, "MID": MID, "LAST": LAST}
LABELS = {name: number for number, name in enumerate(Catch.labels)}


def make_pool(**chosen: object) -> Pool:
    return Pool(Catch(chosen, ASSETS), Scene(ASSETS))


def moves(*each: int) -> dict[str, np.ndarray]:
    return {"paddle": np.array(each, np.int32)[:, None]}


@pytest.mark.parametrize(
    ("rows", "columns", "max_steps"), [(10, 5, 1000), (3, 2, 1000), (4, 9, 1000), (64, 64, 1000), (12, 6, 7)]
)
def test_ten_thousand_random_steps_as_the_model_says(rows: int, columns: int, max_steps: int) -> None:
    lanes, steps = 5, 2000  # of each of five boards
    pool = make_pool(rows=rows, columns=columns, max_steps=max_steps)
    seeds = lane_seeds(3, lanes)
    added = pool.add(seeds)
    models = [CatchModel(int(seed), rows, columns, max_steps) for seed in seeds]
    rng = np.random.default_rng(rows)
    for _ in range(steps):
        chosen = rng.integers(-1, 2, lanes)
        pool.step(added, moves(*chosen))
        ball, paddle = pool.observe(added, "ball"), pool.observe(added, "paddle")
        for lane, model in enumerate(models):
            assert model.step(int(chosen[lane])) == {
                "step_type": next(name for name, number in STEP_TYPES.items() if number == pool.step_type[lane]),
                "reward": pool.reward[lane, 0],
                "discount": pool.discount[lane],
                "ball": ball[lane].tolist(),
                "paddle": paddle[lane],
            }


def test_following_the_ball_catches_it_and_staying_away_misses_it() -> None:
    pool = make_pool()
    lanes = pool.add(lane_seeds(1, 200))
    pool.step(lanes, moves(*[0] * 200))
    for _ in range(9):
        aside = pool.observe(lanes, "ball")[:, 1] - pool.observe(lanes, "paddle")
        aside[100:] = np.where(pool.observe(lanes[100:], "ball")[:, 1] < 2, 1, -1)
        pool.step(lanes, moves(*np.sign(aside)))
    assert (pool.status[lanes] == TERMINATED).all()
    assert (pool.discount[lanes] == 0).all()
    assert (pool.reward[lanes[:100]] == 1).all()
    assert (pool.reward[lanes[100:]] == -1).all()


def test_balls_come_in_every_column_alike() -> None:
    pool = make_pool(columns=8)
    lanes = pool.add(lane_seeds(2, 8000))
    pool.step(lanes, moves(*[0] * 8000))
    counts = np.bincount(pool.observe(lanes, "ball")[:, 1], minlength=8)
    # Each is binomial around 1000 with a deviation of 29.6: five of those, for eight columns and one fixed seed.
    assert abs(counts - 1000).max() < 148


def test_a_time_limit_interrupts() -> None:
    pool = make_pool(max_steps=3)
    lanes = pool.add(lane_seeds(1, 2))
    for expected in (RUNNING, RUNNING, RUNNING, INTERRUPTED, RUNNING):
        pool.step(lanes, moves(0, 0))
        assert (pool.status[lanes] == expected).all()
        assert (pool.discount[lanes] == 1).all()


def test_the_same_bytes_in_any_pool() -> None:
    check_same_bytes(lambda assets: Catch({}, assets))


class LooksAtLanes(Catch):
    """A family that breaks the rules: its episodes depend on the numbers of lanes."""

    def reset(self, state: State, lanes: I64, seeds: NDArray[np.uint64]) -> None:
        super().reset(state, lanes, seeds)
        state.ball[lanes, 1] = (state.ball[lanes, 1] + lanes) % self.columns


def test_a_family_that_looks_at_lane_numbers_is_found_out() -> None:
    with pytest.raises(AssertionError, match=r"step 0, .*before=9.*: ball of 0, eye.rgb@0,"):
        check_same_bytes(lambda assets: LooksAtLanes({}, assets))


def test_seeds_differ() -> None:
    check_seeds_differ(lambda assets: Catch({"columns": 9}, assets))


@settings(max_examples=25)
@given(rows=st.integers(3, 64), columns=st.integers(2, 64), aspect=st.sampled_from([1.0, 1.5, 3.0]))
def test_the_frames_show_the_ball_and_the_paddle_where_they_are(
    cpu: Renderer, rows: int, columns: int, aspect: float
) -> None:
    pool = make_pool(rows=rows, columns=columns)
    lanes = pool.add(lane_seeds(1, 4))
    pool.step(lanes, moves(0, 0, 0, 0))
    pool.state.ball[lanes] = [(0, 0), (0, columns - 1), (rows - 2, 0), (rows - 2, columns - 1)]
    pool.state.paddle[lanes] = [0, columns - 1, 0, columns - 1]
    height = 320
    views = pool.views(lanes, "eye", width=int(height * aspect), height=height, outputs=output_bits(["segmentation"]))
    cell = height / 2 / float(views.half_height[0])
    for lane, frames in enumerate(draw(pool, views, cpu)):
        labels = frames["segmentation"]
        assert set(labels.ravel()) <= set(range(len(Catch.labels)))
        for label, (row, column) in (
            ("ball", pool.state.ball[lane]),
            ("paddle", (rows - 1, pool.state.paddle[lane])),
        ):
            y, x = np.nonzero(labels == LABELS[label])
            expected = (
                height / 2 + (row - (rows - 1) / 2) * cell,
                height * aspect / 2 + (column - (columns - 1) / 2) * cell,
            )
            # Pixels are whole: the middle of what they cover may be half of one away.
            assert abs((y.min() + y.max() + 1) / 2 - expected[0]) <= 0.75
            assert abs((x.min() + x.max() + 1) / 2 - expected[1]) <= 0.75


def test_every_label_is_seen_and_every_output_drawn(cpu: Renderer) -> None:
    pool = make_pool()
    lanes = pool.add(lane_seeds(1, 1))
    pool.step(lanes, moves(0))
    (frames,) = draw(pool, pool.views(lanes, "eye", outputs=output_bits(OUTPUT_NAMES)), cpu)
    assert set(frames["segmentation"].ravel()) == set(range(len(Catch.labels)))
    assert frames["rgb"].std() > 20
    assert frames["gray"].std() > 10
    assert len(np.unique(frames["depth"])) > 10


@given(st.integers(3, 64), st.integers(2, 64), st.integers(1, 1_000_000))
def test_any_settings_in_range_work(rows: int, columns: int, max_steps: int) -> None:
    pool = make_pool(rows=rows, columns=columns, max_steps=max_steps)
    lanes = pool.add(lane_seeds(rows, 2))
    for _ in range(rows + 1):
        pool.step(lanes, moves(1, -1))
        assert (pool.observe(lanes, "ball") < [rows, columns]).all()
        assert (pool.observe(lanes, "paddle") < columns).all()


@given(
    st.sampled_from([("rows", 3, 64), ("columns", 2, 64), ("max_steps", 1, 1_000_000)]), st.integers(-(2**70), 2**70)
)
def test_settings_out_of_range_are_refused(setting: tuple[str, int, int], value: int) -> None:
    name, low, high = setting
    if low <= value <= high:
        value = high + 1
    with pytest.raises(SettingError, match=f"'{name}' is {value}: expected an integer from {low} to {high}"):
        Catch({name: value}, ASSETS)
