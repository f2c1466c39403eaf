"""The pools of a server by family and settings, with the lanes and the memory that each of them counts."""

import weakref
from typing import TypeAlias

from worldloom.protos.errors import ResourceExhausted
from worldloom.render.scene import Scene
from worldloom.server.engine.memory import MemoryBudget
from worldloom.worlds.family import Family
from worldloom.worlds.pool import Pool
from worldloom.worlds.randomisation.settings import Randomisation
from worldloom.worlds.settings import Value

_EMPTY_POOLS_KEPT = 8
_EMPTY_POOL_BYTES_KEPT = 64 << 20
"""Pools without lanes that are kept for the next world with the same settings: so many, and so much memory."""

PoolKey: TypeAlias = tuple[type[Family], tuple[tuple[str, Value], ...], Randomisation | None]
"""Family, its settings, and what varies."""


class PoolTable:
    """All pools with lanes, and some without. Used by the engine's thread only."""

    def __init__(self, scene: Scene, memory: MemoryBudget) -> None:
        self.by_key: dict[PoolKey, Pool] = {}
        self.lanes_of: dict[Pool, int] = {}
        """Lanes of each pool that are allocated, or are being added."""
        self.size_bytes = 0
        """Estimated memory of all pools."""
        self._bytes_of: dict[Pool, int] = {}
        self._scene = scene
        self._memory = memory

    def add(self, key: PoolKey, family: Family) -> None:
        """Create the pool of a family."""
        pool = self.by_key[key] = Pool(family, self._scene, key[2])
        self.lanes_of[pool] = self._bytes_of[pool] = 0
        self._count_bytes(pool)
        self._memory.note_release(self._bytes_of[pool])  # building it takes several times as much for a moment
        self._drop_empty(kept=pool)

    def family_of(self, pool: Pool) -> type[Family]:
        """Return the family that worlds of a pool are created by, of which building it may have chosen a subclass."""
        return next((key[0] for key, known in self.by_key.items() if known is pool), type(pool.family))

    def count_lanes(self, pool: Pool, count: int) -> None:
        """Count lanes of a pool as allocated; a negative number counts lanes that are free again."""
        self.lanes_of[pool] = self.lanes_of.get(pool, 0) + count
        self._count_bytes(pool)
        if count < 0:
            self._drop_empty()
            if not self.lanes_of.get(pool, 1) and pool not in self.by_key.values():
                self._forget(pool)

    def check_memory(self, pool: Pool, lanes: int) -> None:
        """Raise ResourceExhausted if so many lanes more in a pool would exceed the memory budget.

        Pools without lanes make room, this one too if it is of no use.
        """
        family = pool.family
        size_bytes = pool.memory_bytes(self.lanes_of.get(pool, 0) + lanes) - self._bytes_of.get(pool, 0)
        if size_bytes > self._memory.left_bytes:
            self._drop_empty(keep=0, kept=pool)
        try:
            self._memory.check(
                size_bytes,
                f"{lanes} lane{'' if lanes == 1 else 's'} of {family.name!r} with these settings",
                "ask for fewer lanes, destroy some worlds",
                0 if self.lanes_of.get(pool) else self._bytes_of.get(pool, 0),
            )
        except ResourceExhausted:
            self._drop_empty()
            raise

    def _count_bytes(self, pool: Pool) -> None:
        """Count the memory of a pool with the lanes that it has now."""
        size_bytes = pool.memory_bytes(self.lanes_of[pool])
        released_bytes = self._bytes_of.get(pool, 0) - size_bytes
        self._bytes_of[pool] = size_bytes
        self.size_bytes -= released_bytes
        self._memory.note_release(released_bytes)

    def _drop_empty(self, keep: int = _EMPTY_POOLS_KEPT, kept: Pool | None = None) -> None:
        """Remove the oldest pools without lanes: all but `keep` of them, and those that take too much memory."""
        empty = [key for key, pool in self.by_key.items() if not self.lanes_of[pool] and pool is not kept]
        left_bytes = _EMPTY_POOL_BYTES_KEPT
        for key in reversed(empty):
            size_bytes = self._bytes_of[self.by_key[key]]
            if keep and size_bytes <= left_bytes:
                keep, left_bytes = keep - 1, left_bytes - size_bytes
            else:
                self._forget(self.by_key.pop(key))

    def _forget(self, pool: Pool) -> None:
        """Stop counting a pool without lanes that gets none. Its family goes with the last agent that joined."""
        del self.lanes_of[pool]
        size_bytes = self._bytes_of.pop(pool)
        self.size_bytes -= size_bytes
        weakref.finalize(pool.family, self._memory.note_release, size_bytes).atexit = False
