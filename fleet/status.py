"""The status of a fleet, as plain data."""

from dataclasses import asdict, dataclass
from typing import Any

_FAILING_STARTS = 3
"""Failed starts that are not an accident any more."""


@dataclass(frozen=True)
class ServerStatus:
    """One server."""

    server: str
    """Its name, such as `server-3`."""
    state: str
    """`placing`, `starting`, `ready` or `draining`."""
    detail: str
    """More about the state: functions compiled so far, what it waits for."""
    node: str
    """Address of its node, and the beginning of Ray's id for it."""
    address: str | None
    """Address for clients."""
    page: str | None
    """URL of the page on which people watch it; None if it has none."""
    processors: tuple[int, ...]
    """Processors that it is bound to."""
    pid: int | None
    generation: int
    """Counts upgrades of the fleet."""
    age_s: float
    """Time since it was placed, or asked for."""
    lanes: int
    lane_steps_per_s: float
    frames_per_s: float


@dataclass(frozen=True)
class LearnerStatus:
    """One learner, or a name with a quota."""

    learner: str
    lanes: int
    """Lanes of its envs."""
    quota: int | None
    """The most lanes; None if there is no limit."""


@dataclass(frozen=True)
class Loss:
    """A server that was lost."""

    server: str
    node: str
    reason: str
    when_unix_s: float
    replaced_after_s: float | None
    """Time until as many servers were ready as before; None if they are not yet."""


@dataclass(frozen=True)
class FleetStatus:
    """A fleet."""

    name: str
    wanted: int
    """Wanted number of servers."""
    generation: int
    is_upgrading: bool
    problem: str | None
    """Why the last server did not start; None if there is no problem."""
    failed_starts: int
    """Servers that did not start, since all were ready."""
    losses: int
    """Servers lost since the reconciler was started."""
    last_loss: Loss | None
    servers: tuple[ServerStatus, ...]
    learners: tuple[LearnerStatus, ...]

    @property
    def is_failing(self) -> bool:
        """True if there is no server that is ready, and several have not started."""
        return not self.ready and self.failed_starts >= _FAILING_STARTS

    @property
    def ready(self) -> int:
        """Number of servers that are ready."""
        return sum(one.state == "ready" for one in self.servers)

    @property
    def is_settled(self) -> bool:
        """True if the servers are as many as wanted, all ready and of the last generation."""
        return len(self.servers) == self.wanted and all(
            one.state == "ready" and one.generation == self.generation for one in self.servers
        )

    @property
    def lanes(self) -> int:
        """Lanes on all servers."""
        return sum(one.lanes for one in self.servers)

    @property
    def frames_per_s(self) -> float:
        """Frames drawn in a second by all servers."""
        return sum(one.frames_per_s for one in self.servers)

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain data for JSON."""
        return {**asdict(self), "ready": self.ready, "lanes": self.lanes, "frames_per_s": self.frames_per_s}


def summarise(status: FleetStatus) -> str:
    """Return a line about the servers of a fleet that is not as it should be."""
    states = [f"{one.server} {one.state}{f' ({one.detail})' if one.detail else ''}" for one in status.servers]
    text = f"{status.ready} of {status.wanted} servers are ready"
    return "; ".join([text, *states, *([status.problem] if status.problem else [])])
