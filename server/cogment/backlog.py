"""Bytes on their way to somebody slower: so many and no more."""

import asyncio
from collections import deque


class Backlog:
    """A queue of bytes. Whoever adds to a full one waits; whoever takes gets all there is."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._items: deque[bytes] = deque()
        self._size_bytes = 0
        self._is_closed = False
        self._changed = asyncio.Condition()

    async def put(self, item: bytes) -> None:
        """Add to it. One item always has room, however large; into a closed backlog nothing goes."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._is_closed or self._has_room(len(item)))
            if not self._is_closed:
                self._items.append(item)
                self._size_bytes += len(item)
                self._changed.notify_all()

    async def take_all(self) -> list[bytes]:
        """What waits, as soon as there is something; nothing if it is closed and empty."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._is_closed or bool(self._items))
            items = list(self._items)
            self._items.clear()
            self._size_bytes = 0
            self._changed.notify_all()
            return items

    async def close(self) -> None:
        """Nothing more comes; what is there may still be taken."""
        async with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def _has_room(self, size_bytes: int) -> bool:
        return not self._items or self._size_bytes + size_bytes <= self._most_bytes
