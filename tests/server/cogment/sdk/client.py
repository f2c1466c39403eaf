"""A client of the Cogment SDK: python client.py ADDRESS unary|stream TICKS [SEED]

Plays a trial as its human: for so many ticks, or until it is over. Prints a line of JSON for each tick.
"""

import json
import sys
from functools import partial
from typing import Any

import cog_settings
import trials_pb2
from cogment.api.common_pb2 import VersionRequest
from cogment.client import Connection

TIMEOUT_S = 60.0


def tell(**what: object) -> None:
    """Print a line that the test reads."""
    print(json.dumps(what), flush=True)


def still() -> Any:
    """An action that does nothing, and says so."""
    action = trials_pb2.Action()
    action.actions["turn"].floats.array.append(0.0)
    return action


def sizes(observation: Any) -> dict[str, int]:
    """What is seen, and how much of it."""
    return {
        name: len(getattr(tensor, tensor.WhichOneof("payload")).array)
        for name, tensor in observation.observations.items()
    }


def hear(heard: list[tuple[int, list[str]]], sender: int, data: Any) -> None:
    """Remember a message."""
    heard.append((sender, list(data.actions)))


def play(address: str, streaming: bool, ticks: int, seed: int | None) -> None:
    """All of it."""
    connection = Connection(cog_settings, address)
    versions = connection.stub.Version(VersionRequest(), timeout=TIMEOUT_S)
    config = None
    if seed is not None:
        config = trials_pb2.TrialConfig()
        config.world_settings["seed"].int64s.array.append(seed)
    trial = connection.start_trial(cog_settings.actor_classes.player, config)
    tell(
        versions={one.name: one.version for one in versions.versions},
        trial=trial.id,
        actor=trial.actor_id,
        counts=list(trial.actor_counts),
        sees=sizes(trial.observation),
    )
    if streaming:
        trial.begin_actions_stream()
    over: list[bool] = []
    trial.set_on_trial_end_event_listener(lambda: over.append(True))
    while len(over) == 0 and trial.tick_id < ticks:
        for one in trial.actors.agent:
            one.add_feedback(value=-2.0, confidence=0.5)
        if trial.tick_id == 0:
            trial.actors.agent[0].send_message(user_data=still())
            trial.env.env[0].send_message(user_data=still())
        heard: list[tuple[int, list[str]]] = []
        seen, reward, _ = trial.do_action(still(), partial(hear, heard))
        total = list(seen.observations["total"].floats.array) if "total" in seen.observations else []
        tell(
            tick=trial.tick_id,
            sees=sizes(seen),
            reward=reward.value,
            feedbacks=len(reward.feedbacks),
            heard=heard,
            over=bool(over),
            total=total,
        )
    trial.end()
    tell(done=True)


if __name__ == "__main__":
    address, way, ticks, *seed = sys.argv[1:]
    play(address, way == "stream", int(ticks), int(seed[0]) if seed else None)
