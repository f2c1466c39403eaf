"""Who acts while worlds are filmed: each sees what its world's client sees, and nothing else.

Pictures for people: depth and labels as colours, and many pictures as one sheet. No renderer needs this.

A film of many worlds side by side, and a sheet of them, as their own clients see them.
"""

import colorsys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, TypeAlias

import numpy as np

from worldloom.client import VectorEnv
from worldloom.kernels.tables import F32, U8

Seen: TypeAlias = dict[str, np.ndarray]
_WALL = 2
"""The label of walls in a maze, as `worldloom describe maze` lists it."""


class Pilot(Protocol):
    """Acts in all lanes of a vector world."""

    needs: ClassVar[tuple[str, ...]]
    """Observations that it looks at."""

    def act(self, seen: Seen) -> dict[str, Any]:
        """Actions for what is seen."""


class CatchPilot:
    """Goes for the ball."""

    needs: ClassVar[tuple[str, ...]] = ("ball", "paddle")

    def act(self, seen: Seen) -> dict[str, Any]:
        """One step towards it."""
        return {"paddle": np.sign(seen["ball"][:, 1] - seen["paddle"])}


class CartpolePilot:
    """Pumps the pole up, and holds it when it is there."""

    needs: ClassVar[tuple[str, ...]] = ("pose", "velocity")

    def act(self, seen: Seen) -> dict[str, Any]:
        """By the energy that the pole lacks, or by how far it leans."""
        x, cosine, sine = seen["pose"].T
        speed, turning = seen["velocity"].T
        lacking = turning**2 / 60 + 0.49 * (cosine - 1)  # joules, below 0 until it can reach the top
        pump = 1.46 * lacking * np.sign(turning * cosine) - 1.55 * x - 0.28 * speed
        hold = 2.6 * sine + 1.24 * turning + 0.06 * x - 0.13 * speed
        return {"force": np.clip(np.where(cosine > 0.9, hold, pump), -1, 1).astype(np.float32)}


