"""Many servers as one fleet, placed, watched and replaced by Ray.

    from worldloom.fleet import Fleet

    with Fleet(servers=4) as fleet:
        env = fleet.vector_env("maze", num_envs=1024)

Ray is the control plane: it places processes on nodes. Steps and frames go from servers to clients as without it. The
package needs the extra `worldloom[fleet]`; each name is imported when it is first used, so programs that run on a node
without Ray's help (`worldloom.fleet.serve_process`, `worldloom.fleet.probe`) do not load Ray.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from worldloom.fleet.errors import FleetError, NoSuchFleet, QuotaExceeded
    from worldloom.fleet.fleet import Fleet
    from worldloom.fleet.status import FleetStatus, LearnerStatus, Loss, ServerStatus

__all__ = [
    "Fleet",
    "FleetError",
    "FleetStatus",
    "LearnerStatus",
    "Loss",
    "NoSuchFleet",
    "QuotaExceeded",
    "ServerStatus",
]
_MODULES = {"Fleet": "fleet", "FleetError": "errors", "NoSuchFleet": "errors", "QuotaExceeded": "errors"}
"""Modules of the public names that are not part of a status."""

if not TYPE_CHECKING:  # so that type checkers report names that do not exist

    def __getattr__(name: str) -> Any:
        """Import a public name when it is first used."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}: expected one of {', '.join(__all__)}")
        value = getattr(importlib.import_module(f"{__name__}.{_MODULES.get(name, 'status')}"), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
