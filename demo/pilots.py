"""Who acts while worlds are filmed: each sees what its world's client sees, and nothing else."""

from typing import Any, ClassVar, Protocol, TypeAlias

import numpy as np

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
