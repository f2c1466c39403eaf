"""The trials of a server as the page lists them: one summary for all viewers."""

import asyncio
import math
import time
from typing import Any

from worldloom.server.web.playing import on_loop
from worldloom.server.web.watched_server import WatchedServer
from worldloom.server.web.world_list import WorldList

TRIALS_S = 1.0
"""Time between two summaries."""


class TrialList:
    """Running trials and the latest ended ones. Used on the thread of the event loop."""

    def __init__(self, server: WatchedServer, worlds: WorldList) -> None:
        self._server = server
        self._worlds = worlds
        self._lock = asyncio.Lock()
        self._made_s = -math.inf
        self._message: dict[str, Any] = {}

    async def message(self) -> dict[str, Any] | None:
        """Return the message with the trials; None without --cogment. Unavailable if the server stops."""
        server = self._server
        if server.trials is None or server.loop is None:
            return None
        async with self._lock:
            if time.monotonic() >= self._made_s + TRIALS_S:
                summary = await on_loop(server, server.trials.summary())
                by_trial = {row["trial"]: row["id"] for row in self._worlds.rows.values() if row["trial"]}
                for trial in summary["running"]:
                    trial["world"] = by_trial.get(trial["id"], "")
                can_start = summary.pop("has_humans") and server.options.web_control
                self._message = {"type": "trials", **summary, "can_start": can_start}
                self._made_s = time.monotonic()
            return self._message
