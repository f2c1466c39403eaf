"""Environment of the Cogment SDK, a corridor with a goal: python environment.py [PORT]

Actors turn left or right to take a step there. Who reaches the goal is rewarded, and the goal moves.
"""

import random
import sys
from typing import Any

import cog_settings  # first: see there
import cogment
import trials_pb2

CELLS = 15
TICKS = 60
GOAL = 3
"""Label of the goal, as in worldloom's mazes, so that the same agent finds it."""


class Corridor(cogment.Environment):
    """The corridor of one trial."""

    VERSIONS = {"corridor": "1.0"}  # noqa: RUF012  # as the SDK has it

    def start(self, config: Any) -> Any:
        """Place everyone; return the first observations."""
        self.positions = [CELLS // 2 for _ in self.trial.actors.all]
        self.goal = random.randrange(CELLS)
        return self.observe()

    def update(self, actions: Any) -> Any:
        """Take the actions of all actors; return the next observations."""
        for actor, action in zip(self.trial.actors.all, actions.all_actions(), strict=True):
            turn = action.actions["turn"].floats.array[0]
            step = (turn < 0) - (turn > 0)  # left is positive
            position = min(CELLS - 1, max(0, self.positions[actor.actor_id] + step))
            self.positions[actor.actor_id] = position
            if position == self.goal:
                actor.add_feedback(value=1.0, confidence=1.0)
                self.goal = random.randrange(CELLS)
        self.end_trial = self.trial.tick_id + 1 == TICKS
        return self.observe()

    def on_message(self, sender: int, data: Any) -> None:
        """Take a message, which this environment does not use."""

    def observe(self) -> Any:
        """Show each actor a row of labels with itself in the middle."""
        table = self.trial.new_observation_table()
        for position, seen in zip(self.positions, table.all_observations(), strict=True):
            labels = bytearray(2 * CELLS + 1)
            labels[CELLS + self.goal - position] = GOAL
            observation = trials_pb2.Observation()
            frame = observation.observations["eye.segmentation"]
            frame.uint8s.array = bytes(labels)
            frame.shape.extend([1, len(labels)])
            seen.snapshot = observation
        return table


if __name__ == "__main__":
    cogment.GrpcServer(Corridor, cog_settings, int(sys.argv[1]) if len(sys.argv) > 1 else 9002).serve()
