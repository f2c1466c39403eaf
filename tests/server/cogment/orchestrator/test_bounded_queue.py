"""Bytes on their way to somebody slower."""

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from tests.support.trial_services import run
from worldloom.server.cogment.orchestrator.datalog import BoundedQueue


@given(st.lists(st.binary(max_size=20), max_size=30), st.integers(1, 40))
def test_everything_arrives_in_order_and_never_too_much_waits(items: list[bytes], most_bytes: int) -> None:
    async def scenario() -> None:
        queue = BoundedQueue(most_bytes)

        async def put_all() -> None:
            for item in items:
                await queue.put(item)
            await queue.close()

        putting = asyncio.create_task(put_all())
        found: list[bytes] = []
        while batch := await queue.pop_all():
            assert len(batch) == 1 or sum(map(len, batch)) <= most_bytes
            found += batch
        await putting
        assert found == items

    run(scenario)


def test_whoever_waits_for_room_goes_on_when_it_is_closed() -> None:
    async def scenario() -> None:
        queue = BoundedQueue(10)
        await queue.put(b"x" * 100)  # one always has room
        waiting = asyncio.create_task(queue.put(b"y"))
        await asyncio.sleep(0)
        assert not waiting.done()
        await queue.close()
        await waiting
        await queue.put(b"z")
        assert await queue.pop_all() == [b"x" * 100]
        assert await queue.pop_all() == []

    run(scenario)


def test_whoever_gives_up_waiting_leaves_nothing() -> None:
    async def scenario() -> None:
        queue = BoundedQueue(1)
        await queue.put(b"x")
        waiting = asyncio.create_task(queue.put(b"y"))
        await asyncio.sleep(0)
        waiting.cancel()
        assert await queue.pop_all() == [b"x"]
        await queue.put(b"z")
        assert await queue.pop_all() == [b"z"]

    run(scenario)