class MazePilot:
    """Goes where the picture is deepest, through goals, and turns where a wall is near."""

    needs: ClassVar[tuple[str, ...]] = ("eye.depth", "eye.segmentation")

    def __init__(self) -> None:
        self._side: np.ndarray = np.zeros(1)
        """Where it turns while a wall is near, 0 while none is: it would waver in corners."""

    def act(self, seen: Seen) -> dict[str, Any]:
        """By the middle row of its picture."""
        size = seen["eye.depth"].shape[1]
        rows = slice(size // 2 - 1, size // 2 + 1)
        is_wall = seen["eye.segmentation"][:, rows] == _WALL
        ahead = np.where(is_wall, np.minimum(seen["eye.depth"][:, rows], 5.0), 5.0).min(axis=1)
        middle = ahead[:, size // 3 : -size // 3].min(axis=1)
        weights = ahead**3
        towards = (weights * np.linspace(1, -1, size)).sum(axis=1) / weights.sum(axis=1)  # left is positive
        chosen = np.where(towards >= 0, 1.0, -1.0)
        self._side = np.where(middle > 0.8, 0.0, np.where(self._side == 0, chosen, self._side))
        turn = np.where(self._side != 0, self._side, np.clip(2 * towards, -1, 1))
        move = np.stack([np.clip(2 * middle - 1, 0, 1), np.zeros_like(middle)], axis=1)
        return {"move": move.astype(np.float32), "turn": turn.astype(np.float32)}


WHITE = (255, 255, 255)
_NEAR_TO_FAR = ("fdf3c3", "fcc77b", "f7945d", "df6265", "b0447a", "7a3478", "472a6b", "1f1d4a", "0d1030")
"""The stops of the depth colours, evenly spaced."""
_NOTHING = "070a1e"
"""The colour of depth where there is nothing."""
_SHARE_WITH_COLORS = 0.95
_FIRST_LABELS = (
    "20242f",  # 0, the sky's
    "7d8597", "e4b363", "e2725b", "2a9d8f", "5a78b8", "b56bb0", "8ab17d", "f2cc8f", "d1495b", "4cb5d6", "9a7b4f",
)  # fmt: skip
"""The colours of the smallest labels, chosen to go together; those of the others follow a formula."""
_GOLDEN = 0.6180339887
"""Steps of this part of a circle never come close to where they have been."""


def depth_colors(depth: F32, far: float | F32) -> U8:
    """Depth pictures [..., H, W] as colours [..., H, W, 3]: light is near, and dark far; darkest, where nothing is.

    Each picture has the whole range of colours for itself, from its nearest point on; the farthest twentieth of its
    pixels share the last. `far` is the far plane of all of them or of each, which is the depth where nothing is.
    """
    empty = depth >= np.asarray(far, np.float32)[..., None, None]
    nearest = np.where(empty, np.inf, depth).min(axis=(-2, -1), keepdims=True)
    nearest = np.where(np.isfinite(nearest), nearest, 0.0)
    beyond = np.where(empty, 0.0, depth - nearest)
    farthest = np.quantile(beyond, _SHARE_WITH_COLORS, axis=(-2, -1), keepdims=True)
    # The root gives what is near more of the colours: that is where shapes are.
    at = np.sqrt(np.clip(beyond / np.maximum(farthest, 1e-6), 0, 1)) * (len(_NEAR_TO_FAR) - 1)
    stops = _from_hex(*_NEAR_TO_FAR).astype(np.float32)
    low = np.minimum(at.astype(np.int64), len(stops) - 2)
    colors = stops[low] + (at - low)[..., None] * (stops[low + 1] - stops[low])
    colors[empty] = _from_hex(_NOTHING)[0]
    rounded: U8 = np.rint(colors).astype(np.uint8)
    return rounded


def label_colors(labels: U8) -> U8:
    """Label pictures [..., H, W] as colours [..., H, W, 3], the same for a label wherever it is."""
    colors: U8 = LABEL_PALETTE[labels]
    return colors


def tile(pictures: U8, columns: int, gap: int = 0, background: tuple[int, int, int] = WHITE) -> U8:
    """Pictures [N, H, W, 3] side by side, row after row, as one picture with `gap` pixels between and around them."""
    if pictures.ndim != 4 or pictures.shape[3] != 3 or not len(pictures):
        raise ValueError(f"pictures to tile: expected [N, H, W, 3] with N of at least 1, got {list(pictures.shape)}")
    if columns < 1 or gap < 0:
        raise ValueError(f"{columns} columns with a gap of {gap}: expected at least 1, and at least 0")
    count, height, width, _ = pictures.shape
    rows = -(-count // columns)
    cells = np.empty((rows * columns, height + gap, width + gap, 3), np.uint8)
    cells[...] = background
    cells[:count, :height, :width] = pictures
    grid = cells.reshape(rows, columns, *cells.shape[1:]).swapaxes(1, 2)
    sheet = np.empty((rows * (height + gap) + gap, columns * (width + gap) + gap, 3), np.uint8)
    sheet[...] = background
    sheet[gap:, gap:] = grid.reshape(rows * (height + gap), columns * (width + gap), 3)
    return sheet


def _from_hex(*colors: str) -> U8:
    return np.array([list(bytes.fromhex(color)) for color in colors], np.uint8)


def _make_palette() -> U8:
    numbers = range(len(_FIRST_LABELS), 256)
    others = [colorsys.hsv_to_rgb(k * _GOLDEN % 1, 0.45 + 0.1 * (k % 3), 0.92 - 0.13 * (k % 4)) for k in numbers]
    return np.concatenate([_from_hex(*_FIRST_LABELS), np.rint(np.array(others) * 255).astype(np.uint8)])


LABEL_PALETTE = _make_palette()
"""Colours [256, 3] of the labels."""


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
