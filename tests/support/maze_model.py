"""The rules of the maze in plain Python, as they would be explained: no kernels, no arrays.

A maze is the set of its wall blocks; block (i, j) covers i..i+1 east and j..j+1 north. An agent is a disc. One agent
after another turns and then goes its way in equal pieces of at most 8 cm. After a piece it is moved out of the walls it
reaches into, straight away from the nearest point of each; if it then reaches into another agent it is moved away from
that one until they touch, and if that does not help it stops for this step. Goals that come within 36 cm are taken.
"""

import math
from dataclasses import dataclass, field

RADIUS = 0.16
PIECE = 0.08
REACH = 0.36
TOUCHING = 2 * RADIUS + 1e-6

Point = tuple[float, float]


@dataclass
class Walker:
    """An agent."""

    at: Point
    heading: float


@dataclass
class MazeModel:
    """One maze."""

    walls: set[tuple[int, int]]
    agents: list[Walker]
    goals: list[Point]
    speed: float
    turn_speed: float
    taken: set[int] = field(default_factory=set)

    def step(self, moves: list[Point], turns: list[float]) -> tuple[list[int], bool]:
        """What each agent earned, and whether that was all."""
        rewards = []
        for agent, (forward, right), turn in zip(self.agents, moves, turns, strict=True):
            before = len(self.taken)
            agent.heading = (agent.heading + turn * self.turn_speed) % math.tau
            self._walk(agent, forward, right)
            rewards.append(len(self.taken) - before)
        return rewards, len(self.taken) == len(self.goals)

    def _walk(self, agent: Walker, forward: float, right: float) -> None:
        length = math.hypot(forward, right)
        if length > 1:
            forward, right = forward / length, right / length
        way = (
            self.speed * (forward * math.cos(agent.heading) + right * math.cos(agent.heading - math.pi / 2)),
            self.speed * (forward * math.sin(agent.heading) + right * math.sin(agent.heading - math.pi / 2)),
        )
        # The length is taken before the rotation: rounding must not decide how many pieces there are.
        pieces = math.ceil(self.speed * min(length, 1.0) / PIECE)
        for _ in range(pieces):
            x, y = agent.at
            wanted = self._out_of_walls((x + way[0] / pieces, y + way[1] / pieces))
            hit = self._reaches_into(agent, wanted)
            if hit is not None:
                wanted = self._out_of_walls(_moved_off(wanted, hit.at, TOUCHING))
                if self._reaches_into(agent, wanted) is not None:
                    return
            agent.at = wanted
            self.taken |= {k for k, goal in enumerate(self.goals) if math.dist(goal, wanted) < REACH}

    def _out_of_walls(self, at: Point) -> Point:
        """Sides of walls first, corners after: what is beside a side has no corner to fear."""
        i, j = math.floor(at[0]), math.floor(at[1])
        around = [(1, 0), (-1, 0), (0, 1), (0, -1), (1, 1), (1, -1), (-1, 1), (-1, -1)]
        for east, north in around:
            block = (i + east, j + north)
            if block in self.walls:
                nearest = tuple(min(max(at[k], block[k]), block[k] + 1) for k in (0, 1))
                if math.dist(at, nearest) < RADIUS:
                    at = _moved_off(at, (nearest[0], nearest[1]), RADIUS)
        return at

    def _reaches_into(self, agent: Walker, at: Point) -> Walker | None:
        others = (other for other in self.agents if other is not agent)
        return next((other for other in others if math.dist(other.at, at) < 2 * RADIUS), None)


def _moved_off(at: Point, off: Point, distance: float) -> Point:
    """The point at that distance from `off`, in the direction of `at`."""
    scale = distance / math.dist(at, off)
    return off[0] + (at[0] - off[0]) * scale, off[1] + (at[1] - off[1]) * scale
