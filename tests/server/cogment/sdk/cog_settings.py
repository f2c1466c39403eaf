"""What the Cogment SDK is told of our messages: what its tools would write from a cogment.yaml.

Run by the Python of .venv-cogment, as everything here but the test itself.
"""

from types import SimpleNamespace
from typing import Any

import trials_pb2
from cogment.actor_class import ActorClass, ActorClassList
from cogment.delta_encoding import _apply_delta_replace
from cogment.env_class import EnvClass
from cogment.env_service import ObservationProxy

protolib = "trials_pb2"


def apply_delta(observation: Any, delta: Any) -> Any:
    """The last observation becomes the next."""
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
    _actor_class("player", trials_pb2.Observation, _apply_delta_replace),
    _actor_class("agent", trials_pb2.ObservationDelta, apply_delta),
)
env_class = EnvClass(id="env", config_type=None, message_space=None)
trial = SimpleNamespace(config_type=trials_pb2.TrialConfig)
environment = SimpleNamespace(config_type=trials_pb2.EnvironmentConfig)


class ActionsTable:
    """An empty action for each actor."""

    def __init__(self, trial: Any) -> None:
        self._actions = [actor.actor_class.action_space() for actor in trial.actors.all]

    def all_actions(self) -> list[Any]:
        """By actor id."""
        return self._actions


class Seen(ObservationProxy):
    """What one actor sees."""

    def show(self, observation: Any) -> None:
        """All of it."""
        self._set_snapshot(observation)


class ObservationsTable:
    """Room for each actor's observation."""

    def __init__(self, actor_counts: list[int]) -> None:
        self._seen = [Seen() for _ in range(sum(actor_counts))]

    def all_observations(self) -> list[Seen]:
        """By actor id."""
        return self._seen
