"""Randomised lanes: what varies in the lanes of a pool, drawn for each and applied to what its family writes.

A family writes into a scene of the pool's own, and never learns that anything varies. When lanes are drawn, their rows
are copied from there into the scene that is drawn, with the variations applied. So nothing adds up from one draw to the
next, and a lane shows the same whatever was drawn before.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from worldloom.kernels.tables import F32, F64, I32, I64
from worldloom.render.scene import LANE_BYTES, ROW_BYTES, Scene
from worldloom.worlds.family import CameraPlacement, Family, State, resized
from worldloom.worlds.randomisation.cameras import NEARER, vary_cameras
from worldloom.worlds.randomisation.distracted_lanes import DistractedLanes, DrawnLanes
from worldloom.worlds.randomisation.draws import choose_variations, draw_numbers
from worldloom.worlds.randomisation.pictures import find_clips, find_textures
from worldloom.worlds.randomisation.scene import VariationPlan, write_varied_lanes
from worldloom.worlds.randomisation.settings import (
    BACKGROUND,
    CAMERA,
    PHYSICS,
    TEXTURES,
    VARIATION,
    VARIATIONS,
    VISUAL,
    WALK,
    Randomisation,
    VariationChoice,
)
from worldloom.worlds.randomisation.specs import check_amounts, count_groups, count_numbers, list_specs

_LABELS = 256
_COLUMNS = (
    *("scene_lane", "_own_seed", "_seed", "_count", "_given"),
    *("_drawn_seed", "_world_number", "_number", "_walked_steps", "_walked", "_moved"),
)
"""Names of the arrays with a row for each lane."""


class RandomisedLanes:
    """The variations of the lanes of one pool, and the scene that its family writes into."""

    def __init__(self, family: Family, randomisation: Randomisation) -> None:
        physical = check_amounts(family, randomisation)
        self._varies_physics = bool(physical)
        if physical:
            family.vary_physics(physical)
        self.scene = Scene(family.assets)
        """The scene that the family writes."""
        self.scene_lane: I32 = np.zeros(0, np.int32)
        """Lanes of that scene."""
        self._family = family
        self._randomisation = randomisation
        self.plan = _make_plan(family, randomisation)
        """Amounts and groups of the variations, for kernels."""
        self._times: I64 = np.array(randomisation.times, np.int64)
        self._laws: F64 = np.array([one.walk for one in VARIATIONS], np.float64)
        self._length = int(self.plan.first[-1])
        self.specs = tuple(list_specs(family, np.diff(self.plan.first).tolist()))
        """Observations of what was drawn."""
        # What the lane's world has chosen, then what holds for the lane's episode.
        self._own_seed: NDArray[np.bool_] = np.zeros(0, np.bool_)
        self._seed: NDArray[np.uint64] = np.zeros(0, np.uint64)
        self._count: I64 = np.zeros(0, np.int64)
        self._given: I64 = np.zeros(0, np.int64)
        self._drawn_seed: NDArray[np.uint64] = np.zeros(0, np.uint64)
        self._world_number: I64 = np.zeros(0, np.int64)
        self._number: I64 = np.zeros(0, np.int64)
        walks = self._length if WALK in randomisation.times else 0
        self._walked_steps: I64 = np.zeros((0, len(VARIATIONS)), np.int64)
        self._walked: F64 = np.zeros((0, walks), np.float64)
        self._moved: F64 = np.zeros((0, walks), np.float64)
        self._distracted = None
        if family.distraction is not None:
            self._distracted = DistractedLanes(family, family.distraction, randomisation.background_set)

    def memory_bytes(self, lanes: int) -> int:
        """Estimate the memory of so many lanes beside that of the pool, in bytes."""
        columns = sum(array.itemsize * int(np.prod(array.shape[1:])) for array in self.arrays())
        return 2 * lanes * (columns + LANE_BYTES + self._family.rows_per_lane * ROW_BYTES)

    def resize(self, capacity: int) -> None:
        """Replace the arrays by larger or smaller ones; rows that remain keep their values."""
        for name in _COLUMNS:
            setattr(self, name, resized(getattr(self, name), capacity))
        if self._distracted is not None:
            self._distracted.resize(capacity)

    def arrays(self) -> list[np.ndarray]:
        """Return the arrays that a step may change, with a row for each lane."""
        distracted = [] if self._distracted is None else self._distracted.arrays()
        drawn = [self._drawn_seed, self._world_number, self._number]
        return [*drawn, self._walked_steps, self._walked, self._moved, *distracted]

    def reserve(self, count: int) -> None:
        """Make room for so many lanes more."""
        self.scene.reserve(count, self._family.rows_per_lane)

    def add(self, lanes: I64, state: State, episode: I64) -> None:
        """Begin with new lanes, whose seeds are their own; `episode` and the state have a row for each lane."""
        self.scene_lane[lanes] = self.scene.add(len(lanes), self._family.rows_per_lane, self._family.static_rows)
        self.choose(lanes, VariationChoice())
        self.begin(lanes, state, episode)

    def free(self, lanes: I64) -> None:
        """Free lanes of the scene."""
        self.scene.free(self.scene_lane[lanes])

    def choose(self, lanes: I64, choice: VariationChoice) -> None:
        """Set seed and number of the variations of these lanes, from their next episode on."""
        self._own_seed[lanes] = choice.seed is None
        self._seed[lanes] = np.uint64((choice.seed or 0) % 2**64)
        self._count[lanes] = choice.count
        self._given[lanes] = choice.numbers

    def begin(self, lanes: I64, state: State, episode: I64) -> None:
        """Choose the variations of lanes whose episode begins."""
        choose_variations(
            lanes,
            state.lane_seed,
            episode,
            self._own_seed,
            self._seed,
            self._count,
            self._given,
            self._drawn_seed,
            self._world_number,
            self._number,
        )
        self._walked_steps[lanes] = -1
        if self._varies_physics:
            first = int(self.plan.first[PHYSICS[0]])
            state.physics[lanes] = self.draw(lanes, np.zeros_like(episode), PHYSICS)[:, first:]
        if self._distracted is not None:
            self._distracted.begin(lanes)

    def count_actions(self, lanes: I64) -> None:
        """Count an action in each of these lanes, however often it was applied."""
        if self._distracted is not None:
            self._distracted.count_actions(lanes)

    def draw(self, lanes: I64, steps: I64, variations: Sequence[int]) -> F64:
        """Return the numbers that are drawn for these lanes, [n, m]; `steps` has a row for each lane.

        `variations` are consecutive numbers of some; columns of others have no values.
        """
        numbers = np.empty((len(lanes), self._length))
        draw_numbers(
            lanes,
            steps,
            variations[0],
            variations[-1],
            self._times,
            self.plan.first,
            self._laws,
            self._drawn_seed,
            self._world_number,
            self._number,
            self._walked_steps,
            self._walked,
            self._moved,
            numbers,
        )
        return numbers

    def observe(self, lanes: I64, steps: I64, name: str) -> np.ndarray:
        """Return one of the observations of `specs`."""
        if name == VARIATION:
            return np.asarray(self._number[lanes])
        what = [one.name for one in VARIATIONS].index(name.removeprefix(f"{VARIATION}."))
        first, end = self.plan.first[what : what + 2]
        numbers = self.draw(lanes, steps, (what,))[:, first:end]
        if self._distracted is not None:
            distracted = self._distracted.observe(self._drawn(lanes, steps), VARIATIONS[what].name)
            numbers = np.concatenate([numbers, distracted], axis=1)
        return np.asarray(numbers, np.float32)

    def write(self, lanes: I64, steps: I64, scene: Scene, scene_lanes: I32) -> None:
        """Copy what the family has written into lanes of the scene that is drawn, varied."""
        write_varied_lanes(
            self.plan,
            self.draw(lanes, steps, VISUAL),
            steps[lanes],
            self.scene_lane[lanes],
            self.scene.instances,
            self.scene.lanes,
            scene_lanes,
            scene.instances,
            scene.lanes,
            scene.assets.table.texels,
        )
        if self._distracted is not None:
            self._distracted.write(self._drawn(lanes, steps), scene, scene_lanes)

    def vary_camera(
        self, lanes: I64, steps: I64, state: State, camera: str, placement: CameraPlacement
    ) -> CameraPlacement:
        """Return where a camera is that the family has placed, varied."""
        if self._distracted is not None:
            placement = self._distracted.move_camera(self._drawn(lanes, steps), state, camera, placement)
        amount = self._randomisation.amounts[CAMERA]
        if not amount:
            return placement
        focus_m = self._family.find_camera(camera).focus_m
        poses: F32 = np.empty((len(lanes), 3, 4), np.float32)
        half_heights: F32 = np.empty(len(lanes), np.float32)
        poses[...], half_heights[...] = placement.pose, placement.half_height
        first, numbers = int(self.plan.first[CAMERA]), self.draw(lanes, steps, (CAMERA,))
        vary_cameras(amount, first, numbers, focus_m, placement.orthographic, poses, half_heights)
        near, far = placement.near, placement.far
        if placement.orthographic:  # it turns around its focus, and so may what it sees
            near, far = near - focus_m, far + focus_m
        elif focus_m:
            near *= 1.0 - NEARER * amount
        return CameraPlacement(poses, half_heights, placement.orthographic, near, far)

    def _drawn(self, lanes: I64, steps: I64) -> DrawnLanes:
        return DrawnLanes(lanes, steps, self._drawn_seed, self._number)


def _make_plan(family: Family, randomisation: Randomisation) -> VariationPlan:
    """Return what varies in the lanes of a family, and which numbers are drawn for it."""
    _check_rows(family)
    groups = np.zeros(0, np.int32) if family.row_groups is None else np.asarray(family.row_groups, np.int32)
    counts = count_numbers(family)
    used = [counts[what] if amount > 0 else 0 for what, amount in enumerate(randomisation.amounts)]
    has_size = np.full(_LABELS, family.sized_labels is None, np.uint8)
    has_size[list(family.sized_labels or ())] = 1
    amounts, assets = randomisation.amounts, family.assets
    textures = find_textures(assets, randomisation.texture_set) if amounts[TEXTURES] > 0 else []
    clips = find_clips(assets, randomisation.background_set) if amounts[BACKGROUND] > 0 else []
    return VariationPlan(
        amounts=np.array(randomisation.amounts, np.float64),
        first=np.cumsum([0, *used]).astype(np.int64),
        groups=groups,
        group_count=count_groups(family),
        label_count=len(family.labels),
        has_size=has_size,
        static_rows=family.static_rows,
        textures=np.array(textures, np.int32),
        clips=np.array(clips, np.int32).reshape(-1, 2),
        plays=randomisation.times[BACKGROUND] == WALK,
    )


def _check_rows(family: Family) -> None:
    """Raise ValueError unless kernels can take groups and labels of a family as indices."""
    groups, sized = family.row_groups, family.sized_labels or ()
    if groups is not None and (len(groups) != family.rows_per_lane or min(groups, default=0) < 0):
        raise ValueError(
            f"row_groups of family {family.name!r}: expected {family.rows_per_lane} numbers of 0 or more, one for each "
            f"row of a lane; got {len(groups)}, the least of them {min(groups, default=0)}"
        )
    if not all(0 <= label < _LABELS for label in sized):
        raise ValueError(
            f"sized_labels of family {family.name!r}: expected labels from 0 to {_LABELS - 1}, got {sorted(sized)}"
        )
