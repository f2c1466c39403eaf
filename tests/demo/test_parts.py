"""The parts of the demo by themselves: who stands where on film, what is said in columns, and how progress is shown."""

import io
import re
import sys
from collections import Counter

import numpy as np
import pytest

from worldloom.demo.clients import Reading
from worldloom.demo.film import (
    CASTS,
    FILM_COLUMNS,
    FILM_ROWS,
    SHEET_COLUMNS,
    SHEET_ROWS,
    CatchPilot,
    MazePilot,
    Spot,
    place_spots,
)
from worldloom.demo.own_server import Compiling
from worldloom.demo.progress import progress
from worldloom.demo.report import Figures, report


@pytest.mark.parametrize(("columns", "rows"), [(FILM_COLUMNS, FILM_ROWS), (SHEET_COLUMNS, SHEET_ROWS)])
def test_nobody_is_seen_twice_and_no_camera_stands_beside_itself(columns: int, rows: int) -> None:
    spots = place_spots(columns, rows)
    assert len(set(spots)) == len(spots) == columns * rows
    assert Counter(spot.family for spot in spots).keys() == CASTS.keys()
    assert all(spot.camera in CASTS[spot.family][spot.cast].cameras for spot in spots)

    def kind(spot: Spot) -> tuple[str, str]:
        return spot.family, spot.camera

    for place, spot in enumerate(spots):
        if place % columns:
            assert kind(spots[place - 1]) != kind(spot)
        if place >= columns:
            assert kind(spots[place - columns]) != kind(spot)


def figures(stage_s: dict[str, float], ticks: int = 10) -> Figures:
    reading = Reading(2.0, ticks, steps=20, lane_steps=5120, frames=5120, stage_s=stage_s)
    return Figures("3 vector worlds", "in replies", 768, {"catch": 2048, "maze": 3072}, reading)


def cells(lines: list[str]) -> dict[str, str]:
    return {line[:22].strip(): line[22:].strip() for line in lines}


def test_the_report() -> None:
    found = cells(report([figures({"draw": 0.03, "fill": 0.01, "readback": 0.0})]))
    assert found == {
        "": "3 vector worlds",
        "pictures come": "in replies",
        "worlds": "768",
        "frames a second": "2,560",
        "catch": "1,024",
        "maze": "1,536",
        "mean batch, streams": "2.0",
        "mean batch, worlds": "512.0",
        "time of a batch, ms": "4.00",
        "draw": "3.00  75.0%",
        "fill": "1.00  25.0%",
    }


@pytest.mark.parametrize("stage_s", [{}, {"draw": 0.0}])
def test_a_server_that_tells_of_no_stages(stage_s: dict[str, float]) -> None:
    assert "time of a batch, ms" not in cells(report([figures(stage_s, ticks=0)]))


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_bar_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", out := Terminal())
    monkeypatch.setattr("worldloom.demo.progress._REDRAW_S", 0.0)
    with progress("stepping") as show:
        for part in (0.0, 0.5, 1.0):
            show(part, "7 frames a second")
    drawn = re.findall(r"\[([#.]*)\] stepping  7 frames a second", out.getvalue())
    assert [one.count("#") for one in drawn] == [0, 12, 24]
    assert {len(one) for one in drawn} == {24}
    assert "\n" not in out.getvalue()
    assert out.getvalue().endswith("\r\033[K")  # wiped away


def test_plain_lines_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", out := io.StringIO())
    with progress("stepping") as show:
        for part in np.linspace(0, 1, 101):
            show(float(part), "7 frames a second")
    assert out.getvalue().splitlines() == [
        "stepping",
        *(f"stepping: {part}%  7 frames a second" for part in (25, 50, 75, 100)),
    ]


def test_the_pilot_of_catch_goes_for_the_ball() -> None:
    act = CatchPilot().act({"ball": np.array([[2, 7], [2, 1], [2, 4]]), "paddle": np.array([4, 4, 4])})
    assert act["paddle"].tolist() == [1, -1, 0]


def test_the_pilot_of_mazes_turns_to_where_it_is_free_and_does_not_waver() -> None:
    size, wall, goal = 12, 2, 3
    depth = np.full((3, size, size), 0.3, np.float32)
    depth[0, :, :3] = 4.0  # free on the left
    depth[1, :, -3:] = 4.0  # free on the right
    labels = np.full((3, size, size), wall, np.uint8)
    labels[2] = goal  # as near as a wall, but nothing to turn from
    pilot = MazePilot()
    act = pilot.act({"eye.depth": depth, "eye.segmentation": labels})
    assert act["turn"].round(6).tolist() == [1, -1, 0]
    assert act["move"][:, 0].tolist() == [0, 0, 1]
    again = pilot.act({"eye.depth": depth[:, :, ::-1], "eye.segmentation": labels})
    assert again["turn"].round(6).tolist() == [1, -1, 0]


def test_how_far_kernels_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", out := io.StringIO())
    with Compiling() as compiling:
        compiling.hear("")
        assert out.getvalue() == ""  # those that come from the cache are not worth a word
        compiling.hear("worldloom: compiling its kernels, once on this machine\n")
        for count in (8, 16, 24):
            compiling.hear(f"worldloom: compiled {count} of 32 functions\n")
        compiling.hear("worldloom: compiled 8 of 64 functions\n")  # the next lot of them
        compiling.finish()
    assert out.getvalue().splitlines() == [
        "compiling kernels, once on this machine: about a minute",
        *(f"compiling kernels, once on this machine: about a minute: {part}%  0 s" for part in (25, 50, 75)),
        "compiled the kernels in 0 s",
    ]
