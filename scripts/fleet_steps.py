"""Steps of one client over its servers, message by message, while no server comes or goes.

A request goes to each server, which draws its lanes and sends a reply. Replies pass three resources of the client, in
the order in which they are ready: its link, the threads that receive, and the thread that merges them into one array.
Each is a queue of its own. In a synchronous `step` all requests are sent together and all replies are waited for; with
`recv(min_lanes)` a server is sent its next request as soon as its reply was returned. With several streams for each
server, it draws the lanes of one while the reply of another is sent.
"""

import heapq
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from scripts.fleet_model import CLIENT_RESOURCES, Model


class Share(NamedTuple):
    """The lanes of one server."""

    drawn: float
    """Lanes that it draws and sends."""
    stepping: float
    """Those among them that count: a server that is drained draws lanes that another one has taken over."""
    slowness: float
    """Its times as a multiple of the model's."""


class Steps(NamedTuple):
    """Steps that a client made in some time."""

    seconds: float
    lane_steps: float
    messages: int
    busy_s: tuple[float, ...]
    """Time that each of CLIENT_RESOURCES was in use, in their order."""
    server_busy_s: float
    """Mean over the servers of the time that each had something to draw or to send."""

    @property
    def rate(self) -> float:
        """Lane-steps a second."""
        return self.lane_steps / self.seconds


def slowdowns(rng: np.random.Generator, sigma: float, shape: tuple[int, ...]) -> np.ndarray:
    """Return random factors of server times: lognormal, with a mean of 1."""
    drawn: np.ndarray = np.exp(rng.normal(-(sigma**2) / 2, sigma, shape))
    return drawn


def _times(model: Model, shares: Sequence[Share]) -> tuple[np.ndarray, np.ndarray, float]:
    """Return the times of each server, those of each reply at the client's resources, and that of sending a request."""
    server_s = np.array([one.slowness * model.server_step_s(one.drawn) for one in shares])
    client_s = np.array([model.client_times(one.drawn, len(shares)) for one in shares])
    send_s = min(model.client_times(0, len(shares)).merge_s, float(client_s[:, 2].min())) / 2
    client_s[:, 2] -= send_s  # half of a message's fixed cost is spent before its request leaves
    return server_s, client_s, send_s


def synchronous_steps(
    model: Model, shares: Sequence[Share], count: int, sigma: float, rng: np.random.Generator
) -> Steps:
    """Simulate `step`, which waits for all servers, so many times."""
    server_s, client_s, send_s = _times(model, shares)
    worked_s = server_s * slowdowns(rng, sigma, (count, len(shares)))
    sent_s = send_s * np.arange(1, len(shares) + 1)
    ready_s = sent_s + 2 * model.hardware.latency_s + worked_s
    # The merging thread sends all requests before it takes a reply.
    free_s = (0.0, 0.0, float(sent_s[-1]))
    order = np.argsort(ready_s, axis=1, kind="stable")
    left_s = np.take_along_axis(ready_s, order, axis=1)
    for resource in range(len(CLIENT_RESOURCES)):
        left_s = _pass_queue(np.maximum(left_s, free_s[resource]), client_s[order, resource])
    seconds = float(left_s[:, -1].sum())
    busy_s = count * client_s.sum(axis=0)
    busy_s[2] += count * sent_s[-1]
    stepping = sum(one.stepping for one in shares)
    return Steps(
        seconds, count * stepping, count * len(shares), tuple(busy_s.tolist()), float(worked_s.sum() / len(shares))
    )


def _pass_queue(arrived_s: np.ndarray, takes_s: np.ndarray) -> np.ndarray:
    """Return when messages, in order of arrival along the last axis, leave a queue that serves one at a time."""
    served_s = np.cumsum(takes_s, axis=1)
    # A message leaves after the last idle moment before it, and all that were served since.
    left_s: np.ndarray = np.maximum.accumulate(arrived_s - served_s + takes_s, axis=1) + served_s
    return left_s


def asynchronous_steps(
    model: Model,
    shares: Sequence[Share],
    rounds: int,
    sigma: float,
    rng: np.random.Generator,
    min_lanes: float,
    streams: int = 1,
) -> Steps:
    """Simulate `recv(min_lanes)` until so many replies of each stream were returned; the first third is left out."""
    servers = len(shares)
    parts = [Share(one.drawn / streams, one.stepping / streams, one.slowness) for one in shares]
    _, client_s, send_s = _times(model, parts)
    link_s, receive_s, merge_s = client_s.T.tolist()
    draw_s = [one.slowness * model.draw_s(one.drawn) for one in parts]
    reply_s = [one.slowness * model.reply_s(one.drawn) for one in parts]
    wanted = min(min_lanes, sum(one.drawn for one in shares))
    count = rounds * streams * servers
    factors: list[float] = slowdowns(rng, sigma, (count + streams * servers,)).tolist()
    now_s = link_free_s = receive_free_s = 0.0
    drawn_s, replied_s, worked_s = [0.0] * servers, [0.0] * servers, [0.0] * servers
    ready: list[tuple[float, int]] = []
    """Replies that are or will be at the client's link, as a heap of times and servers."""
    received: deque[tuple[float, int]] = deque()
    sent = 0

    def send(server: int) -> None:
        nonlocal now_s, sent
        now_s += send_s
        at_s, factor = now_s + model.hardware.latency_s, factors[sent]
        sent += 1
        before_s = max(at_s, replied_s[server])
        drawn_s[server] = max(at_s, drawn_s[server]) + factor * draw_s[server]
        replied_s[server] = max(drawn_s[server], replied_s[server]) + factor * reply_s[server]
        worked_s[server] += replied_s[server] - before_s
        heapq.heappush(ready, (replied_s[server] + model.hardware.latency_s, server))

    def receive() -> None:
        nonlocal link_free_s, receive_free_s
        at_s, server = heapq.heappop(ready)
        link_free_s = max(link_free_s, at_s) + link_s[server]
        receive_free_s = max(receive_free_s, link_free_s) + receive_s[server]
        received.append((receive_free_s, server))

    def wait() -> list[int]:
        """Return the servers of the streams that `recv` returns."""
        nonlocal now_s
        taken: list[int] = []
        lanes = 0.0
        while lanes < wanted or not taken:
            if not received:
                receive()
            received_s, server = received.popleft()
            now_s = max(now_s, received_s)
            lanes += parts[server].drawn
            taken.append(server)
        while ready and ready[0][0] <= now_s:
            receive()
        while received and received[0][0] <= now_s:
            taken.append(received.popleft()[1])
        return taken

    for server in list(range(servers)) * streams:
        send(server)
    begin_s, returned, begin_worked_s = 0.0, np.zeros(servers), 0.0
    total = 0
    while total < count:
        if not begin_s and total >= count // 3:
            begin_s, returned, begin_worked_s = now_s, np.zeros(servers), sum(worked_s)
        taken = wait()[: count - total]
        now_s += sum(merge_s[server] for server in taken)
        for server in taken:
            send(server)
            returned[server] += 1
        total += len(taken)
    busy_s = returned @ client_s + [0.0, 0.0, send_s * returned.sum()]
    lane_steps = returned @ [one.stepping for one in parts]
    return Steps(
        now_s - begin_s,
        float(lane_steps),
        int(returned.sum()),
        tuple(busy_s.tolist()),
        (sum(worked_s) - begin_worked_s) / servers,
    )
