"""A film of many worlds side by side, and a sheet of them, as their own clients see them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from worldloom.client import VectorEnv
from worldloom.demo.pilots import CartpolePilot, CatchPilot, MazePilot, Pilot, Seen
from worldloom.render.show import depth_colors, label_colors, tile

TILE = 128
"""Pixels of a picture on the sheet. On film it has half of them, each the mean of four."""
FRAME_S = 0.08
FILM_COLUMNS, FILM_ROWS, FILM_GAP = 12, 5, 4
SHEET_COLUMNS, SHEET_ROWS, SHEET_GAP = 8, 4, 6
_BACKGROUND = (24, 26, 33)


@dataclass(frozen=True)
class Cast:
    """A vector world on film."""

    family: str
    pilot: type[Pilot]
    settings: Mapping[str, Any] = field(default_factory=dict)
    steps_before: int = 0
    """Steps until filming begins."""
    steps_a_frame: int = 1
    cameras: tuple[str, ...] = ("eye",)


CASTS: Mapping[str, Sequence[Cast]] = {
    "catch": [
        Cast("catch", CatchPilot, {"rows": side, "columns": side}, before)
        for side, before in ((10, 1), (8, 4), (12, 8))
    ],
    "cartpole": [Cast("cartpole", CartpolePilot, {}, before, steps_a_frame=2) for before in (10, 45, 90)],
    "maze": [
        Cast(
            "maze", MazePilot, {"goals": 6, "textures": "random", "lighting": "random"}, 8, cameras=("eye", "map")
        )
    ],
}  # fmt: skip
"""By family. Casts differ in how far they are, since episodes of one begin together."""
_PATTERN = (("maze", "eye"), ("cartpole", "eye"), ("maze", "eye"), ("catch", "eye"), ("maze", "map"))
"""Which camera of which family, one after the other: rows and columns get some of each."""


@dataclass(frozen=True)
class Spot:
    """A place in the picture: a camera of a lane of a cast."""

    family: str
    cast: int
    lane: int
    camera: str


def shoot(address: str, count: int, hear: Callable[[float], None]) -> tuple[np.ndarray, np.ndarray]:
    """A film [count, H, W, 3] and a sheet [H, W, 3]; `hear` is told how far it is, 0 to 1."""
    spots, sheet_spots = place_spots(FILM_COLUMNS, FILM_ROWS), place_spots(SHEET_COLUMNS, SHEET_ROWS)
    frames = []
    with ExitStack() as at_the_end:
        plays = {}
        for family, casts in CASTS.items():
            for number, cast in enumerate(casts):
                lanes = 1 + max(spot.lane for spot in spots if (spot.family, spot.cast) == (family, number))
                env = _make(address, cast, lanes)
                at_the_end.callback(env.close)
                plays[family, number] = _play(env, cast)
        for number in range(count):
            seen = {key: next(play) for key, play in plays.items()}
            frames.append(tile(_halved(_pictures(seen, spots, "rgb")), FILM_COLUMNS, FILM_GAP, _BACKGROUND))
            hear((number + 1) / count)
        return np.stack(frames), _make_sheet(seen, sheet_spots)


def place_spots(columns: int, rows: int) -> list[Spot]:
    """Who stands where, row after row. No camera of a lane is seen twice, none of the same kind above itself."""
    used: dict[tuple[str, str], int] = {}
    spots = []
    for row in range(rows):
        for column in range(columns):
            family, camera = _PATTERN[(column + row) % len(_PATTERN)]
            count = used[family, camera] = used.get((family, camera), -1) + 1
            lane, cast = divmod(count, len(CASTS[family]))
            spots.append(Spot(family, cast, lane, camera))
    return spots


def _make(address: str, cast: Cast, lanes: int) -> VectorEnv:
    pictures = [f"{camera}.{output}" for camera in cast.cameras for output in ("rgb", "depth", "segmentation")]
    return VectorEnv(
        address,
        cast.family,
        lanes,
        width=TILE,
        height=TILE,
        samples=4,
        observations=[*pictures, *cast.pilot.needs],
        settings=cast.settings,
        seed=cast.steps_before,
    )


def _play(env: VectorEnv, cast: Cast) -> Iterator[Seen]:
    """What is seen, frame by frame."""
    pilot = cast.pilot()
    seen, _ = env.reset()
    for _ in range(cast.steps_before):
        seen = env.step(pilot.act(seen))[0]
    while True:
        yield seen
        for _ in range(cast.steps_a_frame):
            seen = env.step(pilot.act(seen))[0]


def _pictures(seen: Mapping[tuple[str, int], Seen], spots: Sequence[Spot], output: str) -> np.ndarray:
    return np.stack([seen[one.family, one.cast][f"{one.camera}.{output}"][one.lane] for one in spots])


def _halved(pictures: np.ndarray) -> np.ndarray:
    """Pictures of half the size, each pixel the mean of four."""
    wide = pictures.astype(np.uint16)
    fours = wide[:, ::2, ::2] + wide[:, 1::2, ::2] + wide[:, ::2, 1::2] + wide[:, 1::2, 1::2]
    return (fours + 2 >> 2).astype(np.uint8)


def _make_sheet(seen: Mapping[tuple[str, int], Seen], spots: Sequence[Spot]) -> np.ndarray:
    """Worlds in rgb; under the last row the same in depth, and in labels."""
    last_row = spots[-SHEET_COLUMNS:]
    labels = _pictures(seen, last_row, "segmentation")
    depth = np.where(labels == 0, np.float32(np.inf), _pictures(seen, last_row, "depth"))  # 0 is the sky
    rows = [_pictures(seen, spots, "rgb"), depth_colors(depth, np.inf), label_colors(labels)]
    return tile(np.concatenate(rows), SHEET_COLUMNS, SHEET_GAP, _BACKGROUND)
