"""Client that runs a trial as its human actor, with random actions: python examples/trials/play.py"""

import argparse
import random

import grpc
import numpy as np

from worldloom.protos.cogment.api import orchestrator_pb2 as api
from worldloom.protos.cogment.api.common_pb2 import Action
from worldloom.protos.cogment.api.orchestrator_pb2_grpc import TrialStub
from worldloom.protos.worldloom import trials_pb2

CONNECT_TIMEOUT_S = 5.0


def frame_of(content: bytes) -> np.ndarray:
    """Return the frame in an observation, [height, width, 3]."""
    frame = trials_pb2.Observation.FromString(content).observations["eye.rgb"]
    return np.frombuffer(frame.uint8s.array, np.uint8).reshape(frame.shape)


def random_action() -> Action:
    """Return an action that moves ahead, turning at random."""
    action = trials_pb2.Action()
    action.actions["turn"].floats.array.append(random.uniform(-1, 1))
    action.actions["move"].floats.array.extend([1.0, random.uniform(-0.2, 0.2)])
    action.actions["move"].shape.append(2)
    return Action(content=action.SerializeToString())


def play(address: str) -> None:
    """Run one trial."""
    with grpc.insecure_channel(address) as channel:
        try:
            grpc.channel_ready_future(channel).result(CONNECT_TIMEOUT_S)
        except grpc.FutureTimeoutError:
            raise SystemExit(
                f"there is no server at {address}: start one with worldloom serve --cogment examples/trials/trial.yaml,"
                " or say where it is with --address"
            ) from None
        trials = TrialStub(channel)
        start = trials.Start(api.TrialStartRequest(user_id="me"))
        observation, goals, is_over = start.observation, 0.0, False
        while not is_over:
            assert frame_of(observation.data.content).shape == (64, 64, 3)  # what the human sees
            request = api.TrialActionRequest(trial_id=start.trial_id, actor_id=start.actor_id, action=random_action())
            reply = trials.Action(request)
            observation, is_over = reply.observation, reply.trial_is_over
            goals += reply.reward.value
        print(f"trial {start.trial_id} is over after {observation.tick_id} ticks: {goals:g} goals")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--address", default="127.0.0.1:9000", help="of the server (default: %(default)s)")
    try:
        play(parser.parse_args().address)
    except grpc.RpcError as error:
        raise SystemExit(f"the trial failed: {error.code().name}: {error.details()}") from None
