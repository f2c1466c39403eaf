"""Second stage of a tick: which views were asked for, and where in the arena their pixels go.

Steps that ask for the same of the same pool are one group: one call of the family for each camera serves all of them.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from worldloom.kernels.tables import I64, ViewTable
from worldloom.render.arena import lay_out
from worldloom.render.scene import Scene
from worldloom.server.engine.offer import Wanted
from worldloom.server.engine.world import Step, World
from worldloom.server.errors import Internal
from worldloom.server.serving.logs import Log
from worldloom.worlds.pool import Pool

log = Log("engine")


@dataclass
class Group:
    """Steps that ask for the same, the lanes they are about, and what the family says of them."""

    steps: list[Step]
    wanted: Wanted
    lanes: I64
    views: dict[str, ViewTable] = field(default_factory=dict)
    """By camera: a view for each lane."""
    first_view: dict[str, int] = field(default_factory=dict)
    observed: dict[str, np.ndarray] = field(default_factory=dict)
    """The family's own observations, [lanes, *shape]."""

    @property
    def pool(self) -> Pool:
        """Where the lanes are."""
        return self.steps[0].agent.world.pool


@dataclass
class Plan:
    """Everything that a tick draws."""

    groups: list[Group]
    views: ViewTable | None
    """None if nobody asked for a picture."""
    offsets: I64
    size_bytes: int


def plan(steps: Iterable[Step], scene: Scene) -> Plan:
    """Group the steps, ask the families where cameras stand and what is observed, and lay the pictures out."""
    by_key: dict[object, list[Step]] = {}
    for step in steps:
        by_key.setdefault(step.wanted.key, []).append(step)
    groups = [group for same in by_key.values() if (group := _make_group(same)) is not None]
    _light(scene, {step.agent.world for group in groups if group.views for step in group.steps})
    return lay_out_groups(groups)


def lay_out_groups(groups: list[Group]) -> Plan:
    """One table of all their views, and a place for each picture."""
    tables = []
    count = 0
    for group in groups:
        for camera, views in group.views.items():
            group.first_view[camera] = count
            count += len(views.lane)
            tables.append(views)
    if not tables:
        return Plan(groups, None, np.zeros((0, 4), np.int64), 0)
    together = tables[0] if len(tables) == 1 else join_views(tables)
    return Plan(groups, together, *lay_out(together))


def join_views(tables: Sequence[ViewTable]) -> ViewTable:
    """All rows of these tables, in order."""
    return ViewTable(*(np.concatenate(columns) for columns in zip(*tables, strict=True)))


def _make_group(steps: list[Step]) -> Group | None:
    """None if the family failed: then the steps are refused."""
    worlds = [step.agent.world for step in steps]
    wanted, agent = steps[0].wanted, steps[0].agent
    pool, joining = worlds[0].pool, agent.offer.joining
    lanes = worlds[0].lanes if len(worlds) == 1 else np.concatenate([world.lanes for world in worlds])
    group = Group(steps, wanted, lanes)
    try:
        for name in wanted.family_names:
            group.observed[name] = _checked(pool, name, pool.observe(lanes, name, agent.slot), len(lanes))
        for camera, bits in wanted.cameras:
            group.views[camera] = views = pool.views(
                lanes,
                camera,
                agent.slot,
                width=joining.width,
                height=joining.height,
                outputs=bits,
                samples=joining.samples,
            )
            _widen(views, camera, steps)
    except Exception:  # a family is anybody's code: the other groups go on
        log.error("family failed", family=pool.family.name, worlds=len(worlds))
        refuse(steps, f"family {pool.family.name!r} failed while it showed its worlds; the server's log has more")
        return None
    return group


def _checked(pool: Pool, name: str, value: np.ndarray, lanes: int) -> np.ndarray:
    """What a family shows, if it is what its spec says."""
    spec = next(spec for spec in pool.family.observations if spec.name == name)
    if value.dtype != spec.dtype or value.shape != (lanes, *spec.shape):
        raise ValueError(
            f"observation {name!r} came as {value.dtype} {list(value.shape)}: expected {spec.dtype} "
            f"{[lanes, *spec.shape]}, as its spec says"
        )
    return value


def refuse(steps: Iterable[Step], text: str) -> None:
    """Tell these agents that a bug keeps them from seeing what they asked for."""
    for step in steps:
        step.refuse(Internal(text))


def _widen(views: ViewTable, camera: str, steps: list[Step]) -> None:
    """Fields of view that agents have changed."""
    first = 0
    for step in steps:
        count = len(step.agent.world.lanes)
        half_height = step.agent.half_heights.get(camera)
        if half_height is not None:
            views.half_height[first : first + count] = half_height
        first += count


def _light(scene: Scene, worlds: set[World]) -> None:
    """Lights that agents have changed, over what the family says."""
    for world in worlds:
        for column, value in world.lighting.items():
            getattr(scene.lanes, column)[world.pool.scene_lane[world.lanes]] = value
