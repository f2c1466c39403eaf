"""A client and its servers over hours: servers are lost, freeze, are drained and come back, and lanes move.

Between two events the steps are those of scripts/fleet_steps.py, sampled anew in each such span of time. Every lane is
at each moment on one server or parked. Lanes are alike, so that their numbers are simulated and not each of them.
"""

import heapq
import itertools
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, NamedTuple

import numpy as np

from scripts.fleet_model import CLIENT_RESOURCES, Disturbances, Model
from scripts.fleet_steps import Share, Steps, asynchronous_steps, synchronous_steps

Mode = Literal["step", "recv", "recv, 2 streams"]
"""`step` waits for all servers; `recv(min_lanes)` returns what is ready, of one stream for each server or of two."""
MIN_LANES_SHARE = 0.25
"""`min_lanes` as a part of all lanes."""
_SAMPLED_STEPS = 16
_SAMPLED_ROUNDS, _SAMPLED_MESSAGES = 3, 120
_DRAIN_AGAIN_S = 60.0


class Loss(NamedTuple):
    """Lanes that a lost server had."""

    number: int
    at_s: float


@dataclass
class Server:
    """State of a server, as its client sees it."""

    slowness: float
    lanes: int = 0
    drawn: int = 0
    """More than `lanes` while it is drained."""
    making: list[tuple[Loss, int]] = field(default_factory=list)
    """Lost lanes that it makes anew; they are parked until it has."""
    is_up: bool = True
    is_silent: bool = False
    """It does not answer, and the client has not noticed yet."""
    is_draining: bool = False
    life: int = 0
    """Counts losses and returns: events of an earlier life are void."""

    @property
    def held(self) -> int:
        """Lanes that it has or makes."""
        return self.lanes + sum(count for _, count in self.making)


@dataclass
class Totals:
    """Sums over the simulated time of one client."""

    seconds: float = 0.0
    lane_steps: float = 0.0
    messages: float = 0.0
    lane_s: float = 0.0
    """Time of all lanes together, and the parts of it in which they did not step:"""
    parked_lane_s: float = 0.0
    stalled_lane_s: float = 0.0
    busy_s: np.ndarray = field(default_factory=lambda: np.zeros(len(CLIENT_RESOURCES)))
    server_busy_s: float = 0.0
    """Time that servers worked, all together."""
    losses: int = 0
    drains: int = 0
    lost_lanes: int = 0
    truncated_steps: float = 0.0
    """Steps of the episodes that ended with their server."""
    recovery_s: list[float] = field(default_factory=list)
    """For each loss: from the loss until the last of its lanes stepped again."""


