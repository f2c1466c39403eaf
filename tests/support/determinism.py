"""Whether a lane's course is its own: the same seed and actions give the same bytes, whatever is around.

Works for any family. `check_same_bytes` runs some seeds in pools of many compositions and compares observations,
rewards, step types and pictures byte for byte; `check_seeds_differ` sees that seeds matter. A family is given by a
function that makes it from an asset library.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from worldloom.kernels.outputs import OUTPUT_NAMES, output_bits, outputs_of
from worldloom.kernels.tables import I64, ViewTable
from worldloom.render.arena import allocate_arena, get_frame, lay_out
from worldloom.render.assets import AssetLibrary
from worldloom.render.cpu import CPURenderer
from worldloom.render.renderer import Renderer
from worldloom.render.scene import Scene
from worldloom.worlds.family import Family, Spec
from worldloom.worlds.pool import Pool
from worldloom.worlds.random import lane_seeds

MakeFamily: TypeAlias = Callable[[AssetLibrary], Family]
Course: TypeAlias = list[dict[str, bytes]]
"""What one lane gave at each step, by name."""


@dataclass(frozen=True)
class Company:
    """What is around the lanes that are watched."""

    before: int = 0
    """Other lanes added ahead of them; every third is freed again, so that watched lanes take reused places."""
    after: int = 0
    comes_and_goes: bool = False
    """Others are added and freed between the steps, and the tables move."""
    shuffled: bool = False
    """Lanes are stepped and drawn in another order each time."""
    calls: int = 1
    """Calls that a step of all lanes is split into."""
    threads: int = 1
    """Of the renderer."""


COMPANIES = (
    Company(after=3),
    Company(before=9),
    Company(before=40, after=150, shuffled=True),
    Company(before=5, comes_and_goes=True),
    Company(before=30, after=7, comes_and_goes=True, shuffled=True, calls=3),
    Company(after=20, threads=2),
    Company(before=20, shuffled=True, threads=5),
)


def check_same_bytes(make: MakeFamily, *, lanes: int = 6, steps: int = 60, draw_every: int = 10, seed: int = 1) -> None:
    """The watched lanes alone, each in a pool of its own, and in every company: all the same to the byte."""
    seeds = lane_seeds(seed, lanes)
    actions = random_actions(make(AssetLibrary(texture_size=32)), steps, lanes, seed)
    expected = record(make, seeds, actions, Company(), draw_every)
    for company in COMPANIES:
        _compare(expected, record(make, seeds, actions, company, draw_every), str(company))
    for lane in range(lanes):
        own = {name: action[:, lane : lane + 1] for name, action in actions.items()}
        alone = record(make, seeds[lane : lane + 1], own, Company(), draw_every)
        _compare(expected[lane : lane + 1], alone, f"lane {lane} alone")


def check_seeds_differ(make: MakeFamily, *, lanes: int = 16, steps: int = 60, seed: int = 1) -> None:
    """With the same actions no two seeds have the same observations, nor the same pictures."""
    actions = random_actions(make(AssetLibrary(texture_size=32)), steps, 1, seed)
    same = {name: np.repeat(action, lanes, axis=1) for name, action in actions.items()}
    courses = record(make, lane_seeds(seed, lanes), same, Company(), draw_every=4)
    told = {tuple(value for step in course for name, value in step.items() if "@" not in name) for course in courses}
    seen = {tuple(value for step in course for name, value in step.items() if "@" in name) for course in courses}
    assert len(told) == lanes
    assert len(seen) == lanes


def random_actions(family: Family, steps: int, lanes: int, seed: int) -> dict[str, np.ndarray]:
    """Actions [steps, lanes, agents, *shape] all over the ranges of their specs."""
    rng = np.random.default_rng(seed)
    return {spec.name: _within(spec, rng, (steps, lanes, family.agents, *spec.shape)) for spec in family.actions}


def record(
    make: MakeFamily, seeds: np.ndarray, actions: dict[str, np.ndarray], company: Company, draw_every: int
) -> list[Course]:
    """The courses of some seeds under the given actions, in that company."""
    rng = np.random.default_rng(7)
    family = make(AssetLibrary(texture_size=32))
    pool = Pool(family, Scene(family.assets))
    others = [*pool.add(rng.integers(0, 2**63, company.before, np.uint64))]
    pool.free(np.array(others[::3], np.int64))
    del others[::3]
    watched = pool.add(seeds)
    others += [*pool.add(rng.integers(0, 2**63, company.after, np.uint64))]
    steps = len(next(iter(actions.values())))
    courses: list[Course] = [[] for _ in seeds]
    with CPURenderer(company.threads) as renderer:
        for step in range(steps):
            lanes = np.array([*others, *watched], np.int64)
            given = {
                spec.name: np.concatenate(
                    [_within(spec, rng, (len(others), family.agents, *spec.shape)), actions[spec.name][step]]
                )
                for spec in family.actions
            }
            order = rng.permutation(len(lanes)) if company.shuffled else np.arange(len(lanes))
            for part in np.array_split(order, company.calls):
                pool.step(lanes[part], {name: action[part] for name, action in given.items()})
            told = [_tell(pool, lane) for lane in watched]
            if step % draw_every == 0 or step == steps - 1:
                for name, pictures in _draw(pool, lanes[order], renderer):
                    for place, lane in enumerate(watched):
                        told[place][name] = pictures[int(np.flatnonzero(lanes[order] == lane)[0])]
            for course, one in zip(courses, told, strict=True):
                course.append(one)
            if company.comes_and_goes:
                leave = rng.permutation(len(others))[: rng.integers(0, len(others) + 1)]
                pool.free(np.array([others[k] for k in leave], np.int64))
                others = [lane for k, lane in enumerate(others) if k not in set(leave.tolist())]
                others += [*pool.add(rng.integers(0, 2**63, int(rng.integers(0, 9)), np.uint64))]
    return courses


def draw(pool: Pool, views: ViewTable, renderer: Renderer) -> list[dict[str, np.ndarray]]:
    """The pictures of views, by output."""
    offsets, size_bytes = lay_out(views)
    arena = allocate_arena(size_bytes)
    renderer.draw(pool.scene, views, arena, offsets)
    asked = [output.name for output in outputs_of(int(views.outputs[0]))]
    return [{name: get_frame(arena, views, offsets, view, name) for name in asked} for view in range(len(views.lane))]


def _tell(pool: Pool, lane: int) -> dict[str, bytes]:
    """Everything but pictures that a lane's last step gave."""
    one = np.array([lane], np.int64)
    told = {name: getattr(pool, name)[lane].tobytes() for name in ("reward", "discount", "step_type", "status")}
    for spec in pool.family.observations:
        for agent in range(pool.family.agents):
            value = pool.observe(one, spec.name, agent)
            assert value.dtype == spec.dtype, f"{spec.name}: {value.dtype}, expected {spec.dtype}"
            assert value.shape == (1, *spec.shape), f"{spec.name}: {value.shape}, expected {(1, *spec.shape)}"
            told[f"{spec.name} of {agent}"] = value.tobytes()
    return told


