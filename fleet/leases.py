"""Leases: the lanes that learners have taken of a fleet, counted against their quotas.

A lease ends when it is released, or when it was not renewed for a while, as its process has ended. Leases are not kept
when the reconciler is restarted: holders renew theirs every second and say what they hold, and for some seconds new
ones have to wait, so that no lane is given twice.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from worldloom.fleet.errors import QuotaExceeded

LEASE_S = 10.0
"""Time without a renewal after which a lease ends."""
_GATHER_S = 3.0
"""Time after the start in which holders of leases report theirs, and new ones wait."""


@dataclass(frozen=True)
class Lease:
    """Lanes of one env."""

    id: str
    learner: str
    lanes: int


class Leases:
    """The leases of a fleet."""

    def __init__(self, is_restarted: bool, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._held: dict[str, tuple[Lease, float]] = {}
        """Leases by id, each with the time of its last renewal."""
        self._opens_s = clock() + (_GATHER_S if is_restarted else 0.0)

    @property
    def opens_in_s(self) -> float:
        """Time until new leases can be taken."""
        return max(0.0, self._opens_s - self._clock())

    def acquire(self, lease: Lease, quota: int | None) -> None:
        """Take a lease; QuotaExceeded if the learner would have more lanes than its quota."""
        with self._lock:
            self._drop_expired()
            held = sum(one.lanes for one, _ in self._held.values() if one.learner == lease.learner)
            if quota is not None and held + lease.lanes > quota:
                raise QuotaExceeded(
                    f"{lease.lanes} lanes for {lease.learner!r}: expected {max(0, quota - held)} at most, its quota "
                    f"is {quota} and it has {held}. Close an env of it, or raise the quota"
                )
            self._held[lease.id] = lease, self._clock()

    def renew(self, lease: Lease) -> None:
        """Renew a lease that was taken before, if perhaps from a reconciler that is gone."""
        with self._lock:
            self._held[lease.id] = lease, self._clock()

    def release(self, lease_id: str) -> None:
        """End a lease."""
        with self._lock:
            self._held.pop(lease_id, None)

    def list_held(self) -> list[Lease]:
        """Return the leases that are in force."""
        with self._lock:
            self._drop_expired()
            return [lease for lease, _ in self._held.values()]

    def _drop_expired(self) -> None:
        now_s = self._clock()
        self._held = {key: held for key, held in self._held.items() if now_s - held[1] <= LEASE_S}
