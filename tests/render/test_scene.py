"""Adding and freeing lanes leaves other lanes unchanged, compared with a dictionary as the model."""

import mmap
import time

import numpy as np
import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from worldloom.kernels.tables import I32, NO_MESH, NO_TEXTURE
from worldloom.render.assets import AssetLibrary
from worldloom.render.scene import Scene

ASSETS = AssetLibrary(texture_size=8)
LOOK_COLUMNS = (
    *("light_direction", "light_color", "ambient", "ambient_ground"),
    *("sky_horizon", "sky_zenith", "fog_color", "fog_range"),
)
Kept = dict[str, np.ndarray]


def rows_held(scene: Scene) -> int:
    """Return the capacity of the instance table."""
    table = scene.instances.mesh.base
    assert table is not None
    return len(table)


def look_of(scene: Scene, lane: int) -> Kept:
    table = scene.lanes
    return {name: getattr(table, name)[lane] for name in LOOK_COLUMNS}


def default_look() -> Kept:
    scene = Scene(ASSETS)
    return look_of(scene, int(scene.add(1, 0)[0]))


DEFAULT_LOOK = default_look()


class LanesComeAndGo(RuleBasedStateMachine):
    """A state machine that adds, writes and frees lanes. The model maps a lane to its rows and its columns."""

    spare_rows = 16

    def __init__(self) -> None:
        super().__init__()
        self.scene = Scene(ASSETS, spare_rows=self.spare_rows)
        self.rows: dict[int, Kept] = {}
        self.looks: dict[int, Kept] = {}
        self.most_lanes = 0

    @rule(count=st.integers(0, 9), rows_per_lane=st.integers(0, 12))
    def add(self, count: int, rows_per_lane: int) -> None:
        lanes = self.scene.add(count, rows_per_lane)
        assert lanes.dtype == np.int32
        assert len(lanes) == len(set(lanes.tolist())) == count
        assert not set(lanes.tolist()) & set(self.rows)
        assert self.scene.rows(lanes).shape == (count, rows_per_lane if count else 0)
        for lane in lanes.tolist():
            self.rows[lane] = {
                "mesh": np.full(rows_per_lane, NO_MESH, np.int32),
                "pose": np.repeat(np.eye(3, 4, dtype=np.float32)[None], rows_per_lane, axis=0),
                "color": np.ones((rows_per_lane, 3), np.float32),
                "texture": np.full(rows_per_lane, NO_TEXTURE, np.int32),
                "uv_scale": np.ones((rows_per_lane, 2), np.float32),
                "label": np.zeros(rows_per_lane, np.uint8),
            }
            self.looks[lane] = {name: value.copy() for name, value in DEFAULT_LOOK.items()}
        self.most_lanes = max(self.most_lanes, len(self.rows))

    @rule(data=st.data(), seed=st.integers(0, 2**32))
    def write(self, data: st.DataObject, seed: int) -> None:
        rng = np.random.default_rng(seed)
        for lane in self.some(data):
            rows = self.scene.rows(lane)[0]
            for name, values in self.rows[lane].items():
                values[:] = rng.integers(0, 6, values.shape)
                getattr(self.scene.instances, name)[rows] = values
            for name, values in self.looks[lane].items():
                values[:] = rng.uniform(0, 1, values.shape)
                getattr(self.scene.lanes, name)[lane] = values

    @rule(data=st.data())
    def free(self, data: st.DataObject) -> None:
        self.free_these(self.some(data))

    @rule(data=st.data())
    def free_all_but(self, data: st.DataObject) -> None:
        self.free_these(sorted(set(self.rows) - set(self.some(data))))

    @rule(stranger=st.sampled_from([-1, 1000]), data=st.data())
    def free_what_is_not_there(self, stranger: int, data: st.DataObject) -> None:
        with pytest.raises(ValueError, match=f"cannot free lane {stranger}:"):
            self.scene.free([*self.some(data), stranger])

    @invariant()
    def everyone_has_their_own(self) -> None:
        owned: set[int] = set()
        instances = self.scene.instances
        for lane, kept in self.rows.items():
            rows = self.scene.rows(lane)[0]
            assert not owned & set(rows.tolist())
            owned |= set(rows.tolist())
            for name, values in kept.items():
                assert (getattr(instances, name)[rows] == values).all(), name
            for name, value in look_of(self.scene, lane).items():
                assert (value == self.looks[lane][name]).all(), name
        strangers = sorted(set(range(len(self.scene.instances.mesh))) - owned)
        assert (instances.mesh[strangers] == NO_MESH).all()

    @invariant()
    def tables_are_no_larger_than_they_may_be(self) -> None:
        lanes, in_use = len(self.scene.lanes.first_row), sum(len(kept["mesh"]) for kept in self.rows.values())
        assert lanes == self.most_lanes
        rows = len(self.scene.instances.mesh)
        assert rows <= max(2 * in_use, in_use + max(self.spare_rows, lanes))
        assert rows_held(self.scene) <= 2 * rows

    def some(self, data: st.DataObject) -> list[int]:
        return data.draw(st.lists(st.sampled_from(sorted(self.rows)), unique=True)) if self.rows else []

    def free_these(self, lanes: list[int]) -> None:
        self.scene.free(lanes)
        for lane in lanes:
            del self.rows[lane], self.looks[lane]
            assert self.scene.lanes.row_count[lane] == 0
            for name, value in look_of(self.scene, lane).items():
                assert (value == DEFAULT_LOOK[name]).all(), name


