"""The worlds of a server as the page lists them: what they are, and who is in them."""

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeAlias
from weakref import WeakKeyDictionary

import numpy as np

from worldloom.kernels.outputs import DEFAULT_OUTPUT_NAMES
from worldloom.server.engine.engine import Engine
from worldloom.server.engine.followed import MAX_ACTION_NUMBERS
from worldloom.server.engine.picture_requests import world_id
from worldloom.server.engine.world import FAILURES, World
from worldloom.server.logs import Log
from worldloom.server.web.watched_server import ask_engine
from worldloom.worlds.family import Bound, Family, Spec

log = Log("web")

Row: TypeAlias = dict[str, Any]
_PART = 64
"""Worlds that the engine describes in one tick at most."""
_MAX_TEXT = 200
"""Characters of a setting that the page gets."""


class _WorldFacts(NamedTuple):
    """The facts of a world that a row is made of. The engine's thread only collects them, which is quick."""

    family: Family
    lanes: int
    settings: Mapping[str, object]
    seed: object
    is_vector: bool
    autoreset: str
    trial: str
    stream: str
    joined: tuple[tuple[int, str, int, int], ...]


class WorldList:
    """Rows of all worlds, by id. Used on the thread of the event loop."""

    def __init__(self, engine: Engine) -> None:
        self.rows: dict[str, Row] = {}
        """The table, and the row of each world, are replaced when they have changed, and never written to."""
        self._engine = engine
        self._facts: dict[str, _WorldFacts] = {}
        self._changes = -1
        self._lock = asyncio.Lock()
        self._families: WeakKeyDictionary[Family, Row] = WeakKeyDictionary()

    def forget(self) -> None:
        """Forget all worlds, which are kept in memory otherwise: nobody watches any more."""
        self.rows, self._facts, self._changes = {}, {}, -1
        self._families.clear()

    async def update(self) -> None:
        """Ask the engine for its worlds, if any have changed."""
        async with self._lock:
            await self._update()

    async def _update(self) -> None:
        changes = self._engine.directory.changes
        if changes == self._changes:
            return
        worlds = await ask_engine(self._engine, lambda: list(self._engine.directory.worlds.values()))
        facts: dict[str, _WorldFacts] = {}
        for first in range(0, len(worlds), _PART):
            part = worlds[first : first + _PART]
            facts |= await ask_engine(self._engine, partial(_facts_of, part))
        rows: dict[str, Row] = {}
        for name, found in facts.items():
            is_same = _are_same(found, self._facts.get(name))
            row = self.rows.get(name) if is_same else self._try_row(name, found)
            if row is not None:
                rows[name] = row
        self.rows, self._facts, self._changes = rows, facts, changes

    def _try_row(self, name: str, facts: _WorldFacts) -> Row | None:
        """Return the row of a world; None if what its family says of itself cannot be shown."""
        try:
            return self._row(name, facts)
        except FAILURES:  # families may come from other packages
            log.error("a world cannot be listed for viewers", world=name, family=facts.family.name)
            return None

    def _row(self, name: str, facts: _WorldFacts) -> Row:
        family = facts.family
        if family not in self._families:
            self._families[family] = _family_row(family)
        return {
            "id": name,
            "lanes": facts.lanes,
            "is_vector": facts.is_vector,
            "autoreset": facts.autoreset,
            "seed": _text(facts.seed),
            "settings": {_text(key): _text(value) for key, value in facts.settings.items()},
            "trial": facts.trial,
            "stream": facts.stream,
            "joined": [
                {"agent": agent, "owner": owner, "width": width, "height": height}
                for agent, owner, width, height in facts.joined
            ],
            **self._families[family],
        }


def _facts_of(worlds: Sequence[World]) -> dict[str, _WorldFacts]:
    return {world_id(world.name): _facts(world) for world in worlds}


def _facts(world: World) -> _WorldFacts:
    """Return the facts of a world, on the engine's thread."""
    joined = [(index, agent.owner, agent.specs.join_settings) for index, agent in sorted(world.agents.items())]
    return _WorldFacts(
        world.pool.family,
        len(world.lanes),
        world.settings,
        world.seeds.given,
        world.is_vector,
        world.autoreset.value,
        world.trial_id,
        world.creator,
        tuple((index, owner, join.width, join.height) for index, owner, join in joined),
    )


def _are_same(facts: _WorldFacts, others: _WorldFacts | None) -> bool:
    """Return whether two worlds have the same row. Settings, which may be large, are compared by identity."""
    return (
        others is not None
        and facts.family is others.family
        and facts.settings is others.settings
        and facts.seed is others.seed
        and (facts.lanes, *facts[4:]) == (others.lanes, *others[4:])
    )


def _family_row(family: Family) -> Row:
    return {
        "family": family.name,
        "agents": family.agents,
        "cameras": [
            {"name": camera.name, "outputs": [name for name in camera.outputs if name in DEFAULT_OUTPUT_NAMES]}
            for camera in family.cameras
        ],
        "labels": {str(number): text for number, text in enumerate(family.labels)},
        "actions": [action_row(spec) for spec in family.actions],
    }


def action_row(spec: Spec) -> Row:
    """Return an action as the page shows it."""
    return {
        "name": spec.name,
        "dtype": spec.dtype,
        "shape": list(spec.shape),
        "minimum": _bound(spec.minimum, spec.shape),
        "maximum": _bound(spec.maximum, spec.shape),
    }


def _bound(bound: Bound, shape: tuple[int, ...]) -> list[float | None] | None:
    """Return a bound for each element, of the first ones; None for those without."""
    if bound is None or -1 in shape:
        return None
    values = np.broadcast_to(np.asarray(bound, float), shape).ravel()[:MAX_ACTION_NUMBERS]
    return [float(value) if np.isfinite(value) else None for value in values]


def _text(value: object) -> str:
    if isinstance(value, bytes | list | tuple):
        value = value[:_MAX_TEXT]  # each element takes a character at least: the text of all of them may take seconds
    text = str(value)
    return text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]}…"
