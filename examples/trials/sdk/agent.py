"""Agent of the Cogment SDK that turns to goals in its view and walks there: python agent.py [PORT]"""

import sys
from typing import Any

import cog_settings  # first: see there
import cogment
import trials_pb2

GOAL = 3
"""Label of goals in a segmentation frame; `worldloom describe maze` lists all labels."""


class Seeker(cogment.Agent):
    """An agent that adds up its rewards."""

    VERSIONS = {"seeker": "1.0"}  # noqa: RUF012  # as the SDK has it
    actor_class = cog_settings.actor_classes.seeker
    total = 0.0

    def decide(self, observation: Any) -> Any:
        """Return an action towards the goals in view; turn around if there are none."""
        frame = observation.observations["eye.segmentation"]
        width = frame.shape[-1]
        columns = [place % width for place, label in enumerate(frame.uint8s.array) if label == GOAL]
        to_the_right = 2 * sum(columns) / len(columns) / (width - 1) - 1 if columns else -1.0
        action = trials_pb2.Action()
        action.actions["turn"].floats.array.append(max(-1.0, min(1.0, -2 * to_the_right)))
        action.actions["move"].floats.array.extend([1.0 if columns else 0.3, 0.0])
        action.actions["move"].shape.append(2)
        return action

    def reward(self, reward: Any) -> None:
        """Take the reward of a tick."""
        self.total += reward.value

    def on_message(self, sender: int, data: Any) -> None:
        """Take a message, which this agent does not use."""

    def end(self) -> None:
        """Print the total."""
        print(f"trial {self.trial.id}: the agent's rewards are {self.total:g}", flush=True)


if __name__ == "__main__":
    cogment.GrpcServer(Seeker, cog_settings, int(sys.argv[1]) if len(sys.argv) > 1 else 9001).serve()
