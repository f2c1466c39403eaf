"""Lanes come and go; whoever stays is not disturbed. Judged by a dictionary that remembers everything."""

import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from worldloom.kernels.tables import I32, NO_MESH
from worldloom.render.assets import AssetLibrary
from worldloom.render.scene import Scene

ASSETS = AssetLibrary(texture_size=8)


class LanesComeAndGo(RuleBasedStateMachine):
    """Adds, writes and frees lanes at random. The model: lane -> (rows per lane, the number written into its rows)."""

    def __init__(self) -> None:
        super().__init__()
        self.scene = Scene(ASSETS)
        self.model: dict[int, tuple[int, float]] = {}
        self.mark = 0.0

    @rule(count=st.integers(0, 9), rows_per_lane=st.integers(0, 4))
    def add(self, count: int, rows_per_lane: int) -> None:
        lanes = self.scene.add(count, rows_per_lane)
        assert lanes.dtype == np.int32
        assert len(lanes) == count
        assert not set(lanes.tolist()) & set(self.model)
        rows = self.scene.rows(lanes)
        assert rows.shape == (count, rows_per_lane if count else 0)
        assert (self.scene.instances.mesh[rows] == NO_MESH).all()
        assert (self.scene.lanes.fog_range[lanes] == 0).all()
        for lane in lanes.tolist():
            self.mark += 1.0
            self.scene.instances.mesh[self.scene.rows(lane)] = 0
            self.scene.instances.color[self.scene.rows(lane)] = self.mark
            self.scene.lanes.fog_range[lane] = self.mark
            self.model[lane] = (rows_per_lane, self.mark)

    @rule(data=st.data())
    def free(self, data: st.DataObject) -> None:
        if not self.model:
            return
        lanes = data.draw(st.lists(st.sampled_from(sorted(self.model)), unique=True))
        self.scene.free(lanes)
        for lane in lanes:
            del self.model[lane]
            assert self.scene.lanes.row_count[lane] == 0

    @rule()
    def free_what_is_not_there(self) -> None:
        with pytest.raises(ValueError, match="cannot free lane"):
            self.scene.free([max(self.model, default=-1) + 1000])

    @invariant()
    def everyone_has_their_own(self) -> None:
        owned: set[int] = set()
        for lane, (rows_per_lane, mark) in self.model.items():
            rows = self.scene.rows(lane)[0]
            assert len(rows) == rows_per_lane
            assert not owned & set(rows.tolist())
            owned |= set(rows.tolist())
            assert (self.scene.instances.color[rows] == mark).all()
            assert (self.scene.lanes.fog_range[lane] == mark).all()


TestLanesComeAndGo = LanesComeAndGo.TestCase


def test_freed_lanes_are_reused_before_tables_grow() -> None:
    scene = Scene(ASSETS)
    first = scene.add(100, 3)
    scene.free(first[10:60])
    again = scene.add(50, 3)
    assert set(again.tolist()) == set(first[10:60].tolist())
    assert len(scene.instances.mesh) == 300


def test_growth_keeps_what_was_written() -> None:
    scene = Scene(ASSETS)
    lane: I32 = scene.add(1, 2)
    scene.instances.pose[scene.rows(lane)] = 7.0
    scene.add(1000, 2)
    assert (scene.instances.pose[scene.rows(lane)] == 7.0).all()


def test_what_cannot_be_is_said_clearly() -> None:
    scene = Scene(ASSETS)
    lanes = scene.add(3, 1)
    with pytest.raises(ValueError, match="both must be 0 or more"):
        scene.add(-1, 2)
    with pytest.raises(ValueError, match="named twice"):
        scene.free([lanes[0], lanes[0]])
    scene.free(lanes[1])
    with pytest.raises(ValueError, match=f"cannot free lane {lanes[1]}: expected a lane that is in use"):
        scene.free(lanes)
    assert scene.lanes.row_count[lanes[0]] == 1, "a refused free must change nothing"
    with pytest.raises(ValueError, match="equally many"):
        scene.rows([*lanes[:1], *scene.add(1, 5)])
