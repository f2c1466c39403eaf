"""Cartpole: compared with a model in plain Python and with conservation laws, and solved by a controller."""

import math
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support import cartpole_model as model
from tests.support.determinism import check_same_bytes, check_seeds_differ, draw
from worldloom.kernels.outputs import OUTPUT_NAMES, output_bits
from worldloom.kernels.tables import F64
from worldloom.render.assets import AssetLibrary
from worldloom.render.renderer import Renderer
from worldloom.render.scene import Scene
from worldloom.worlds.cartpole.family import SUBSTEP_S, SUBSTEPS, Cartpole
from worldloom.worlds.cartpole.kernels import step_cartpoles
from worldloom.worlds.episodes import FIRST, LAST, MID, RUNNING, TERMINATED
from worldloom.worlds.pool import Pool
from worldloom.worlds.random import lane_seeds
from worldloom.worlds.settings import SettingError

ASSETS = AssetLibrary(texture_size=32)
STEP_TYPES = {"FIRST": FIRST, "MID": MID, "LAST": LAST}
LABELS = {name: number for number, name in enumerate(Cartpole.labels)}
ENDLESS = math.inf
DIFFERENCE = 1e-11
"""Largest difference between the kernel and the model."""


def make_pool(**chosen: object) -> Pool:
    return Pool(Cartpole(chosen, ASSETS), Scene(ASSETS))


def push(force: "np.ndarray | float", lanes: int) -> dict[str, np.ndarray]:
    return {"force": np.broadcast_to(np.asarray(force, np.float32), (lanes,))[:, None]}


def travel(starts: F64, force: float, step_s: float, steps: int, substeps: int = 1) -> Iterator[F64]:
    """Yield the motion [n, 4] on an endless rail, after each step."""
    motion = np.array(starts, np.float64)
    cos_sin = np.stack([np.cos(motion[:, 1]), np.sin(motion[:, 1])], axis=1)
    lanes, forces = np.arange(len(motion)), np.full(len(motion), force, np.float32)
    reward, ended = np.empty(len(motion), np.float32), np.empty(len(motion), np.bool_)
    for _ in range(steps):
        step_cartpoles(lanes, forces, ENDLESS, step_s, substeps, motion, cos_sin, reward, ended)
        yield motion


def random_forces(rng: np.random.Generator, steps: int, lanes: int, longest: int) -> np.ndarray:
    """Return random forces, each held for up to `longest` steps."""
    forces = rng.uniform(-1, 1, (steps, lanes)).astype(np.float32)
    for step in range(1, steps):
        held = rng.uniform(size=lanes) < 1 - 1 / longest
        forces[step, held] = forces[step - 1, held]
    return forces


@pytest.mark.parametrize(("longest", "rail", "max_steps"), [(1, 3.0, 500), (8, 3.0, 500), (25, 10.0, 300)])
def test_ten_thousand_random_steps_as_the_model_says(longest: int, rail: float, max_steps: int) -> None:
    lanes, steps = 3, 10_000
    pool = make_pool(rail=rail, max_steps=max_steps)
    seeds = lane_seeds(5, lanes)
    added = pool.add(seeds)
    models = [model.CartpoleModel(int(seed), rail, max_steps) for seed in seeds]
    forces = random_forces(np.random.default_rng(longest), steps, lanes, longest)
    told: list[list[dict[str, object]]] = []
    got: dict[str, list[np.ndarray]] = {name: [] for name in ("step_type", "reward", "discount", "pose", "velocity")}
    worst = 0.0
    for force in forces:
        pool.step(added, push(force, lanes))
        told.append([one.step(float(force[lane])) for lane, one in enumerate(models)])
        for name in ("pose", "velocity"):
            got[name].append(pool.observe(added, name))
        for name in ("step_type", "reward", "discount"):
            got[name].append(getattr(pool, name)[added].reshape(lanes))
        worst = max(worst, abs(pool.state.motion[added] - [one.motion for one in models]).max())
    expected = {name: np.array([[one[name] for one in step] for step in told]) for name in got}
    kinds = np.vectorize(STEP_TYPES.get)(expected["step_type"])
    np.testing.assert_array_equal(got["step_type"], kinds)
    np.testing.assert_array_equal(got["discount"], expected["discount"])
    # Two ways to write the same sums differ by rounding, which a swinging pole multiplies during an episode.
    assert worst < DIFFERENCE
    for name in ("reward", "pose", "velocity"):
        # Half a unit in the last place of a float32, on top of that.
        np.testing.assert_allclose(got[name], expected[name], rtol=6e-8, atol=2 * DIFFERENCE)
    assert (kinds == LAST).sum() >= 60


