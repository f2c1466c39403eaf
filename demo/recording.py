"""Recording of many worlds side by side: a video and a contact sheet of what their own clients observe.

Scripted policies act from a client's observations alone. Every family has some vector worlds, which differ in settings
or in how many steps they took before the recording: lanes of one vector world start their episodes together.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, TypeAlias

import numpy as np

from worldloom.client import VectorEnv
from worldloom.demo.images import depth_colors, label_colors, tile

Observations: TypeAlias = dict[str, np.ndarray]
_WALL_LABEL = 2
"""Label of walls in a maze, as `worldloom describe maze` lists it."""

FRAME_SIZE = 128
"""Width and height of a frame on the contact sheet. In the video it is half as large, each pixel the mean of four."""
VIDEO_FRAME_S = 0.08
VIDEO_COLUMNS, VIDEO_ROWS, VIDEO_GAP = 12, 5, 4
SHEET_COLUMNS, SHEET_ROWS, SHEET_GAP = 8, 4, 6
_BACKGROUND = (24, 26, 33)


class Policy(Protocol):
    """Scripted policy for all lanes of a vector world."""

    observations: ClassVar[tuple[str, ...]]
    """Observations that it needs."""

    def act(self, observed: Observations) -> dict[str, Any]:
        """Return the actions of all lanes."""


class CatchPolicy:
    """Moves the paddle towards the ball."""

    observations: ClassVar[tuple[str, ...]] = ("ball", "paddle")

    def act(self, observed: Observations) -> dict[str, Any]:
        """Return one step towards the ball's column."""
        return {"paddle": np.sign(observed["ball"][:, 1] - observed["paddle"])}


class CartpolePolicy:
    """Swings the pole up by its energy, then balances it."""

    observations: ClassVar[tuple[str, ...]] = ("pose", "velocity")

    def act(self, observed: Observations) -> dict[str, Any]:
        """Return the force of the swing-up, or near the top that of a linear controller."""
        x, cosine, sine = observed["pose"].T
        speed, turning = observed["velocity"].T
        missing_energy = turning**2 / 60 + 0.49 * (cosine - 1)  # joules, below 0 until the pole can reach the top
        swing_up = 1.46 * missing_energy * np.sign(turning * cosine) - 1.55 * x - 0.28 * speed
        balance = 2.6 * sine + 1.24 * turning + 0.06 * x - 0.13 * speed
        return {"force": np.clip(np.where(cosine > 0.9, balance, swing_up), -1, 1).astype(np.float32)}


