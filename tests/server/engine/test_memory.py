"""The memory budget: what counts, what is refused before it is taken, and what is given back."""

import gc
import os
import time
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from scripts.support.engine_streams import EngineHarness, refused
from worldloom.protos.errors import ResourceExhausted
from worldloom.render.renderer import Renderer
from worldloom.server.config import Limits
from worldloom.server.engine import memory, pools
from worldloom.server.engine.directory import WorldDirectory
from worldloom.server.engine.memory import MemoryBudget, available_bytes
from worldloom.worlds.randomisation.pictures import allow_texture_dirs

MIB = 1 << 20


def held(harness: EngineHarness) -> int:
    return harness.engine.directory.memory.held_bytes


def test_worlds_beyond_the_budget_are_refused_and_nothing_has_changed(cpu: Renderer) -> None:
    empty = EngineHarness(cpu)
    harness = EngineHarness(cpu, max_memory_bytes=held(empty) + 8 * MIB)
    stream = harness.stream()
    world = stream.create("catch", lanes=100)
    before = held(harness)
    assert before > held(empty)
    with refused("RESOURCE_EXHAUSTED", "60000 lanes of 'catch'", "--max-memory-bytes", "destroy some worlds") as told:
        stream.create("catch", lanes=60_000)
    left = harness.engine.directory.memory.left_bytes
    assert f"expected {left} at most, which is what is left of {harness.engine.limits.max_memory_bytes}" in told.text
    assert held(harness) == before
    assert harness.engine.directory.lanes_in_use == 100
    stream.join(world)
    stream.step("reward")
    stream.leave()
    stream.destroy(world)
    assert held(harness) < before
    harness.check_empty()


def test_a_reset_to_settings_beyond_the_budget_is_refused(cpu: Renderer) -> None:
    empty = EngineHarness(cpu)
    harness = EngineHarness(cpu, max_memory_bytes=held(empty) + 8 * MIB)
    stream = harness.stream()
    world = stream.create("maze", lanes=200, size=5)
    before = held(harness)
    with refused("RESOURCE_EXHAUSTED", "200 lanes of 'maze'", "--max-memory-bytes"):
        stream.reset_world(world, size=31)
    assert held(harness) == before


def test_shared_memory_counts(cpu: Renderer) -> None:
    empty = EngineHarness(cpu)
    harness = EngineHarness(cpu, max_memory_bytes=held(empty) + 8 * MIB)
    stream = harness.stream()
    world = stream.create("catch", lanes=4)
    before = held(harness)
    settings: dict[str, Any] = {"shm": True, "observations": ["eye.rgb@shm"]}
    with refused("RESOURCE_EXHAUSTED", "shared memory", "--max-memory-bytes"):
        stream.join(world, width=1024, height=1024, **settings)
    assert held(harness) == before
    stream.join(world, width=64, height=64, **settings)
    assert held(harness) == before + harness.engine.directory.shared_bytes
    stream.leave()
    assert held(harness) == before


def test_reply_buffers_count(cpu: Renderer) -> None:
    empty = EngineHarness(cpu)
    harness = EngineHarness(cpu, max_memory_bytes=held(empty) + 8 * MIB)
    stream = harness.stream()
    world = stream.create("catch", lanes=2)
    stream.join(world, width=1024, height=1024, max_reply_bytes=64 * MIB)
    before = held(harness)
    with refused("RESOURCE_EXHAUSTED", "replies to this step", "--max-memory-bytes", "smaller frames"):
        stream.step("eye.rgb", "eye.depth")
    assert held(harness) == before
    stream.step("eye.gray")  # 2 MiB, and room for two of them
    assert before + 2 * MIB < held(harness) < before + 6 * MIB
    assert stream.read("counters.memory_bytes") == held(harness)
    assert stream.read("limits.max_memory_bytes") == harness.engine.limits.max_memory_bytes


def test_pictures_are_refused_before_they_exceed_the_budget(cpu: Renderer, tmp_path: Path) -> None:
    for name, frames in (("few", 4), ("many", 32), ("more", 8)):
        (tmp_path / name).mkdir()
        np.save(tmp_path / name / "film.npy", np.zeros((frames, 2, 2, 3), np.uint8))
    empty = EngineHarness(cpu)
    room = held(empty) + 20 * empty.engine.directory.assets.texture_bytes
    allow_texture_dirs([tmp_path])
    try:
        harness = EngineHarness(cpu, max_memory_bytes=room)
        stream, directory = harness.stream(), harness.engine.directory
        stream.create("catch", vary_background=1.0, background_set="few")
        before = held(harness)
        with refused("RESOURCE_EXHAUSTED", "set of pictures 'many'", "--max-memory-bytes", "--max-texture-frames"):
            stream.create("catch", vary_background=1.0, background_set="many")
        # There is room for it, but pictures stay: they get half of the budget.
        assert directory.memory.left_bytes > 8 * directory.assets.texture_bytes
        build = directory.preparation({"family": "catch", "vary_background": 1.0, "background_set": "more"})
        assert build is not None
        with pytest.raises(ResourceExhausted, match="set of pictures 'more'"):
            build()
        assert held(harness) == before
    finally:
        allow_texture_dirs([])


def test_the_default_is_a_part_of_what_is_available(cpu: Renderer) -> None:
    limit = EngineHarness(cpu).engine.limits.max_memory_bytes
    assert limit is not None
    # What is available changes with what else runs on the machine.
    assert limit == pytest.approx(0.75 * available_bytes(), rel=0.5)


