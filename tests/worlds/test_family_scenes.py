"""Kernels that write poses, compared with the same rules in plain NumPy."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from worldloom.worlds.cartpole.kernels import PIVOT_Y_M, PIVOT_Z_M, POLE_WIDTH_M, TO_SUN, write_poses
from worldloom.worlds.catch.kernels import write_positions
from worldloom.worlds.maze.scene import EYE_HEIGHT, place_eyes

CAPACITY, ROWS = 9, 7


class Lanes:
    """Some lanes of a pool, and rows for each lane of a scene, in random order."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.lanes = self.rng.permutation(CAPACITY)[: self.rng.integers(0, CAPACITY + 1)]
        self.scene_lanes = self.rng.permutation(CAPACITY)[: len(self.lanes)].astype(np.int32)
        self.first_row = (ROWS * self.rng.permutation(CAPACITY)).astype(np.int32)
        self.pose = self.rng.normal(size=(ROWS * CAPACITY, 3, 4)).astype(np.float32)

    @property
    def first_rows(self) -> np.ndarray:
        return self.first_row[self.scene_lanes]


@given(seed=st.integers(0, 2**32), rows=st.integers(3, 64), columns=st.integers(2, 64))
def test_the_ball_and_the_paddle(seed: int, rows: int, columns: int) -> None:
    some = Lanes(seed)
    ball = some.rng.integers(0, [rows, columns], (CAPACITY, 2)).astype(np.int32)
    paddle = some.rng.integers(0, columns, CAPACITY).astype(np.int32)
    expected = some.pose.copy()
    for place, row, column in (
        (5, ball[some.lanes, 0], ball[some.lanes, 1]),
        (3, np.full(len(some.lanes), rows - 1), paddle[some.lanes]),
    ):
        at = np.stack(np.broadcast_arrays(column - (columns - 1) / 2, -0.6, (rows - 1) / 2 - row), axis=-1)
        expected[some.first_rows + place, :, 3] = at
        expected[some.first_rows + place - 1, :, 3] = at + np.array([0.12, 0.0, -0.14]) + np.array([0.0, 0.5, 0.0])
    write_positions(some.lanes, some.scene_lanes, some.first_row, rows, columns, ball, paddle, 5, 3, some.pose)
    assert np.array_equal(some.pose, expected)


@given(seed=st.integers(0, 2**32))
def test_the_cart_and_the_pole(seed: int) -> None:
    some = Lanes(seed)
    motion, angle = some.rng.uniform(-5, 5, (CAPACITY, 4)), some.rng.uniform(-9, 9, CAPACITY)
    cos_sin = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    cart_x = some.rng.uniform(-1, 1, 2).astype(np.float32)
    expected = some.pose.astype(np.float64)
    for lane, first in zip(some.lanes, some.first_rows, strict=True):
        x, (cos, sin) = motion[lane, 0], cos_sin[lane]
        expected[first + 1 : first + 3, 0, 3] = cart_x + np.float32(x)
        along, pivot = np.array([sin, 0.0, cos]), np.array([x, PIVOT_Y_M, PIVOT_Z_M])
        pole, knob = expected[first + 3], expected[first + 5]
        pole[[0, 2], 0], pole[[0, 2], 2] = (POLE_WIDTH_M * cos, -POLE_WIDTH_M * sin), (sin, cos)
        pole[:, 3], knob[:, 3] = pivot + 0.5 * along, pivot + along
        for thing, shadow, shown in ((pole, expected[first + 4], [0, 2, 3]), (knob, expected[first + 6], [3])):
            for axis in range(2):
                # Of its width, a pole has along y what never changes: it is not written.
                level = np.where(np.array(shown) == 3, thing[axis, shown], thing[axis, shown] * (axis == 0))
                shadow[axis, shown] = level - thing[2, shown] * TO_SUN[axis] / TO_SUN[2]
    write_poses(some.lanes, some.scene_lanes, some.first_row, motion, cos_sin, cart_x, 1, 3, some.pose)
    # The same but for the last bit: a kernel may round a product and a sum once instead of twice.
    np.testing.assert_array_max_ulp(some.pose, expected.astype(np.float32), maxulp=1)


@given(seed=st.integers(0, 2**32), agent=st.integers(0, 2))
def test_eyes_look_where_agents_do(seed: int, agent: int) -> None:
    some = Lanes(seed)
    heading, position = some.rng.uniform(0, 7, (CAPACITY, 3)), some.rng.uniform(0, 31, (CAPACITY, 3, 2))
    facing = np.stack([np.cos(heading), np.sin(heading)], axis=-1)
    camera = np.full((len(some.lanes), 3, 4), 7.0, np.float32)
    place_eyes(some.lanes, agent, position, facing, camera)
    ahead, up = np.zeros((2, len(some.lanes), 3))
    ahead[:, :2], up[:, 2] = facing[some.lanes, agent], 1.0
    at = np.concatenate([position[some.lanes, agent], np.full((len(some.lanes), 1), EYE_HEIGHT)], axis=1)
    expected = np.stack([np.cross(ahead, up), up, -ahead, at], axis=2)
    assert np.array_equal(camera, expected.astype(np.float32))
