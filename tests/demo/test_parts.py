"""The parts of the demo by themselves: cells of the recording, policies, and the table."""

from collections import Counter

import numpy as np
import pytest

from worldloom.demo.clients import Counters
from worldloom.demo.recording import (
    RECORDED_WORLDS,
    SHEET_COLUMNS,
    SHEET_ROWS,
    VIDEO_COLUMNS,
    VIDEO_ROWS,
    CatchPolicy,
    Cell,
    MazePolicy,
    arrange_cells,
)
from worldloom.demo.run import Measurement, table_rows


@pytest.mark.parametrize(("columns", "rows"), [(VIDEO_COLUMNS, VIDEO_ROWS), (SHEET_COLUMNS, SHEET_ROWS)])
def test_nobody_is_seen_twice_and_no_camera_stands_beside_itself(columns: int, rows: int) -> None:
    cells = arrange_cells(columns, rows)
    assert len(set(cells)) == len(cells) == columns * rows
    assert Counter(cell.family for cell in cells).keys() == RECORDED_WORLDS.keys()
    assert all(cell.camera in RECORDED_WORLDS[cell.family][cell.world].cameras for cell in cells)

    def kind(cell: Cell) -> tuple[str, str]:
        return cell.family, cell.camera

    for place, cell in enumerate(cells):
        if place % columns:
            assert kind(cells[place - 1]) != kind(cell)
        if place >= columns:
            assert kind(cells[place - columns]) != kind(cell)


def figures(stage_s: dict[str, float], ticks: int = 10) -> Measurement:
    reading = Counters(2.0, ticks, steps=20, lane_steps=5120, frames=5120, stage_s=stage_s)
    return Measurement("3 vector worlds", "in replies", 768, {"catch": 2048, "maze": 3072}, reading)


def cells_of(rows: list[list[str]]) -> dict[str, str]:
    return {name.strip(): cell for name, cell in rows}


def test_the_report() -> None:
    found = cells_of(table_rows([figures({"draw": 0.03, "fill": 0.01, "readback": 0.0})]))
    assert found == {
        "": "3 vector worlds",
        "frames come": "in replies",
        "worlds": "768",
        "frames a second": "2,560",
        "catch": "1,024",
        "maze": "1,536",
        "mean batch, streams": "2.0",
        "mean batch, worlds": "512.0",
        "time of a batch, ms": "4.00 100.0%",
        "draw": "3.00  75.0%",
        "fill": "1.00  25.0%",
    }


@pytest.mark.parametrize("stage_s", [{}, {"draw": 0.0}])
def test_a_server_that_tells_of_no_stages(stage_s: dict[str, float]) -> None:
    assert "time of a batch, ms" not in cells_of(table_rows([figures(stage_s, ticks=0)]))


def test_the_policy_of_catch_goes_for_the_ball() -> None:
    act = CatchPolicy().act({"ball": np.array([[2, 7], [2, 1], [2, 4]]), "paddle": np.array([4, 4, 4])})
    assert act["paddle"].tolist() == [1, -1, 0]


def test_the_policy_of_mazes_turns_to_where_it_is_free_and_does_not_waver() -> None:
    size, wall, goal = 12, 2, 3
    depth = np.full((3, size, size), 0.3, np.float32)
    depth[0, :, :3] = 4.0  # free on the left
    depth[1, :, -3:] = 4.0  # free on the right
    labels = np.full((3, size, size), wall, np.uint8)
    labels[2] = goal  # as near as a wall, but nothing to turn from
    policy = MazePolicy()
    act = policy.act({"eye.depth": depth, "eye.segmentation": labels})
    assert act["turn"].round(6).tolist() == [1, -1, 0]
    assert act["move"][:, 0].tolist() == [0, 0, 1]
    again = policy.act({"eye.depth": depth[:, :, ::-1], "eye.segmentation": labels})
    assert again["turn"].round(6).tolist() == [1, -1, 0]
