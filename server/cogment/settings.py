"""What the trials of a server are like: what the file of `worldloom serve --cogment` says."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from worldloom.protos.cogment.api.common_pb2 import TrialParams

HUMAN = "human"
"""The endpoint of actors whose actions come through the Trial service."""
BUILT_IN = "worldloom"
"""The endpoint of the environment in this server's own engine."""

AgentFailure: TypeAlias = Literal["end", "idle"]
"""What an agent does to its trial that fails or is late: end it, or do nothing for that tick."""


@dataclass(frozen=True)
class TrialSettings:
    """What every trial starts from."""

    actor_classes: tuple[str, ...]
    """Their ids, in the order in which actors are counted."""
    params: TrialParams
    """Before hooks have changed them. Endpoints are HUMAN, BUILT_IN or grpc://HOST:PORT."""
    pre_hooks: tuple[str, ...] = ()
    """Endpoints, called in this order."""
    datalog_file: Path | None = None
    """Takes a length-delimited DatalogSample for each tick."""
    datalog_endpoint: str | None = None
    """Of a LogExporter service."""
    deadline_s: float = 10.0
    """How long an agent, an environment behind an endpoint or a hook may take for an answer."""
    on_agent_failure: AgentFailure = "end"
    max_trials: int = 1024
    """At a time."""