TestLanesComeAndGo = LanesComeAndGo.TestCase
TestLanesComeAndGo.settings = hypothesis_settings(max_examples=60, stateful_step_count=40)


def test_freed_lanes_are_reused_before_tables_grow() -> None:
    scene = Scene(ASSETS)
    first = scene.add(100, 3)
    scene.free(first[10:60])
    again = scene.add(50, 3)
    assert set(again.tolist()) == set(first[10:60].tolist())
    assert len(scene.instances.mesh) == 300


def test_a_freed_lane_serves_one_of_any_size() -> None:
    scene = Scene(ASSETS)
    for rows_per_lane in range(200):
        lane = scene.add(1, rows_per_lane)
        assert lane.tolist() == [0]
        scene.free(lane)


def test_worlds_of_ever_other_sizes_leave_nothing_behind() -> None:
    scene, rng, spare = Scene(ASSETS), np.random.default_rng(0), 4096
    stays = scene.add(20, 37)
    scene.instances.label[scene.rows(stays)] = np.arange(20)[:, None]
    worlds: list[I32] = []
    in_use = most_in_use = 20 * 37
    for round_number in range(1500):
        rows_per_lane = 6 + round_number
        worlds.append(scene.add(int(rng.integers(1, 9)), rows_per_lane))
        in_use += len(worlds[-1]) * rows_per_lane
        most_in_use = max(most_in_use, in_use)
        if len(worlds) > rng.integers(1, 5):
            gone = worlds.pop(int(rng.integers(len(worlds))))
            in_use -= int(scene.lanes.row_count[gone].sum())
            scene.free(gone)
        assert len(scene.instances.mesh) <= max(2 * in_use, in_use + spare)
        assert rows_held(scene) <= 2 * max(2 * in_use, in_use + spare)
    assert len(scene.lanes.first_row) < 20 + 8 * 6
    assert (scene.instances.label[scene.rows(stays)] == np.arange(20)[:, None]).all()
    for world in worlds:
        scene.free(world)
    assert len(scene.instances.mesh) <= 20 * 37 + spare < most_in_use


def test_memory_is_given_back_when_most_lanes_go() -> None:
    scene = Scene(ASSETS)
    stays = scene.add(3, 10)
    scene.instances.pose[scene.rows(stays)] = 7.0
    crowd = scene.add(5000, 20)
    stays = np.concatenate([stays, scene.add(3, 10)])
    scene.instances.pose[scene.rows(stays)] = 7.0
    scene.free(crowd)
    assert rows_held(scene) == 60
    assert (scene.instances.pose[scene.rows(stays)] == 7.0).all()


