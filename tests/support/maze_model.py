"""The rules of the maze in plain Python, without kernels or arrays: a model that the family is compared with.

A maze is the set of its wall blocks; block (i, j) covers i..i+1 east and j..j+1 north. An agent is a disc. One agent
after another turns and then moves in equal substeps of at most 8 cm. After a substep it is moved out of the walls that
it overlaps, straight away from the nearest point of each; if it then overlaps another agent it is moved away from that
one until they touch, and if that does not help it stops for this step. Goals closer than 36 cm are collected.
"""

import math
from dataclasses import dataclass, field

RADIUS_M = 0.16
MAX_SUBSTEP_M = 0.08
REACH_M = 0.36
SEPARATION_M = 2 * RADIUS_M + 1e-6

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
        """Return the reward of each agent, and True if all goals are collected."""
        rewards = []
        for agent, (forward, right), turn in zip(self.agents, moves, turns, strict=True):
            before = len(self.taken)
            agent.heading = (agent.heading + turn * self.turn_speed) % math.tau
            self._move(agent, forward, right)
            rewards.append(len(self.taken) - before)
        return rewards, len(self.taken) == len(self.goals)

    def _move(self, agent: Walker, forward: float, right: float) -> None:
        length = math.hypot(forward, right)
        if length > 1:
            forward, right = forward / length, right / length
        displacement = (
            self.speed * (forward * math.cos(agent.heading) + right * math.cos(agent.heading - math.pi / 2)),
            self.speed * (forward * math.sin(agent.heading) + right * math.sin(agent.heading - math.pi / 2)),
        )
        # The length is computed before the rotation: rounding must not change the number of substeps.
        substeps = math.ceil(self.speed * min(length, 1.0) / MAX_SUBSTEP_M)
        for _ in range(substeps):
            x, y = agent.at
            target = self._out_of_walls((x + displacement[0] / substeps, y + displacement[1] / substeps))
            hit = self._find_overlap(agent, target)
            if hit is not None:
                target = self._out_of_walls(_moved_off(target, hit.at, SEPARATION_M))
                if self._find_overlap(agent, target) is not None:
                    return
            agent.at = target
            self.taken |= {k for k, goal in enumerate(self.goals) if math.dist(goal, target) < REACH_M}

    def _out_of_walls(self, at: Point) -> Point:
        """Return the position moved out of walls: out of sides first, then out of corners."""
        i, j = math.floor(at[0]), math.floor(at[1])
        around = [(1, 0), (-1, 0), (0, 1), (0, -1), (1, 1), (1, -1), (-1, 1), (-1, -1)]
        for east, north in around:
            block = (i + east, j + north)
            if block in self.walls:
                nearest = tuple(min(max(at[k], block[k]), block[k] + 1) for k in (0, 1))
                if math.dist(at, nearest) < RADIUS_M:
                    at = _moved_off(at, (nearest[0], nearest[1]), RADIUS_M)
        return at

    def _find_overlap(self, agent: Walker, at: Point) -> Walker | None:
        others = (other for other in self.agents if other is not agent)
        return next((other for other in others if math.dist(other.at, at) < 2 * RADIUS_M), None)


def _moved_off(at: Point, off: Point, distance: float) -> Point:
    """Return the point at this distance from `off`, in the direction of `at`."""
    scale = distance / math.dist(at, off)
    return off[0] + (at[0] - off[0]) * scale, off[1] + (at[1] - off[1]) * scale
