"""Requirements of every built-in family, checked against its own tables."""

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.determinism import draw, random_actions
from worldloom.kernels.outputs import OUTPUT_NAMES, output_bits
from worldloom.render.assets import AssetLibrary
from worldloom.render.cpu import CPURenderer
from worldloom.render.scene import Scene
from worldloom.worlds.describe import COMMON_OBSERVATIONS, describe
from worldloom.worlds.family import Family, Spec
from worldloom.worlds.lanes import FIRST, LAST
from worldloom.worlds.pool import Pool
from worldloom.worlds.random import lane_seeds
from worldloom.worlds.registry import find_family, known_families
from worldloom.worlds.settings import Setting, SettingError, Value

ASSETS = AssetLibrary(texture_size=32)
BOX = ("cartpole", "catch", "maze")
every_family = pytest.mark.parametrize("name", BOX)
NAME = re.compile(r"[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)*")


@pytest.fixture(scope="module")
def renderer() -> Iterator[CPURenderer]:
    with CPURenderer() as made:
        yield made


def modest(setting: Setting) -> st.SearchStrategy[Value]:
    """Draw any value of a setting that does not make worlds slow to build."""
    if setting.choices:
        return st.sampled_from(setting.choices)
    if isinstance(setting.default, bool):
        return st.booleans()
    if isinstance(setting.default, str):
        return st.text(max_size=8)
    assert not isinstance(setting.default, bytes)
    low = setting.default if setting.minimum is None else setting.minimum
    high = low + 2 * (abs(setting.default) + 1) if setting.maximum is None else setting.maximum
    high = min(high, max(low + 4, 2 * setting.default))
    if isinstance(setting.default, int):
        return st.integers(int(low), int(high))
    return st.floats(low, high)


def any_settings(name: str) -> st.SearchStrategy[dict[str, Value]]:
    return st.fixed_dictionaries({}, optional={one.name: modest(one) for one in find_family(name).settings})


def make_pool(name: str, chosen: dict[str, Value]) -> Pool:
    return Pool(find_family(name)(chosen, ASSETS), Scene(ASSETS))


def run(pool: Pool, lanes: np.ndarray, steps: int) -> Iterator[int]:
    """Step with random actions, and yield after each step."""
    actions = random_actions(pool.family, steps, len(lanes), seed=0)
    for step in range(steps):
        pool.step(lanes, {name: action[step] for name, action in actions.items()})
        yield step


def check_values(values: np.ndarray, spec: Spec, lanes: int) -> None:
    assert values.dtype == spec.dtype, spec.name
    assert values.shape == (lanes, *spec.shape), spec.name
    assert np.isfinite(values).all(), spec.name
    if spec.minimum is not None:
        assert (values >= spec.minimum).all(), spec.name
    if spec.maximum is not None:
        assert (values <= spec.maximum).all(), spec.name


def check_step(pool: Pool, lanes: np.ndarray) -> None:
    for spec in pool.family.observations:
        for agent in range(pool.family.agents):
            check_values(pool.observe(lanes, spec.name, agent), spec, len(lanes))
    for spec in COMMON_OBSERVATIONS:
        values = getattr(pool, spec.name)[lanes]
        for of_agent in values.T if values.ndim == 2 else [values]:
            check_values(of_agent, spec, len(lanes))
    begun = pool.step_type[lanes] == FIRST
    assert (pool.reward[lanes][begun] == 0).all()
    assert (pool.steps[lanes][begun] == 0).all()
    assert (pool.steps[lanes] <= pool.family.max_steps).all()
    assert (pool.step_type[lanes][pool.steps[lanes] == pool.family.max_steps] == LAST).all()


def check_frames(pool: Pool, lanes: np.ndarray, renderer: CPURenderer, size: int = 16) -> set[int]:
    """Check all outputs of all cameras of all agents; return the labels that are visible."""
    seen: set[int] = set()
    for camera in pool.family.cameras:
        for agent in range(pool.family.agents):
            views = pool.views(
                lanes, camera.name, agent, width=size + 4, height=size, outputs=output_bits(OUTPUT_NAMES)
            )
            for place, frames in enumerate(draw(pool, views, renderer)):
                assert frames["rgb"].shape == (size, size + 4, 3)
                assert np.ptp(frames["gray"]) > 0, f"{camera.name}: a frame of one gray"
                assert np.isfinite(frames["depth"]).all()
                assert (frames["depth"] >= views.near[place]).all()
                assert (frames["depth"] <= views.far[place]).all()
                seen |= set(np.unique(frames["segmentation"]).tolist())
    assert max(seen) < len(pool.family.labels), "a label without a name"
    return seen


def test_the_box_is_complete() -> None:
    assert set(known_families()) >= set(BOX)