def test_lanes_without_rows_leave_nothing_behind() -> None:
    scene = Scene(ASSETS)
    for _ in range(300):
        scene.free(scene.add(10, 0))
    assert len(scene.lanes.first_row) == 10
    assert len(scene.instances.mesh) == 0


def test_growth_keeps_what_was_written() -> None:
    scene = Scene(ASSETS)
    lane: I32 = scene.add(1, 2)
    scene.instances.pose[scene.rows(lane)] = 7.0
    scene.add(1000, 2)
    assert (scene.instances.pose[scene.rows(lane)] == 7.0).all()


def test_rows_move_seldom_enough_to_cost_what_is_freed() -> None:
    """Lanes are freed one by one among thousands of others: rows must not be moved each time."""
    scene = Scene(ASSETS)
    scene.add(2000, 10)
    lanes = scene.add(3000, 10)
    tables = set()
    began = time.perf_counter()
    for lane in lanes:
        scene.free(lane)
        tables.add(id(scene.instances.mesh.base))
    assert len(tables) <= 2
    assert time.perf_counter() - began < 3.0  # some 0.2 s; to move all rows each time would take 30 s and more


def test_what_cannot_be_is_said_clearly() -> None:
    scene = Scene(ASSETS)
    lanes = scene.add(3, 1)
    with pytest.raises(ValueError, match="expected both to be 0 or more"):
        scene.add(-1, 2)
    with pytest.raises(ValueError, match="expected each only once"):
        scene.free([lanes[0], lanes[0]])
    scene.free(lanes[1])
    with pytest.raises(ValueError, match=f"cannot free lane {lanes[1]}: expected a lane that is in use"):
        scene.free(lanes)
    assert scene.lanes.row_count[lanes[0]] == 1, "a refused free must change nothing"
    with pytest.raises(ValueError, match="equally many"):
        scene.rows([*lanes[:1], *scene.add(1, 5)])


class LargeTables(LanesComeAndGo):
    """The same where tables count as large soon: memory is reserved in advance and released, and seldom packed."""

    def __init__(self) -> None:
        super().__init__()
        self._patch = pytest.MonkeyPatch()
        for name, value in (("LARGE_ROWS", 8), ("LARGE_BYTES", 64), ("RESERVED_BYTES", 1 << 16), ("RELEASED_BYTES", 1)):
            self._patch.setattr(f"worldloom.render.scene._{name}", value)

    def teardown(self) -> None:
        self._patch.undo()

    @rule(count=st.integers(0, 9), rows_per_lane=st.integers(0, 12))
    def reserve(self, count: int, rows_per_lane: int) -> None:
        self.scene.reserve(count, rows_per_lane)

    @invariant()
    def tables_are_no_larger_than_they_may_be(self) -> None:
        in_use = sum(len(kept["mesh"]) for kept in self.rows.values())
        rows, lanes = len(self.scene.instances.mesh), len(self.scene.lanes.first_row)
        assert rows <= max(17 * in_use, in_use + max(self.spare_rows, lanes))


TestLargeTables = LargeTables.TestCase
TestLargeTables.settings = hypothesis_settings(max_examples=40, stateful_step_count=40)


def test_a_large_table_grows_in_place_and_gives_memory_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("worldloom.render.scene._LARGE_BYTES", 1 << 20)
    monkeypatch.setattr("worldloom.render.scene._LARGE_ROWS", 1000)
    scene = Scene(ASSETS)
    lanes = scene.add(400, 100)  # 40,000 poses of 48 bytes: more than a mebibyte
    pose = scene.instances.pose
    pose[:] = 3.0
    more = scene.add(4000, 100)
    assert scene.instances.pose.ctypes.data == pose.ctypes.data
    assert (scene.instances.pose[:40_000] == 3.0).all()
    scene.instances.pose[40_000:] = 7.0
    before = resident_bytes()
    scene.free(more)
    assert before - resident_bytes() > 10 << 20, "400,000 rows of 76 bytes were 30 MB"
    assert (scene.instances.pose[scene.rows(lanes)] == 3.0).all()
    again = scene.add(4000, 100)
    assert (scene.instances.pose[scene.rows(again)] == np.eye(3, 4)).all()


def resident_bytes() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * mmap.PAGESIZE