def directory_with(max_memory_bytes: int | None = None) -> WorldDirectory:
    return WorldDirectory(Limits(max_memory_bytes=max_memory_bytes), lambda: 0.0)


@pytest.mark.parametrize(("domain", "task"), [("walker", "walk"), ("fish", "swim")])
def test_a_large_family_goes_with_its_last_world_and_a_small_one_stays(
    domain: str, task: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pools, "_EMPTY_POOL_BYTES_KEPT", 20 * MIB)
    directory = directory_with()
    released: list[int] = []
    monkeypatch.setattr(directory.memory, "note_release", released.append)
    directory.destroy(directory.create({"family": "catch"}))
    world = directory.create({"family": "dmc", "domain": domain, "task": task})
    world.pool.step(world.lanes, {})
    family: Any = world.pool.family
    gone = [weakref.ref(family), weakref.ref(family._model), weakref.ref(family._scene), weakref.ref(family._stepper)]
    counted = directory.pools.size_bytes
    gc.disable()  # nothing may wait for the collector
    try:
        directory.destroy(world)
        del world, family
        until_s = time.monotonic() + 10.0
        while any(reference() is not None for reference in gone) and time.monotonic() < until_s:
            time.sleep(0.01)  # on a busy machine a thread may come late to a step that others have done
        assert [reference() for reference in gone] == [None] * 4
    finally:
        gc.enable()
    assert [kind.name for kind, *_ in directory.pools.by_key] == ["catch"]
    assert directory.pools.size_bytes < counted - 20 * MIB
    assert max(released) > 20 * MIB


def test_lanes_give_their_memory_back_and_the_others_stay() -> None:
    directory = directory_with()
    first, second = (directory.create({"family": "dmc", "lanes": 4, "seed": seed}) for seed in range(2))
    pool = first.pool
    pool.step(np.concatenate([first.lanes, second.lanes]), {})
    simulations = pool.state.simulation.copy()
    counted = directory.pools.size_bytes
    directory.destroy(first)
    assert pool.state.simulation[:4].tolist() == [0] * 4
    assert pool.state.simulation[second.lanes].tolist() == simulations[second.lanes].tolist()
    assert directory.pools.size_bytes < counted
    directory.destroy(second)
    assert pool.capacity == 0


def test_empty_pools_make_room(cpu: Renderer) -> None:
    kept = directory_with()
    kept.destroy(kept.create({"family": "dmc", "domain": "pendulum"}))
    assert len(kept.pools.by_key) == 1
    tight = directory_with(kept.memory.held_bytes + MIB)
    tight.destroy(tight.create({"family": "dmc", "domain": "pendulum"}))
    tight.create({"family": "dmc", "domain": "acrobot"})
    assert [str(dict(key[1])["domain"]) for key in tight.pools.by_key] == ["acrobot"]


@pytest.mark.parametrize(
    "settings",
    [
        {"family": "gym", "id": "CartPole-v1"},
        {"family": "gym", "id": "Hopper-v5"},
        {"family": "mujoco", "model": "cartpole/swingup", "drive": "state"},
    ],
    ids=lambda settings: "-".join(map(str, settings.values())),
)
def test_a_reset_needs_no_more_memory_where_building_a_family_chooses_a_subclass(settings: dict[str, Any]) -> None:
    directory = directory_with()
    world = directory.create({**settings, "lanes": 3})
    pool, lanes, counted = world.pool, world.lanes.tolist(), directory.pools.size_bytes
    directory.restart(world, {"seed": 5})
    assert (world.pool, world.lanes.tolist(), directory.pools.size_bytes) == (pool, lanes, counted)
    assert len(directory.pools.by_key) == 1


CGROUP_FILES = {
    "2": ("0::/user/app\n", "memory.max", "memory.current"),
    "1": ("5:cpu:/x\n4:memory:/user/app\n", "memory.limit_in_bytes", "memory.usage_in_bytes"),
}


@pytest.mark.parametrize("version", CGROUP_FILES)
@pytest.mark.parametrize("folder", ["", "user", "user/app"])
def test_a_limit_of_the_cgroup_or_of_one_above_counts(
    version: str, folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, limit_name, usage_name = CGROUP_FILES[version]
    (tmp_path / "own").write_text(own)
    (tmp_path / "info").write_text("MemTotal:  9000 kB\nMemAvailable:  8000 kB\n")
    monkeypatch.setattr(memory, "_OWN_CGROUPS", tmp_path / "own")
    monkeypatch.setattr(memory, "_MEMORY_INFO", tmp_path / "info")
    monkeypatch.setattr(memory, "_CGROUPS", tmp_path)
    assert available_bytes() == 8000 * 1024
    root = tmp_path / "memory" if version == "1" else tmp_path
    limited = root / folder
    limited.mkdir(parents=True, exist_ok=True)
    (limited / limit_name).write_text("1000000\n")
    (limited / usage_name).write_text("700000\n")
    (limited / "memory.stat").write_text("anon 600000\ninactive_file 50000\n")
    assert available_bytes() == 1_000_000 - 700_000 + 50_000
    (limited / limit_name).write_text("max\n")
    assert available_bytes() == 8000 * 1024
    assert MemoryBudget(None).max_bytes == 6000 * 1024
    assert MemoryBudget(17).max_bytes == 17
    (tmp_path / "info").unlink()
    assert available_bytes() == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
