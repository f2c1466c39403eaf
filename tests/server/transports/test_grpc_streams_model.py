"""A stream between a client and an engine that both take their time: random turns of events, judged afterwards."""

import asyncio
from collections import deque
from collections.abc import Callable

import grpc
from dm_env_rpc.v1 import dm_env_rpc_pb2
from hypothesis import given, settings
from hypothesis import strategies as st

from worldloom.server.config import Limits
from worldloom.server.transports.grpc_streams import RequestBatch, Stream

MOST_BYTES = 64
ROUNDS = 12
"""Turns of the event loop after which nothing moves any more by itself."""


class Script:
    """Client and engine at once: what is sent, when it is answered and when a reply is taken is up to the test."""

    def __init__(self, most_waiting: int, is_alone: bool) -> None:
        self.sent: list[bytes] = []
        self.at_engine: list[bytes] = []
        self.written: list[bytes] = []
        self.when_read: list[tuple[int, int]] = []
        """For each request that was read: how many were at the engine, or about to be posted, and how many replies
        written, just then."""
        self._unread: deque[bytes] = deque()
        self._answered = 0
        self._is_over = False
        self._news = asyncio.Event()
        self._may_write: asyncio.Queue[None] = asyncio.Queue()
        limits = Limits(max_waiting_requests=most_waiting, max_message_bytes=MOST_BYTES)
        self._batch = RequestBatch(self._post)
        self._batch.has_one_stream = is_alone
        self.stream = Stream(self, self._post, self._batch, limits)
        self.rejected = 0
        self.stream.receive, self.stream.reject = self._receive, self._reject

    def _post(self, call: Callable[[], None]) -> None:
        call()

    def _receive(self, request: bytes) -> None:
        assert len(self.at_engine) == self._answered, "the engine has one request of a stream at a time"
        self.at_engine.append(request)

    def _reject(self) -> None:
        self.rejected += 1

    async def read(self) -> object:
        while not self._unread:
            if self._is_over:
                return grpc.aio.EOF
            self._news.clear()
            await self._news.wait()
        self.when_read.append((len(self.at_engine) + len(self._batch._requests), len(self.written)))
        return self._unread.popleft()

    async def write(self, reply: bytes) -> None:
        self.written.append(reply)
        await self._may_write.get()

    def send(self, size_bytes: int) -> None:
        self.sent.append(len(self.sent).to_bytes(4, "big").ljust(size_bytes, b"."))
        self._unread.append(self.sent[-1])
        self._news.set()

    def end(self) -> None:
        self._is_over = True
        self._news.set()

    def answer(self) -> None:
        if self._answered < len(self.at_engine):
            self.stream.deliver(self.at_engine[self._answered])
            self._answered += 1

    def let_write(self) -> None:
        self._may_write.put_nowait(None)


async def settle() -> None:
    for _ in range(ROUNDS):
        await asyncio.sleep(0)


async def play(turns: list[int | str], most_waiting: int, is_alone: bool) -> Script:
    script = Script(most_waiting, is_alone)
    handling = asyncio.gather(script.stream.take_requests(), script.stream.answer())
    for turn in turns:
        if isinstance(turn, int):
            script.send(turn)
        elif turn == "answer":
            script.answer()
        else:
            script.let_write()
        await settle()
    script.end()
    for _ in range(2 * len(turns) + 1):
        script.answer()
        script.let_write()
        await settle()
    await asyncio.wait_for(handling, timeout=5)
    return script


def kind_of(request: bytes, reply: bytes) -> str:
    if reply == request:
        return "echo"
    error = dm_env_rpc_pb2.EnvironmentResponse.FromString(reply).error
    assert error.code == 8
    assert "--max-message-bytes" in error.message
    return "large"


sizes_bytes = st.sampled_from([4, 20, 50, MOST_BYTES, MOST_BYTES + 1])


@given(st.lists(sizes_bytes | st.sampled_from(["answer", "write"])), st.integers(1, 4), st.booleans())
@settings(max_examples=300)
def test_every_request_is_answered_once_in_order_within_the_limits(
    turns: list[int | str], most_waiting: int, is_alone: bool
) -> None:
    script = asyncio.run(play(turns, most_waiting, is_alone))
    kinds = [kind_of(request, reply) for request, reply in zip(script.sent, script.written, strict=True)]
    echoed = [index for index, kind in enumerate(kinds) if kind == "echo"]
    assert script.at_engine == [script.sent[index] for index in echoed]
    assert script.rejected == kinds.count("large")
    for index, (count_at_engine, count_written) in enumerate(script.when_read):
        assert index - count_written < most_waiting, "reading stops while so many wait"
        assert kinds[index] == ("large" if len(script.sent[index]) > MOST_BYTES else "echo")
        queued = [one for one in echoed if one < index][count_at_engine:]
        assert sum(len(script.sent[one]) for one in queued) < MOST_BYTES


def test_requests_of_one_turn_of_the_loop_are_posted_together_and_one_that_fails_harms_no_other() -> None:
    posted: list[Callable[[], None]] = []
    received: list[bytes] = []

    def fail(request: bytes) -> None:
        raise RuntimeError("a bug")

    async def run() -> None:
        batch = RequestBatch(posted.append)
        for request in (b"1", b"2"):
            batch.add(received.append, request)
        batch.add(fail, b"3")
        batch.add(received.append, b"4")
        assert not posted
        await settle()
        assert len(posted) == 1
        batch.add(received.append, b"5")
        batch.post()  # ahead of its turn
        await settle()
        assert len(posted) == 2
        batch.has_one_stream = True
        batch.add(received.append, b"6")
        assert len(posted) == 3

    asyncio.run(run())
    for call in posted:
        call()
    assert received == [b"1", b"2", b"4", b"5", b"6"]
