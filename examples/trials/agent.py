"""An agent service for trials that moves towards goals in its view. Run: python examples/trials/agent.py

It serves any number of actors in any number of trials. An agent can be written in any language that has gRPC: the
.proto files are in protos/.
"""

# ruff: noqa: N802  # the service's own names

import argparse
import asyncio
import contextlib
from typing import Any

import grpc
import numpy as np

from worldloom.protos.cogment.api import agent_pb2 as api
from worldloom.protos.cogment.api.agent_pb2_grpc import AgentServicer, add_AgentServicer_to_server
from worldloom.protos.cogment.api.common_pb2 import Action, ObservationData, VersionInfo, VersionRequest
from worldloom.protos.worldloom import trials_pb2

GOAL = 3
"""Label of goals in a segmentation frame; `worldloom describe maze` lists all labels."""


class Seeker(AgentServicer):
    """An Agent service that keeps the last observation and the total reward of each actor."""

    def __init__(self) -> None:
        self.observations: dict[tuple[str, int], trials_pb2.Observation] = {}
        self.rewards: dict[tuple[str, int], float] = {}

    async def Start(self, request: api.AgentStartRequest, context: Any) -> api.AgentStartReply:
        """Start an actor in a trial."""
        actor = request.trial_id, request.actor_id
        self.observations[actor], self.rewards[actor] = trials_pb2.Observation(), 0.0
        return api.AgentStartReply()

    async def Decide(self, request: api.AgentDecideRequest, context: Any) -> api.AgentDecideReply:
        """Choose an action."""
        actor = request.trial_id, request.actor_id
        if actor not in self.observations:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"trial {request.trial_id} was not started here")
        update_observation(self.observations[actor], request.observation.data)
        frame = self.observations[actor].observations["eye.segmentation"]
        labels = np.frombuffer(frame.uint8s.array, np.uint8).reshape(frame.shape)
        return api.AgentDecideReply(action=Action(content=steer(labels).SerializeToString()))

    async def Reward(self, request: api.AgentRewardRequest, context: Any) -> api.AgentRewardReply:
        """Take the reward of a tick."""
        self.rewards[request.trial_id, request.actor_id] += request.reward.value
        return api.AgentRewardReply()

    async def OnMessage(self, request: api.AgentOnMessageRequest, context: Any) -> api.AgentOnMessageReply:
        """Take messages, which this agent does not use."""
        return api.AgentOnMessageReply()

    async def End(self, request: api.AgentEndRequest, context: Any) -> api.AgentEndReply:
        """End an actor."""
        actor = request.trial_id, request.actor_id
        if self.observations.pop(actor, None) is not None:
            print(f"trial {request.trial_id}: {self.rewards.pop(actor):g} goals", flush=True)
        return api.AgentEndReply()

    async def Version(self, request: VersionRequest, context: Any) -> VersionInfo:
        """Return the version of this agent."""
        return VersionInfo(versions=[VersionInfo.Version(name="seeker", version="1.0")])


def update_observation(observation: trials_pb2.Observation, data: ObservationData) -> None:
    """Update the last observation: a snapshot replaces it, a delta has the tensors that have changed."""
    if data.snapshot:
        observation.ParseFromString(data.content)
    else:
        observation.MergeFromString(data.content)


def steer(labels: np.ndarray) -> trials_pb2.Action:
    """Return an action towards the goals in a frame of labels, [height, width]; turn around if there are none."""
    columns = np.nonzero(labels == GOAL)[1]
    to_the_right = 2 * columns.mean() / (labels.shape[1] - 1) - 1 if columns.size else -1.0
    action = trials_pb2.Action()
    action.actions["turn"].floats.array.append(float(np.clip(-2 * to_the_right, -1, 1)))
    action.actions["move"].floats.array.extend([1.0 if columns.size else 0.3, 0.0])
    action.actions["move"].shape.append(2)
    return action


async def serve(address: str) -> None:
    """Serve until interrupted."""
    server = grpc.aio.server()
    add_AgentServicer_to_server(Seeker(), server)
    port = server.add_insecure_port(address)
    await server.start()
    print(f"seeking goals for grpc://{address.rpartition(':')[0]}:{port}", flush=True)
    await server.wait_for_termination()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--listen", default="127.0.0.1:9001", metavar="HOST:PORT", help="(default: %(default)s)")
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(serve(parser.parse_args().listen))