def test_the_equations_by_another_way_and_another_integrator() -> None:
    rng = np.random.default_rng(2)
    starts = rng.uniform((-1, -math.pi, -1, -4), (1, math.pi, 1, 4), (6, 4))
    for force in (-1.0, 0.0, 0.5):  # exact as float32
        *_, reached = travel(starts, force, 0.5 / 800, 800)
        expected = [model.travel(tuple(start), 10 * force, 0.5, 20_000, model.midpoint) for start in starts]
        # The midpoint rule at 25 µs is off by some 10⁻⁹; Runge-Kutta at 625 µs by less.
        np.testing.assert_allclose(reached, expected, rtol=0, atol=2e-8)


def test_halving_the_step_divides_the_error_by_sixteen() -> None:
    start = np.array([[0.1, 2.0, 0.3, -1.0]])
    *_, exact = travel(start, 0.25, 1 / 6400, 6400)
    errors = []
    for steps in (50, 100, 200, 400):
        *_, reached = travel(start, 0.25, 1 / steps, steps)
        errors.append(abs(reached - exact).max())
    ratios = np.array(errors[:-1]) / errors[1:]
    # 2⁴, but for terms of the next order, which halve each time.
    assert (abs(ratios - 16) < (1.0, 0.5, 0.5)).all(), ratios


@pytest.mark.parametrize(("spins", "drift_j"), [(np.zeros(48), 1e-6), (np.linspace(-20, 20, 48), 2e-3)])
def test_energy_and_momentum_stay(spins: F64, drift_j: float) -> None:
    angles = np.linspace(0.01, 2 * math.pi, len(spins))
    starts = np.stack([0 * angles, angles, 0 * angles, spins], axis=1)
    energy = np.array([model.energy(tuple(start)) for start in starts])
    momentum = np.array([model.momentum(tuple(start)) for start in starts])
    for step, motion in enumerate(travel(starts, 0.0, SUBSTEP_S, 10_000, SUBSTEPS), 1):
        if step % 50 == 0:
            drifts = [model.energy(tuple(one)) for one in motion] - energy
            assert abs(drifts).max() < drift_j
            assert abs([model.momentum(tuple(one)) for one in motion] - momentum).max() < drift_j


def test_a_hanging_pole_swings_with_the_period_of_the_books() -> None:
    # Small swings: omega² = g (M + m) / (l (4/3 (M + m) - m)); a swing of 0.001 rad is off that by 10⁻⁷ of it.
    total, half = model.CART + model.POLE, model.LENGTH / 2
    omega = math.sqrt(model.GRAVITY * total / (half * (4 / 3 * total - model.POLE)))
    period_s = 2 * math.pi / omega
    *_, motion = travel(np.array([[0.0, math.pi + 1e-3, 0.0, 0.0]]), 0.0, period_s / 200, 200)
    assert motion[0, 1] - math.pi == pytest.approx(1e-3, abs=1e-9)
    assert motion[0, 3] == pytest.approx(0, abs=1e-8)


def test_a_cart_at_the_end_of_the_rail_stays_there_and_the_episode_ends() -> None:
    pool = make_pool()
    lanes = pool.add(lane_seeds(1, 64))
    sides = np.where(np.arange(64) % 2, 1.0, -1.0)
    for _ in range(80):
        before = pool.status[lanes] == RUNNING
        pool.step(lanes, push(sides, 64))
        ended = pool.status[lanes] == TERMINATED
        np.testing.assert_array_equal(pool.observe(lanes, "pose")[ended, 0], np.float32(1.5) * sides[ended])
        assert (pool.discount[lanes] == ~ended).all()
        assert (before | ~ended).all()
    assert (pool.episode[lanes] > 0).all()


def test_it_starts_hanging_near_rest() -> None:
    pool = make_pool()
    lanes = pool.add(lane_seeds(1, 4000))
    pool.step(lanes, push(0.0, 4000))
    noise = (pool.state.motion[lanes] - (0, math.pi, 0, 0)) / (0.2, 0.1, 0.05, 0.05)
    assert abs(noise).max() <= 1
    # Uniform: the mean of 4000 deviates by 0.0091, the mean square by 0.0047; five times that.
    assert abs(noise.mean(axis=0)).max() < 0.046
    assert abs((noise**2).mean(axis=0) - 1 / 3).max() < 0.024


