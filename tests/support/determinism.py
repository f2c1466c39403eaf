"""Checks that a lane depends on its seed and actions alone: they give the same bytes in any pool.

They work for any family. `check_same_bytes` runs some seeds in pools of many compositions and compares observations,
rewards, step types and frames byte for byte; `check_seeds_differ` checks that seeds matter. A family is given by a
function that builds it with an asset library.
"""

from collections.abc import Callable, Iterator, Sequence
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
from worldloom.worlds.randomisation.settings import Randomisation

BuildFamily: TypeAlias = Callable[[AssetLibrary], Family]
Record: TypeAlias = list[dict[str, bytes]]
"""Values of one lane at each step, by name."""


@dataclass(frozen=True)
class Surroundings:
    """The other lanes of the pool, and how all lanes are stepped and drawn."""

    before: int = 0
    """Number of other lanes added before the recorded ones; every third is freed again, so that rows are reused."""
    after: int = 0
    """Number of other lanes added after them."""
    is_changing: bool = False
    """Other lanes are added and freed between the steps, and tables are reallocated."""
    is_shuffled: bool = False
    """Lanes are stepped and drawn in another order each time."""
    calls: int = 1
    """Number of calls that a step of all lanes is split into."""
    threads: int = 1
    """Threads of the renderer."""


ALL_SURROUNDINGS = (
    Surroundings(after=3),
    Surroundings(before=9),
    Surroundings(before=40, after=150, is_shuffled=True),
    Surroundings(before=5, is_changing=True),
    Surroundings(before=30, after=7, is_changing=True, is_shuffled=True, calls=3),
    Surroundings(after=20, threads=2),
    Surroundings(before=20, is_shuffled=True, threads=5),
)


def check_same_bytes(
    build: BuildFamily,
    *,
    lanes: int = 6,
    steps: int = 60,
    draw_every: int = 10,
    seed: int = 1,
    randomisation: Randomisation | None = None,
    among: Sequence[Surroundings] = ALL_SURROUNDINGS,
) -> None:
    """Check that lanes give the same bytes in a pool of their own, each alone, and in all surroundings.

    If something varies, lanes that are drawn seldom are also compared with lanes that are drawn after each step.
    """
    seeds = lane_seeds(seed, lanes)
    actions = random_actions(build(AssetLibrary(texture_size=32)), steps, lanes, seed)
    expected = record(build, seeds, actions, Surroundings(), draw_every, randomisation)
    for surroundings in among:
        _compare(expected, record(build, seeds, actions, surroundings, draw_every, randomisation), str(surroundings))
    if randomisation is not None:
        _compare(expected, record(build, seeds, actions, Surroundings(), 1, randomisation), "drawn after each step")
    for lane in range(lanes):
        own = {name: action[:, lane : lane + 1] for name, action in actions.items()}
        alone = record(build, seeds[lane : lane + 1], own, Surroundings(), draw_every, randomisation)
        _compare(expected[lane : lane + 1], alone, f"lane {lane} alone")


def check_seeds_differ(build: BuildFamily, *, lanes: int = 16, steps: int = 60, seed: int = 1) -> None:
    """Check that with the same actions no two seeds give the same observations, or the same frames."""
    actions = random_actions(build(AssetLibrary(texture_size=32)), steps, 1, seed)
    same = {name: np.repeat(action, lanes, axis=1) for name, action in actions.items()}
    records = record(build, lane_seeds(seed, lanes), same, Surroundings(), draw_every=4)
    observations = {
        tuple(value for step in lane_record for name, value in step.items() if "@" not in name)
        for lane_record in records
    }
    frames = {
        tuple(value for step in lane_record for name, value in step.items() if "@" in name) for lane_record in records
    }
    assert len(observations) == lanes
    assert len(frames) == lanes


def random_actions(family: Family, steps: int, lanes: int, seed: int) -> dict[str, np.ndarray]:
    """Return random actions [steps, lanes, agents, *shape] within the ranges of their specs."""
    rng = np.random.default_rng(seed)
    return {spec.name: _within(spec, rng, (steps, lanes, family.agents, *spec.shape)) for spec in family.actions}