class MazePolicy:
    """Steers towards the greatest depth, through goals, and turns where a wall is near."""

    observations: ClassVar[tuple[str, ...]] = ("eye.depth", "eye.segmentation")

    def __init__(self) -> None:
        self._turn_side: np.ndarray = np.zeros(1)
        """Side that each lane turns to while a wall is near, else 0. Kept, or it would oscillate in corners."""

    def act(self, observed: Observations) -> dict[str, Any]:
        """Return moves and turns by the middle rows of the frame."""
        size = observed["eye.depth"].shape[1]
        rows = slice(size // 2 - 1, size // 2 + 1)
        is_wall = observed["eye.segmentation"][:, rows] == _WALL_LABEL
        ahead = np.where(is_wall, np.minimum(observed["eye.depth"][:, rows], 5.0), 5.0).min(axis=1)
        middle = ahead[:, size // 3 : -size // 3].min(axis=1)
        weights = ahead**3
        direction = (weights * np.linspace(1, -1, size)).sum(axis=1) / weights.sum(axis=1)  # left is positive
        side = np.where(direction >= 0, 1.0, -1.0)
        self._turn_side = np.where(middle > 0.8, 0.0, np.where(self._turn_side == 0, side, self._turn_side))
        turn = np.where(self._turn_side != 0, self._turn_side, np.clip(2 * direction, -1, 1))
        move = np.stack([np.clip(2 * middle - 1, 0, 1), np.zeros_like(middle)], axis=1)
        return {"move": move.astype(np.float32), "turn": turn.astype(np.float32)}


@dataclass(frozen=True)
class RecordedWorld:
    """A vector world to record."""

    family: str
    policy: type[Policy]
    settings: Mapping[str, Any] = field(default_factory=dict)
    steps_before: int = 0
    """Steps before the first frame."""
    steps_per_frame: int = 1
    cameras: tuple[str, ...] = ("eye",)


_VARIED: Mapping[str, Any] = {
    "vary_colors": 0.35,
    "vary_sky": 0.3,
    "vary_background": 0.5,
    "vary_background_at": "walk",
}
RECORDED_WORLDS: Mapping[str, Sequence[RecordedWorld]] = {
    "catch": [
        RecordedWorld("catch", CatchPolicy, {"rows": side, "columns": side, **varied}, before)
        for side, before, varied in ((10, 1, {}), (8, 4, {}), (12, 8, _VARIED))
    ],
    "cartpole": [
        RecordedWorld("cartpole", CartpolePolicy, varied, before, steps_per_frame=2)
        for before, varied in ((10, {}), (45, {}), (90, _VARIED))
    ],
    "maze": [
        RecordedWorld(
            "maze",
            MazePolicy,
            {"goals": 6, "textures": "random", "lighting": "random"},
            8,
            cameras=("eye", "map"),
        )
    ],
}  # fmt: skip
"""Vector worlds by family."""
_PATTERN = (("maze", "eye"), ("cartpole", "eye"), ("maze", "eye"), ("catch", "eye"), ("maze", "map"))
"""Family and camera of consecutive cells, so that every row and column has some of each."""


@dataclass(frozen=True)
class Cell:
    """A cell of the grid: one camera of one lane of a recorded world."""

    family: str
    world: int
    """Index in RECORDED_WORLDS of the family."""
    lane: int
    camera: str


def record(address: str, count: int, report: Callable[[float], None]) -> tuple[np.ndarray, np.ndarray]:
    """Return a video [count, H, W, 3] and a contact sheet [H, W, 3] of worlds of the server at `address`.

    `report` is called with the fraction that is done.
    """
    cells, sheet_cells = arrange_cells(VIDEO_COLUMNS, VIDEO_ROWS), arrange_cells(SHEET_COLUMNS, SHEET_ROWS)
    video = []
    with ExitStack() as cleanup:
        episodes = {}
        for family, worlds in RECORDED_WORLDS.items():
            for index, world in enumerate(worlds):
                lanes = 1 + max(cell.lane for cell in cells if (cell.family, cell.world) == (family, index))
                env = _make_env(address, world, lanes)
                cleanup.callback(env.close)
                episodes[family, index] = _run_policy(env, world)
        for number in range(count):
            observed = {key: next(episode) for key, episode in episodes.items()}
            video.append(tile(_halve(_frames(observed, cells, "rgb")), VIDEO_COLUMNS, VIDEO_GAP, _BACKGROUND))
            report((number + 1) / count)
        return np.stack(video), _draw_sheet(observed, sheet_cells)


def arrange_cells(columns: int, rows: int) -> list[Cell]:
    """Return the cells of a grid, row after row: each lane's camera at most once, no equal kinds side by side."""
    used: dict[tuple[str, str], int] = {}
    cells = []
    for row in range(rows):
        for column in range(columns):
            family, camera = _PATTERN[(column + row) % len(_PATTERN)]
            count = used[family, camera] = used.get((family, camera), -1) + 1
            lane, world = divmod(count, len(RECORDED_WORLDS[family]))
            cells.append(Cell(family, world, lane, camera))
    return cells


def _make_env(address: str, world: RecordedWorld, lanes: int) -> VectorEnv:
    frames = [f"{camera}.{output}" for camera in world.cameras for output in ("rgb", "depth", "segmentation")]
    return VectorEnv(
        address,
        world.family,
        lanes,
        width=FRAME_SIZE,
        height=FRAME_SIZE,
        samples=4,
        observations=[*frames, *world.policy.observations],
        settings=world.settings,
        seed=world.steps_before,
    )


def _run_policy(env: VectorEnv, world: RecordedWorld) -> Iterator[Observations]:
    """Yield the observations of each recorded frame, without end."""
    policy = world.policy()
    observed, _ = env.reset()
    for _ in range(world.steps_before):
        observed = env.step(policy.act(observed))[0]
    while True:
        yield observed
        for _ in range(world.steps_per_frame):
            observed = env.step(policy.act(observed))[0]


def _frames(observed: Mapping[tuple[str, int], Observations], cells: Sequence[Cell], output: str) -> np.ndarray:
    return np.stack([observed[cell.family, cell.world][f"{cell.camera}.{output}"][cell.lane] for cell in cells])


def _halve(frames: np.ndarray) -> np.ndarray:
    """Return frames of half the size, each pixel the mean of four."""
    wide = frames.astype(np.uint16)
    fours = wide[:, ::2, ::2] + wide[:, 1::2, ::2] + wide[:, ::2, 1::2] + wide[:, 1::2, 1::2]
    return (fours + 2 >> 2).astype(np.uint8)


def _draw_sheet(observed: Mapping[tuple[str, int], Observations], cells: Sequence[Cell]) -> np.ndarray:
    """Return the cells in rgb, and below them the last row again in depth and in labels."""
    last_row = cells[-SHEET_COLUMNS:]
    labels = _frames(observed, last_row, "segmentation")
    depth = np.where(labels == 0, np.float32(np.inf), _frames(observed, last_row, "depth"))  # 0 is the sky
    rows = [_frames(observed, cells, "rgb"), depth_colors(depth, np.inf), label_colors(labels)]
    return tile(np.concatenate(rows), SHEET_COLUMNS, SHEET_GAP, _BACKGROUND)
