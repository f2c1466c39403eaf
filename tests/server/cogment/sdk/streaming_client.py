"""A streaming client of the Cogment SDK: python streaming_client.py ADDRESS acting|thinking

Plays a trial as its human until it is over. `thinking`: after a few ticks it waits for a line on stdin before it acts
again. Prints lines of JSON: the trial, that it plays, when it was told of the end, and what became of its last call.
"""

import json
import sys
import time
from typing import Any

import cog_settings
import grpc
import trials_pb2
from cogment.client import Connection

TICKS_BEFORE = 3
TIMEOUT_S = 60.0


def tell(**what: object) -> None:
    """Print a line that the test reads."""
    print(json.dumps(what), flush=True)


def still() -> Any:
    """An action that does nothing."""
    action = trials_pb2.Action()
    action.actions["turn"].floats.array.append(0.0)
    return action


def start(address: str) -> Any:
    """Start a trial. A server may need a second to notice that an agent was restarted."""
    end_s = time.monotonic() + TIMEOUT_S
    while True:
        try:
            return Connection(cog_settings, address).start_trial(cog_settings.actor_classes.player)
        except grpc.RpcError as error:
            if error.code() is not grpc.StatusCode.UNAVAILABLE or time.monotonic() > end_s:
                raise
            time.sleep(0.05)


def play(address: str, is_thinking: bool) -> None:
    """All of it."""
    trial = start(address)
    tell(trial=trial.id)
    trial.begin_actions_stream()
    over: list[bool] = []
    trial.set_on_trial_end_event_listener(lambda: over.append(True))
    ticks = 0
    while not over:
        if ticks == TICKS_BEFORE:
            tell(plays=True)
            if is_thinking:
                sys.stdin.readline()
                tell(acts_at_s=time.time())
        seen, _, _ = trial.do_action(still())
        ticks += 1
    tell(over_at_s=time.time(), sees=sorted(seen.observations))
    trial.actors.agent[0].add_feedback(value=1.0, confidence=1.0)
    trial.actors.agent[0].send_message(user_data=still())
    try:
        trial.end()
        tell(end="OK")
    except grpc.RpcError as error:
        tell(end=error.code().name)


if __name__ == "__main__":
    play(sys.argv[1], sys.argv[2] == "thinking")
