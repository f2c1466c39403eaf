"""Settings of the Cogment SDK for cogment.yaml and corridor.yaml: what `cogment generate` writes for a project.

Import it before anything else of the SDK: it chooses the implementation of protobuf that the SDK needs.
"""

import os
from types import SimpleNamespace
from typing import Any

os.environ.setdefault("PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION", "python")

import trials_pb2
from cogment.actor_class import ActorClass, ActorClassList
from cogment.delta_encoding import _apply_delta_replace
from cogment.env_class import EnvClass
from cogment.env_service import ObservationProxy

protolib = "trials_pb2"


def apply_delta(observation: Any, delta: Any) -> Any:
    """Put the tensors that have changed into the last observation."""
    for name, tensor in delta.observations.items():
        observation.observations[name].CopyFrom(tensor)
    return observation


def _actor_class(name: str, delta: Any, apply: Any) -> Any:
    return ActorClass(
        id=name,
        config_type=None,
        action_space=trials_pb2.Action,
        observation_space=trials_pb2.Observation,
        observation_delta=delta,
        observation_delta_apply_fn=apply,
        feedback_space=None,
        message_space=None,
    )


actor_classes = ActorClassList(
    _actor_class("human", trials_pb2.Observation, _apply_delta_replace),
    _actor_class("seeker", trials_pb2.ObservationDelta, apply_delta),
)
env_class = EnvClass(id="env", config_type=None, message_space=None)
trial = SimpleNamespace(config_type=trials_pb2.TrialConfig)
environment = SimpleNamespace(config_type=trials_pb2.EnvironmentConfig)


class ActionsTable:
    """The action of each actor, for environments."""

    def __init__(self, trial: Any) -> None:
        self.human = [trials_pb2.Action() for _ in range(trial.actor_counts[0])]
        self.seeker = [trials_pb2.Action() for _ in range(trial.actor_counts[1])]

    def all_actions(self) -> list[Any]:
        """Return the actions by actor id."""
        return [*self.human, *self.seeker]


class ActorObservation(ObservationProxy):
    """The observation of one actor; an environment sets `snapshot`."""

    @property
    def snapshot(self) -> Any:
        """The whole observation."""
        return self._get_snapshot(trials_pb2.Observation)

    @snapshot.setter
    def snapshot(self, value: Any) -> None:
        self._set_snapshot(value)


class ObservationsTable:
    """The observation of each actor, from environments."""

    def __init__(self, actor_counts: list[int]) -> None:
        self.human = [ActorObservation() for _ in range(actor_counts[0])]
        self.seeker = [ActorObservation() for _ in range(actor_counts[1])]

    def all_observations(self) -> list[ActorObservation]:
        """Return the observations by actor id."""
        return [*self.human, *self.seeker]
