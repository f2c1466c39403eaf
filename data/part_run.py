"""A run of a collector on a node, as the program sees it that collects on a fleet.

Ray's word for who is alive comes 15 to 65 seconds late. So a collector's actor is asked all the time, and given up when
it has been silent for longer than it lives without questions. Until then a collector that cannot be reached may still
write, so nobody else goes on with its part.
"""

import os
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from worldloom.data.fleet_servers import NodeServer
from worldloom.data.part_actor import ABANDONED_S, STOP_TIMEOUT_S, PartActor, PartReport, read_file
from worldloom.data.part_process import PartJob
from worldloom.extras import explain_missing_extra
from worldloom.fleet.ray_session import ray

with explain_missing_extra("worldloom.fleet", "fleet"):
    from ray.exceptions import ActorDiedError, ActorUnavailableError, RayError
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

_SILENT_S = ABANDONED_S + STOP_TIMEOUT_S + 3.0
"""Time without an answer after which an actor has ended by itself, or with its node."""
_FIRST_ANSWER_S = 60.0
"""The same for one that was just created: Ray starts a process for it."""
_METHODS_AT_ONCE = 4
_READ_S = 30.0


class PartRun:
    """A collector that was started beside a server."""

    def __init__(self, server: NodeServer, job: PartJob, python: str | None) -> None:
        """Start it, without waiting; `python` is the Python of the node, if not that of Ray."""
        self.server = server
        self.report = PartReport()
        """Its last report."""
        options = {"num_cpus": 0, "max_restarts": 0, "max_concurrency": _METHODS_AT_ONCE}
        self._actor: Any = ray.remote(PartActor).options(**options, scheduling_strategy=_on(server.node_id)).remote()
        self._actor.start.remote(job, python, os.getcwd())
        self._question: Any = None
        self.ended_s = time.monotonic() + _FIRST_ANSWER_S
        """Time at which it has surely ended, unless it answers before."""

    def ask(self) -> PartReport:
        """Return its last report, and ask for the next. A collector that does not answer any more has ended."""
        if self._question is None:
            self._question = self._actor.report.remote()
        done, _ = ray.wait([self._question], timeout=0)
        if done:
            self._question = None
            try:
                self.report = ray.get(done[0])
                self.ended_s = time.monotonic() + _SILENT_S
            except ActorUnavailableError:  # it cannot be reached now: its silence decides
                pass
            except RayError as error:
                self._note_loss(f"its collector was lost ({type(error).__name__})")
        if not self.report.has_ended and time.monotonic() > self.ended_s:
            self._note_loss("its collector did not answer")
        return self.report

    def _note_loss(self, error: str) -> None:
        self.report = replace(self.report, has_ended=True, error=error, is_temporary=True)
        self.ended_s = 0.0

    @staticmethod
    def end(runs: "Sequence[PartRun]") -> None:
        """Stop collectors, and wait until those have ended that can be reached; what they have completed stays."""
        stopping = {run._actor.stop.remote(): run for run in runs if not run.report.has_ended}
        done = ray.wait([*stopping], num_returns=len(stopping), timeout=STOP_TIMEOUT_S + 1.0)[0] if stopping else []
        for one in done:
            with suppress(ActorUnavailableError):
                with suppress(ActorDiedError):
                    ray.get(one)
                stopping[one].ended_s = 0.0
        for run in runs:
            if run.report.has_ended:
                run.ended_s = 0.0
            ray.kill(run._actor, no_restart=True)


def read_on_nodes(files: Sequence[tuple[str, Path]]) -> list[bytes]:
    """Return the contents of files, given with the ids of their nodes.

    Nothing for a file that is not there, or whose node does not answer.
    """
    options = {"num_cpus": 0, "max_retries": 0}
    reading = [
        ray.remote(read_file).options(**options, scheduling_strategy=_on(node)).remote(str(path))
        for node, path in files
    ]
    done = set(ray.wait(reading, num_returns=len(reading), timeout=_READ_S)[0]) if reading else set()
    found = []
    for one in reading:
        try:
            found.append(ray.get(one) if one in done else b"")
        except RayError:
            found.append(b"")
    return found


def _on(node_id: str) -> Any:
    return NodeAffinitySchedulingStrategy(node_id, soft=False)
