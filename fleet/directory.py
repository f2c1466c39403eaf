"""The link from an env to its fleet: addresses of the servers, a lease of lanes, and the certificate of the authority.

Both classes can be pickled with the env to other processes and nodes. Unpickled, a directory has a lease of its own,
since the env there has lanes of its own.
"""

import os
import secrets
import shutil
import tempfile
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from worldloom.extras import explain_missing_extra
from worldloom.fleet.errors import FleetError
from worldloom.fleet.leases import Lease
from worldloom.fleet.ray_session import connect_to_ray, find_reconciler, ray

with explain_missing_extra("worldloom.fleet", "fleet"):
    from ray.exceptions import RayError, RayTaskError

_ASK_S = 2.0
"""Time for an answer of the reconciler."""
_FIRST_ASK_S = 30.0
"""The same where this process is not connected to Ray yet, or has no lease yet."""
_MOMENT_S = 0.1
"""Time that a question may hold up the env's heartbeat."""
_STALE_S = 5.0
"""Age of an answer from which it is not returned any more."""
_CLOSE_S = 2.0


def ask(handle: Any, method: str, *arguments: Any, timeout_s: float, **named: Any) -> Any:
    """Call a method of a reconciler. Its own errors are raised as they are, all others as FleetError."""
    try:
        return ray.get(getattr(handle, method).remote(*arguments, **named), timeout=timeout_s)
    except RayTaskError as error:
        raise error.cause from None
    except (RayError, TimeoutError) as error:
        raise FleetError(f"the fleet did not answer within {timeout_s:g} s ({type(error).__name__})") from error


class FleetDirectory:
    """The addresses of a fleet's servers, for an env of so many lanes. Asking for them renews the env's lease."""

    def __init__(self, fleet: str, ray_address: str, learner: str, lanes: int) -> None:
        self._fleet = fleet
        self._ray_address = ray_address
        self._lease = Lease(secrets.token_hex(8), learner, lanes)
        self._handle: Any = None
        self._has_lease = False
        self._asking: threading.Thread | None = None
        self._addresses: list[str] = []
        self._answered_s: float | None = None
        """Time of the last answer."""
        self._error: Exception | None = None

    def acquire(self) -> None:
        """Take the lease; QuotaExceeded if the learner's quota has not so many lanes left."""
        if not self._has_lease:
            connect_to_ray(self._ray_address, may_start=False)
            self._handle = find_reconciler(self._fleet)
            ask(self._handle, "acquire", self._lease, timeout_s=_FIRST_ASK_S)
            self._has_lease = True

    def addresses(self) -> list[str]:
        """Return the addresses of the servers that are there now, those that drain included.

        The first call waits for the answer. Later ones wait a moment only, and return the last answer meanwhile: the
        env's heartbeat must not stand still. FleetError if there was no answer for seconds.
        """
        if self._asking is None or not self._asking.is_alive():
            self._error = None
            self._asking = threading.Thread(target=self._ask_addresses, name="worldloom-fleet", daemon=True)
            self._asking.start()
        self._asking.join(_FIRST_ASK_S if self._answered_s is None else _MOMENT_S)
        if self._error is not None:
            raise self._error
        if self._answered_s is None or time.monotonic() - self._answered_s > _STALE_S:
            raise FleetError(f"the fleet {self._fleet!r} does not answer")
        return list(self._addresses)

    def close(self) -> None:
        """End the lease."""
        self._answered_s = None
        if self._has_lease and ray.is_initialized():
            self._has_lease = False
            with suppress(FleetError):
                ask(self._handle, "release", self._lease.id, timeout_s=_CLOSE_S)

    def __repr__(self) -> str:
        return f"FleetDirectory({self._fleet!r}, learner={self._lease.learner!r}, lanes={self._lease.lanes})"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._fleet, self._ray_address, self._lease.learner, self._lease.lanes)

    def _ask_addresses(self) -> None:
        """Ask the reconciler, on a thread of its own: Ray's calls may wait for its head node for a minute."""
        try:
            self.acquire()
            self._addresses = ask(self._handle, "renew", self._lease, timeout_s=_ASK_S)
            self._answered_s = time.monotonic()
        except Exception as error:
            self._error = error


class CertificateFile(os.PathLike[str]):
    """A file with a certificate, written in each process where its path is asked for, and removed with this object."""

    def __init__(self, pem: str) -> None:
        self._pem = pem
        self._lock = threading.Lock()
        self._owner: int | None = None
        self._folder = ""
        self._remove: Callable[[], object] | None = None

    def __fspath__(self) -> str:
        with self._lock:
            if self._remove is None or self._owner != os.getpid():
                self._owner = os.getpid()
                self._folder = tempfile.mkdtemp(prefix="worldloom-fleet-")
                self._remove = weakref.finalize(self, _remove_folder, self._folder, self._owner)
                (Path(self._folder) / "ca.pem").write_text(self._pem)
            return str(Path(self._folder) / "ca.pem")

    def close(self) -> None:
        """Remove the file, if this process wrote it."""
        with self._lock:
            if self._remove is not None:
                self._remove()
                self._remove = None

    def __repr__(self) -> str:
        return "CertificateFile(…)"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._pem,)


def _remove_folder(folder: str, owner: int) -> None:
    """Remove a folder, unless this process is a fork of the one that made it."""
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)