def record(
    build: BuildFamily,
    seeds: np.ndarray,
    actions: dict[str, np.ndarray],
    surroundings: Surroundings,
    draw_every: int,
    randomisation: Randomisation | None = None,
) -> list[Record]:
    """Record lanes of these seeds under the given actions, in these surroundings."""
    rng = np.random.default_rng(7)
    family = build(AssetLibrary(texture_size=32))
    pool = Pool(family, Scene(family.assets), randomisation)
    others = [*pool.add(rng.integers(0, 2**63, surroundings.before, np.uint64))]
    pool.free(np.array(others[::3], np.int64))
    del others[::3]
    recorded = pool.add(seeds)
    others += [*pool.add(rng.integers(0, 2**63, surroundings.after, np.uint64))]
    steps = len(next(iter(actions.values())))
    records: list[Record] = [[] for _ in seeds]
    with CPURenderer(surroundings.threads) as renderer:
        for step in range(steps):
            lanes = np.array([*others, *recorded], np.int64)
            given = {
                spec.name: np.concatenate(
                    [_within(spec, rng, (len(others), family.agents, *spec.shape)), actions[spec.name][step]]
                )
                for spec in family.actions
            }
            order = rng.permutation(len(lanes)) if surroundings.is_shuffled else np.arange(len(lanes))
            for part in np.array_split(order, surroundings.calls):
                pool.step(lanes[part], {name: action[part] for name, action in given.items()})
            results = [_results(pool, lane) for lane in recorded]
            if step % draw_every == 0 or step == steps - 1:
                for name, frames in _draw(pool, lanes[order], renderer):
                    for place, lane in enumerate(recorded):
                        results[place][name] = frames[int(np.flatnonzero(lanes[order] == lane)[0])]
            for lane_record, one in zip(records, results, strict=True):
                lane_record.append(one)
            if surroundings.is_changing:
                leave = rng.permutation(len(others))[: rng.integers(0, len(others) + 1)]
                pool.free(np.array([others[k] for k in leave], np.int64))
                others = [lane for k, lane in enumerate(others) if k not in set(leave.tolist())]
                others += [*pool.add(rng.integers(0, 2**63, int(rng.integers(0, 9)), np.uint64))]
    return records


def draw(pool: Pool, views: ViewTable, renderer: Renderer) -> list[dict[str, np.ndarray]]:
    """Draw views and return their frames by output."""
    offsets, size_bytes = lay_out(views)
    arena = allocate_arena(size_bytes)
    renderer.draw(pool.scene, views, arena, offsets)
    asked = [output.name for output in outputs_of(int(views.outputs[0]))]
    return [{name: get_frame(arena, views, offsets, view, name) for name in asked} for view in range(len(views.lane))]


def _results(pool: Pool, lane: int) -> dict[str, bytes]:
    """Return all results of a lane's last step except frames."""
    one = np.array([lane], np.int64)
    results = {name: getattr(pool, name)[lane].tobytes() for name in ("reward", "discount", "step_type", "status")}
    for spec in pool.family.observations:
        for agent in range(pool.family.agents):
            value = pool.observe(one, spec.name, agent)
            assert value.dtype == spec.dtype, f"{spec.name}: {value.dtype}, expected {spec.dtype}"
            assert value.shape == (1, *spec.shape), f"{spec.name}: {value.shape}, expected {(1, *spec.shape)}"
            results[f"{spec.name} of {agent}"] = value.tobytes()
    for spec in pool.variation_specs:
        results[spec.name] = pool.observe(one, spec.name).tobytes()
    return results


def _draw(pool: Pool, lanes: I64, renderer: Renderer) -> Iterator[tuple[str, list[bytes]]]:
    """Draw all outputs of all cameras of all agents; yield each with the bytes of every lane's frame."""
    for camera in pool.family.cameras:
        for agent in range(pool.family.agents):
            views = pool.views(
                lanes, camera.name, agent, width=24, height=20, outputs=output_bits(OUTPUT_NAMES), samples=4
            )
            frames = draw(pool, views, renderer)
            for output in OUTPUT_NAMES:
                yield f"{camera.name}.{output}@{agent}", [one[output].tobytes() for one in frames]


def _within(spec: Spec, rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    low = -1.0 if spec.minimum is None else spec.minimum
    high = 1.0 if spec.maximum is None else spec.maximum
    if np.dtype(spec.dtype).kind in "iu":
        return rng.integers(np.asarray(low, int), np.asarray(high, int) + 1, shape).astype(spec.dtype)
    return rng.uniform(low, high, shape).astype(spec.dtype)


def _compare(expected: list[Record], got: list[Record], surroundings: str) -> None:
    for lane, (wanted, lane_record) in enumerate(zip(expected, got, strict=True)):
        for step, (want, have) in enumerate(zip(wanted, lane_record, strict=True)):
            wrong = [name for name in want if want[name] != have[name]]
            assert not wrong, f"lane {lane}, step {step}, {surroundings}: {', '.join(wrong)} differ"