@every_family
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_settings_in_range_work(name: str, data: st.DataObject, renderer: CPURenderer) -> None:
    pool = make_pool(name, data.draw(any_settings(name)))
    lanes = pool.add(lane_seeds(data.draw(st.integers(0, 2**64 - 1)), 3))
    for step in run(pool, lanes, 12):
        check_step(pool, lanes)
        if step in (0, 11):
            check_frames(pool, lanes, renderer)


@every_family
def test_each_setting_works_at_its_ends(name: str, renderer: CPURenderer) -> None:
    for setting in find_family(name).settings:
        ends = [end for end in (setting.minimum, setting.maximum) if end is not None]
        kind: Any = type(setting.default)
        for value in setting.choices or [kind(end) for end in ends]:
            pool = make_pool(name, {setting.name: value})
            lanes = pool.add(lane_seeds(0, 2))
            for _ in run(pool, lanes, 4):
                check_step(pool, lanes)
            check_frames(pool, lanes, renderer)


@every_family
def test_settings_out_of_range_are_refused(name: str) -> None:
    for setting in find_family(name).settings:
        wrong: list[object] = [None, "not a choice" if setting.choices else object(), float("nan")]
        wrong += [setting.minimum - 1] if setting.minimum is not None else []
        wrong += [setting.maximum + 1] if setting.maximum is not None else []
        for value in wrong:
            with pytest.raises(SettingError) as refused:
                make_pool(name, {setting.name: value})  # type: ignore[dict-item]
            for part in (repr(setting.name), repr(value), setting.expected):
                assert part in str(refused.value)


@every_family
def test_it_says_what_it_is(name: str) -> None:
    family = find_family(name)
    described = describe(family)
    tables = ("settings", "actions", "observations", "cameras")
    for entry in (described, *(entry for table in tables for entry in described[table])):
        assert re.fullmatch(r"[A-Z].*\.", entry["text"]), f"{entry['text']!r} is not a sentence"
    for table in tables:
        names = [entry["name"] for entry in described[table]]
        assert len(set(names)) == len(names)
        assert all(NAME.fullmatch(one) for one in names)
    assert "max_steps" in {setting.name for setting in family.settings}
    assert described["cameras"][0]["name"] == "eye"
    assert not {one["name"] for one in described["observations"]} & {spec.name for spec in COMMON_OBSERVATIONS}
    assert family.labels[0] == "sky"
    assert all(family.labels)
    assert len(set(family.labels)) == len(family.labels)
    for spec in described["actions"]:
        assert spec["minimum"] is not None, "an action has a range"
        assert spec["maximum"] is not None, "an action has a range"


@every_family
def test_its_labels_are_all_seen(name: str, renderer: CPURenderer) -> None:
    """Over some time, every label but the sky's is visible in some frame, unless the settings exclude it."""
    chosen: dict[str, Value] = {"agents": 3} if name == "maze" else {}
    pool = make_pool(name, chosen)
    lanes = pool.add(lane_seeds(0, 16))
    seen: set[int] = set()
    for step in run(pool, lanes, 40):
        if step % 8 == 0:
            seen |= check_frames(pool, lanes, renderer, size=64)  # thin things fall between larger pixels
    assert {pool.family.labels[label] for label in seen | {0}} == set(pool.family.labels)


@every_family
def test_episodes_end_by_themselves_or_in_time(name: str) -> None:
    pool = make_pool(name, {"max_steps": 7})
    lanes = pool.add(lane_seeds(0, 8))
    for _ in run(pool, lanes, 20):
        check_step(pool, lanes)
    assert (pool.episode[lanes] >= 2).all()


@every_family
def test_nothing_of_a_former_life_is_left(name: str, renderer: CPURenderer) -> None:
    """Lanes whose rows hold random bytes before they begin give the same bytes as fresh ones."""

    def told(spoil: bool) -> list[bytes]:
        pool = make_pool(name, {})
        lanes = pool.add(lane_seeds(5, 4))
        if spoil:
            rng = np.random.default_rng(1)
            for field in pool.family.state_fields():
                array = getattr(pool.state, field)
                array[...] = rng.integers(0, 2, array.shape) if array.dtype.kind in "bui" else rng.random(array.shape)
        told = []
        for step in run(pool, lanes, 30):
            told += [pool.observe(lanes, spec.name).tobytes() for spec in pool.family.observations]
            told.append(pool.reward[lanes].tobytes())
            if step % 10 == 0:
                views = pool.views(lanes, "eye", width=16, height=16)
                told += [frames["rgb"].tobytes() for frames in draw(pool, views, renderer)]
        return told

    assert told(spoil=False) == told(spoil=True)


def test_hidden_is_what_frames_do_not_show() -> None:
    """The camera of a maze shows neither the position nor the goals left; catch and cartpole show their whole state."""

    def hidden(name: str) -> set[str]:
        family: type[Family] = find_family(name)
        return {spec["name"] for spec in describe(family)["observations"] if spec["hidden"]}

    assert hidden("catch") == set()
    assert hidden("maze") >= {"position", "heading"}
