"""Client of the Cogment SDK that plays a trial as its human, through a stream: python client.py [ADDRESS]"""

import random
import sys
from typing import Any

import cog_settings  # first: see there
import trials_pb2
from cogment.client import Connection


def random_action() -> Any:
    """Return an action that moves ahead, turning at random."""
    action = trials_pb2.Action()
    action.actions["turn"].floats.array.append(random.uniform(-1, 1))
    action.actions["move"].floats.array.extend([1.0, 0.0])
    action.actions["move"].shape.append(2)
    return action


def play(address: str) -> None:
    """Play until the trial is over."""
    trial = Connection(cog_settings, address).start_trial(cog_settings.actor_classes.human)
    trial.begin_actions_stream()
    over: list[bool] = []
    trial.set_on_trial_end_event_listener(lambda: over.append(True))
    total = 0.0
    while not over:
        _, reward, _ = trial.do_action(random_action())
        total += reward.value
    trial.actors.seeker[0].add_feedback(value=1.0, confidence=0.5)  # goes to the datalog: the trial is over
    trial.end()
    print(f"trial {trial.id} is over after {trial.tick_id} ticks: the human's rewards are {total:g}")


if __name__ == "__main__":
    play(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9000")