def swing_up(motion: F64) -> F64:
    """A standard controller: add energy until the pole is nearly up, then balance it (LQR gains, rounded)."""
    x, angle, speed, spin = motion.T
    angle = (angle + math.pi) % (2 * math.pi) - math.pi
    up_j = model.POLE * model.GRAVITY * model.LENGTH / 2
    missing_j = up_j - (model.POLE * model.LENGTH**2 / 6 * spin**2 + up_j * np.cos(angle))
    pump = np.clip(-4 * missing_j * np.sign(spin * np.cos(angle)), -0.4, 0.4) - 0.4 * x - 0.2 * speed
    hold = 0.86 * x + 6.95 * angle + 1.05 * speed + 1.67 * spin
    return np.asarray(np.clip(np.where((abs(angle) < 0.35) & (abs(spin) < 3), hold, pump), -1, 1))


def test_the_pole_can_be_swung_up_and_held() -> None:
    pool = make_pool()
    lanes = pool.add(lane_seeds(4, 100))
    pool.step(lanes, push(0.0, 100))
    rewards = []
    for _ in range(499):
        pool.step(lanes, push(swing_up(pool.state.motion[lanes]), 100))
        assert (pool.status[lanes] == RUNNING).all()
        rewards.append(pool.reward[lanes, 0].copy())
    assert np.min(rewards) >= 0
    assert np.max(rewards) <= 1
    assert np.mean(rewards[-100:], axis=0).min() > 0.999


def test_the_same_bytes_in_any_pool() -> None:
    check_same_bytes(lambda assets: Cartpole({"max_steps": 40}, assets))


def test_seeds_differ() -> None:
    check_seeds_differ(lambda assets: Cartpole({}, assets))


@settings(max_examples=30)
@given(rail=st.floats(2, 10), aside=st.floats(-1, 1), angle=st.floats(-4, 4), aspect=st.sampled_from([1.0, 1.6]))
def test_all_that_moves_is_in_the_picture(
    cpu: Renderer, rail: float, aside: float, angle: float, aspect: float
) -> None:
    pool = make_pool(rail=rail)
    lanes = pool.add(lane_seeds(1, 1))
    pool.step(lanes, push(0.0, 1))
    pool.state.motion[lanes, :2] = aside * rail / 2, angle
    pool.state.cos_sin[lanes] = math.cos(angle), math.sin(angle)
    views = pool.views(lanes, "eye", width=int(160 * aspect), height=160, outputs=output_bits(["segmentation"]))
    labels = draw(pool, views, cpu)[0]["segmentation"]
    assert set(labels.ravel()) == set(range(len(Cartpole.labels)))
    around = np.concatenate([labels[0], labels[-1], labels[:, 0], labels[:, -1]])
    assert set(around) <= {LABELS["sky"], LABELS["floor"]}


def test_every_output_is_drawn(cpu: Renderer) -> None:
    pool = make_pool()
    lanes = pool.add(lane_seeds(1, 1))
    pool.step(lanes, push(0.0, 1))
    (frames,) = draw(pool, pool.views(lanes, "eye", outputs=output_bits(OUTPUT_NAMES)), cpu)
    assert frames["rgb"].std() > 20
    assert frames["gray"].std() > 15
    assert len(np.unique(frames["depth"])) > 100


@given(st.floats(2, 10), st.integers(1, 1_000_000))
def test_any_settings_in_range_work(rail: float, max_steps: int) -> None:
    pool = make_pool(rail=rail, max_steps=max_steps)
    lanes = pool.add(lane_seeds(max_steps, 3))
    spec = pool.family.observations[0]
    assert spec.maximum is not None
    for _ in range(60):
        pool.step(lanes, push(1.0, 3))
        assert abs(pool.observe(lanes, "pose")).max() <= spec.maximum
        assert np.isfinite(pool.observe(lanes, "velocity")).all()


@given(st.floats(allow_nan=True).filter(lambda value: not 2 <= value <= 10))
def test_rails_out_of_range_are_refused(rail: float) -> None:
    with pytest.raises(SettingError) as refused:
        Cartpole({"rail": rail}, ASSETS)
    assert str(refused.value) == f"setting 'rail' is {rail!r}: expected a number from 2 to 10"


@given(st.integers().filter(lambda value: not 1 <= value <= 1_000_000))
def test_time_limits_out_of_range_are_refused(max_steps: int) -> None:
    with pytest.raises(SettingError, match=f"'max_steps' is {max_steps}: expected an integer from 1 to 1000000"):
        Cartpole({"max_steps": max_steps}, ASSETS)