class ClientSimulation:
    """One client and its servers."""

    def __init__(
        self,
        model: Model,
        disturbances: Disturbances,
        servers: int,
        mode: Mode,
        rng: np.random.Generator,
        on_event: Callable[["ClientSimulation"], None] = lambda _: None,
    ) -> None:
        """Share out the lanes; `on_event` is called after each event."""
        self.model, self.disturbances, self.mode = model, disturbances, mode
        self.now_s = 0.0
        self.totals = Totals()
        self._rng = rng
        self._on_event = on_event
        lanes = model.load.lanes_per_server
        self.lane_count = servers * lanes
        self.room = lanes + int(disturbances.room_share * lanes)
        """Lanes that a server takes at most."""
        self.servers = [Server(self._draw_slowness(), lanes, lanes) for _ in range(servers)]
        self.parked: deque[tuple[Loss, int]] = deque()
        """Lanes without a server that has room for them."""
        self._outstanding: dict[Loss, int] = {}
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._sampled: tuple[list[Share], Steps] | None = None
        for server in self.servers:
            self._begin_life(server)
        if disturbances.upgrades_per_s and servers > 1:  # one alone has nobody to hand its lanes to
            self._at(0.5 / servers / disturbances.upgrades_per_s, partial(self._upgrade, 0))

    def run(self, seconds: float) -> Totals:
        """Simulate so long, and return the sums."""
        while self._events and self._events[0][0] < seconds:
            at_s, _, act = heapq.heappop(self._events)
            self._advance(at_s)
            act()
            if self.parked:
                self._place()
            self._on_event(self)
        self._advance(seconds)
        return self.totals

    @property
    def parked_lanes(self) -> int:
        """Lanes that step on no server: without room, or being made."""
        making = sum(server.held - server.lanes for server in self.servers)
        return making + sum(count for _, count in self.parked)

    def _at(self, at_s: float, act: Callable[[], None]) -> None:
        heapq.heappush(self._events, (at_s, next(self._order), act))

    def _after(self, server: Server, delay_s: float, act: Callable[[Server], None]) -> None:
        """Do this after a time, if the server still has the same life."""
        life = server.life
        self._at(self.now_s + delay_s, lambda: act(server) if server.life == life else None)

    def _draw_slowness(self) -> float:
        is_slow = self._rng.random() < self.disturbances.slow_share
        return 1 / self.disturbances.slow_speed if is_slow else 1.0

    # Time that passes

    def _advance(self, until_s: float) -> None:
        """Count the steps until then."""
        span_s = until_s - self.now_s
        self.now_s = until_s
        if span_s <= 0:
            return
        totals, parked = self.totals, self.parked_lanes
        totals.seconds += span_s
        totals.lane_s += span_s * self.lane_count
        totals.parked_lane_s += span_s * parked
        silent = sum(server.lanes for server in self.servers if server.is_silent)
        if silent and self.mode == "step":
            silent = self.lane_count - parked
        totals.stalled_lane_s += span_s * silent
        if silent + parked == self.lane_count:
            return
        steps = self._sample_steps()
        share = span_s / steps.seconds
        totals.lane_steps += share * steps.lane_steps
        totals.messages += share * steps.messages
        totals.busy_s += share * np.array(steps.busy_s)
        totals.server_busy_s += share * steps.server_busy_s * len(self._shares())

    def _shares(self) -> list[Share]:
        return [
            Share(one.drawn, one.lanes, one.slowness)
            for one in self.servers
            if one.is_up and not one.is_silent and one.drawn
        ]

    def _sample_steps(self) -> Steps:
        """Return steps with the servers of this moment; the same for as long as nothing changes."""
        shares, sigma = self._shares(), self.disturbances.step_sigma
        if self._sampled is not None and self._sampled[0] == shares:
            return self._sampled[1]
        if self.mode == "step":
            steps = synchronous_steps(self.model, shares, _SAMPLED_STEPS, sigma, self._rng)
        else:
            min_lanes = MIN_LANES_SHARE * sum(one.drawn for one in shares)
            streams = 1 if self.mode == "recv" else 2
            rounds = max(_SAMPLED_ROUNDS, _SAMPLED_MESSAGES // len(shares))
            steps = asynchronous_steps(self.model, shares, rounds, sigma, self._rng, min_lanes, streams)
        self._sampled = shares, steps
        return steps

    # Servers that are lost, freeze and come back

    def _begin_life(self, server: Server) -> None:
        for rate, act in (
            (self.disturbances.losses_per_s, self._lose),
            (self.disturbances.freezes_per_s, self._freeze),
        ):
            if rate:
                self._after(server, self._rng.exponential(1 / rate), act)

    def _lose(self, server: Server) -> None:
        is_new = self._rng.random() < self.disturbances.new_machine_share
        start_s = self.disturbances.start_s + is_new * self.disturbances.compile_s
        self._fall_silent(
            server, self._rng.uniform(*self.disturbances.detection_s), self.disturbances.notice_s + start_s
        )

    def _freeze(self, server: Server) -> None:
        freeze_s = self._rng.exponential(self.disturbances.freeze_s)
        detection_s = self._rng.uniform(*self.disturbances.detection_s)
        if freeze_s >= detection_s:
            self._fall_silent(server, detection_s, freeze_s)
            return
        server.is_silent = True
        self._after(server, freeze_s, self._thaw)

    def _thaw(self, server: Server) -> None:
        server.is_silent = False
        self._after(server, self._rng.exponential(1 / self.disturbances.freezes_per_s), self._freeze)

    def _fall_silent(self, server: Server, detection_s: float, back_s: float) -> None:
        server.is_silent = True
        server.life += 1
        lost_at_s = self.now_s
        self._after(
            server, detection_s, lambda one: self._take_for_lost(one, lost_at_s, max(back_s - detection_s, 0.0))
        )

    def _take_for_lost(self, server: Server, lost_at_s: float, back_s: float) -> None:
        totals = self.totals
        loss = Loss(totals.losses, lost_at_s)
        totals.losses += 1
        totals.lost_lanes += server.lanes
        totals.truncated_steps += float(self._rng.integers(0, self.disturbances.episode_steps, server.lanes).sum())
        if server.lanes:
            self.parked.append((loss, server.lanes))
            self._outstanding[loss] = server.lanes
        self.parked.extendleft(reversed(server.making))
        server.lanes = server.drawn = 0
        server.making = []
        server.is_up = server.is_silent = server.is_draining = False
        self._after(server, back_s, lambda one: self._come_back(one, self._draw_slowness()))

    def _come_back(self, server: Server, slowness: float) -> None:
        server.life += 1
        server.is_up, server.is_silent, server.slowness = True, False, slowness
        self._begin_life(server)
        if self.disturbances.rebalances:
            self._after(server, self._part_s(), partial(self._take_over, part=1))

    # Lanes that move

    def _spread(self, count: int) -> list[tuple[Server, int]]:
        """Divide lanes over the servers that have room, those with the fewest first; not all where there is none."""
        able = [one for one in self._able() if one.held < self.room]
        if not able:
            return []
        held = np.array([one.held for one in able])
        low, high = int(held.min()), self.room
        while low < high:  # the level up to which servers are filled
            level = (low + high + 1) // 2
            low, high = (level, high) if np.maximum(level - held, 0).sum() <= count else (low, level - 1)
        given = np.maximum(low - held, 0)
        rest = min(count - int(given.sum()), int((held + given < self.room).sum()))
        given[np.flatnonzero((held + given <= low) & (held + given < self.room))[: max(rest, 0)]] += 1
        return [(one, int(part)) for one, part in zip(able, given, strict=True) if part]

    def _place(self) -> None:
        """Have parked lanes made on servers that have room."""
        for server, part in self._spread(sum(count for _, count in self.parked)):
            made_s = self.model.make_s(part)
            batch = []
            while part:
                loss, count = self.parked.popleft()
                taken = min(part, count)
                if count > taken:
                    self.parked.appendleft((loss, count - taken))
                batch.append((loss, taken))
                part -= taken
            server.making += batch
            self._after(server, made_s, partial(self._made, batch=batch))

    def _made(self, server: Server, batch: list[tuple[Loss, int]]) -> None:
        for loss, count in batch:
            server.making.remove((loss, count))
            server.lanes += count
            server.drawn += count
            self._outstanding[loss] -= count
            if not self._outstanding[loss]:
                del self._outstanding[loss]
                self.totals.recovery_s.append(self.now_s - loss.at_s)

    def _upgrade(self, count: int) -> None:
        """Drain the server whose turn it is, unless others are drained or have no room; `count` were drained before."""
        server = self.servers[count % len(self.servers)]
        able = self._able()
        room = sum(self.room - one.held for one in able if one is not server)
        promised = sum(one.lanes for one in self.servers if one.is_draining)
        draining = sum(one.is_draining for one in self.servers)
        has_turn = draining < max(1, int(self.disturbances.drained_share * len(self.servers)))
        if server not in able or server.making or not has_turn or room < promised + server.lanes:
            self._at(self.now_s + _DRAIN_AGAIN_S, partial(self._upgrade, count))
            return
        due_s = (count + 1.5) / len(self.servers) / self.disturbances.upgrades_per_s
        self._at(max(due_s, self.now_s), partial(self._upgrade, count + 1))
        server.is_draining = True
        self._hand_over(server, 1)

    def _part_s(self) -> float:
        """Return the time in which the episodes of one group of lanes end."""
        shares = self._shares()
        episode_s = self.disturbances.episode_steps * self.lane_count / self._sample_steps().rate if shares else 0.0
        return episode_s / self.disturbances.drain_parts

    def _able(self) -> list[Server]:
        """Return the servers that can be given lanes."""
        return [one for one in self.servers if one.is_up and not (one.is_silent or one.is_draining)]

    def _take_over(self, server: Server, part: int) -> None:
        """Give a server that came back one group of the lanes that others have more of."""
        able, parts = self._able(), self.disturbances.drain_parts
        if server not in able:
            return
        level = sum(one.held for one in able) // len(able)
        wanted = max(level - server.held, 0) // (parts - part + 1)
        for other in sorted(able, key=lambda one: one.lanes, reverse=True):
            given = min(wanted, max(other.lanes - level, 0))
            other.lanes, other.drawn = other.lanes - given, other.drawn - given
            server.lanes, server.drawn = server.lanes + given, server.drawn + given
            wanted -= given
        if part < parts:
            self._after(server, self._part_s(), partial(self._take_over, part=part + 1))

    def _hand_over(self, server: Server, part: int) -> None:
        """Hand over one group of lanes, whose worlds were made beforehand; then the next, or the server restarts."""
        parts = self.disturbances.drain_parts
        wanted = server.lanes // (parts - part + 1)
        for other, count in self._spread(wanted):
            other.lanes += count
            other.drawn += count
            server.lanes -= count
        if part < parts:
            self._after(server, self._part_s(), partial(self._hand_over, part=part + 1))
        elif server.lanes:  # a server was lost meanwhile, and its lanes have taken the room
            self._after(server, _DRAIN_AGAIN_S, partial(self._hand_over, part=parts))
        else:
            self.totals.drains += 1
            server.drawn = 0
            server.is_up = server.is_draining = False
            server.life += 1
            self._after(server, self.disturbances.start_s, lambda one: self._come_back(one, one.slowness))