def _draw(pool: Pool, lanes: I64, renderer: Renderer) -> Iterator[tuple[str, list[bytes]]]:
    """All outputs of all cameras of all agents, each as the bytes of every lane's picture."""
    for camera in pool.family.cameras:
        for agent in range(pool.family.agents):
            views = pool.views(
                lanes, camera.name, agent, width=24, height=20, outputs=output_bits(OUTPUT_NAMES), samples=4
            )
            pictures = draw(pool, views, renderer)
            for output in OUTPUT_NAMES:
                yield f"{camera.name}.{output}@{agent}", [one[output].tobytes() for one in pictures]


def _within(spec: Spec, rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    low = -1.0 if spec.minimum is None else spec.minimum
    high = 1.0 if spec.maximum is None else spec.maximum
    if np.dtype(spec.dtype).kind in "iu":
        return rng.integers(np.asarray(low, int), np.asarray(high, int) + 1, shape).astype(spec.dtype)
    return rng.uniform(low, high, shape).astype(spec.dtype)


def _compare(expected: list[Course], got: list[Course], company: str) -> None:
    for lane, (wanted, course) in enumerate(zip(expected, got, strict=True)):
        for step, (want, have) in enumerate(zip(wanted, course, strict=True)):
            wrong = [name for name in want if want[name] != have[name]]
            assert not wrong, f"lane {lane}, step {step}, {company}: {', '.join(wrong)} differ"
