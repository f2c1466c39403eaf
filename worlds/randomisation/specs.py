"""Variations that a family has: how many numbers are drawn for each, and the observations of them."""

import math
from collections.abc import Iterator

from worldloom.worlds.family import Family, Spec
from worldloom.worlds.randomisation.distractions import Distraction
from worldloom.worlds.randomisation.scene import AMBIENT_FIRST
from worldloom.worlds.randomisation.settings import (
    BACKGROUND,
    CAMERA,
    COLORS,
    LIGHTS,
    MAX_NUMBER,
    PHYSICS,
    SIZES,
    SKY,
    TEXTURES,
    VARIATION,
    VARIATIONS,
    Randomisation,
)
from worldloom.worlds.settings import SettingError

PLACE_NUMBERS, COLOR_NUMBERS, FRAME_NUMBERS = 4, 3, 2
"""Numbers of the place of a camera, of a colour, and of a frame of a video."""


def check_amounts(family: Family, randomisation: Randomisation) -> dict[str, float]:
    """Return the amounts of physical parameters that vary, by name; SettingError for what a family cannot vary."""
    amounts = {one.name: amount for one, amount in zip(VARIATIONS, randomisation.amounts, strict=True) if amount > 0}
    physical = {one.name: amounts[one.name] for one in VARIATIONS if one.is_physical and one.name in amounts}
    counts = family.physical_counts() if physical else {}
    missing = [name for name in physical if not counts.get(name)]
    if missing:
        raise SettingError(
            f"setting 'vary_{missing[0]}' is {physical[missing[0]]:g}: this world of {family.name!r} "
            f"has no {missing[0]} that could vary, expected 0; worlds that MuJoCo simulates may have some: of "
            "dmc, of mujoco but with drive 'state', and of gym's own tasks"
        )
    if len(physical) < len(amounts) and not is_drawn(family):
        raise SettingError(
            f"settings that vary the pictures of {family.name!r}: expected none, for its environment draws them itself"
        )
    return physical


def is_drawn(family: Family) -> bool:
    """Return whether any frames of a family are drawn from its scene."""
    return any(camera.is_drawn for camera in family.cameras)


def count_groups(family: Family) -> int:
    """Return the number of things in a lane whose parts have one colour and texture."""
    groups = family.row_groups
    return len(family.labels) if groups is None or not len(groups) else int(max(groups)) + 1


def count_numbers(family: Family) -> list[int]:
    """Return how many numbers are drawn for each of VARIATIONS if it varies in this family."""
    group_count = count_groups(family)
    physical = family.physical_counts()
    counts = {
        COLORS: 3 * group_count,
        TEXTURES: 2 * group_count,
        SIZES: len(family.labels),
        LIGHTS: AMBIENT_FIRST + 4,
        CAMERA: 4,
        SKY: 6,
        BACKGROUND: 4,
        **{what: physical.get(VARIATIONS[what].name, 0) for what in PHYSICS},
    }
    return [counts[what] for what in range(len(VARIATIONS))]


def list_specs(family: Family, counts: list[int]) -> Iterator[Spec]:
    """Yield the observations of what is drawn, if so many numbers are drawn for each of VARIATIONS."""
    text = "Number of the variation: lanes with the same one and the same `vary_seed` look the same."
    yield Spec(VARIATION, "int64", (), text, 0, MAX_NUMBER, hidden=True)
    distracted = {} if family.distraction is None else _list_distracted(family, family.distraction)
    for what, one in enumerate(VARIATIONS):
        texts, maxima = [], [1.0] * counts[what]
        if counts[what]:
            texts.append(f"Numbers that were drawn for `vary_{one.name}`: 0 and 1 are the ends of each range.")
        if what in distracted:
            count, text = distracted[what]
            texts.append(text)
            maxima += [math.inf if what == BACKGROUND else 1.0] * count
        if maxima:
            known = set(maxima)
            maximum = tuple(maxima) if len(known) > 1 else None if math.inf in known else 1.0
            shape = (len(maxima),)
            yield Spec(f"{VARIATION}.{one.name}", "float32", shape, " ".join(texts), 0.0, maximum, hidden=True)


def moved_cameras(family: Family, distraction: Distraction) -> list[str]:
    """Return the cameras that a distraction moves, in the order of the family's."""
    is_moved = distraction.preset.camera is not None and distraction.preset.camera.angle > 0
    return [camera.name for camera in family.cameras if is_moved and camera.name in distraction.cameras]


def _list_distracted(family: Family, distraction: Distraction) -> dict[int, tuple[int, str]]:
    """Return the count and the meaning of the numbers of each axis of a distraction, by the variation they are with."""
    preset, found = distraction.preset, {}
    cameras = moved_cameras(family, distraction)
    if cameras:
        text = (
            f"Places that the distraction gives the cameras {', '.join(cameras)}: bearing, angle from the zenith, roll "
            "and distance of each, where 0 and 1 are the ends of their ranges."
        )
        found[CAMERA] = PLACE_NUMBERS * len(cameras), text
    if preset.colors is not None:
        count, whose = len(distraction.material_colors), "all materials of the model"
        if preset.colors.normal:
            parts = ["the body", "the top of the sky", "the floor's darker squares"]
            drawn = [True, distraction.has_sky, bool(len(distraction.floors))]
            whose = ", of ".join(part for part, is_drawn in zip(parts, drawn, strict=True) if is_drawn)
            count = sum(drawn)
        found[COLORS] = COLOR_NUMBERS * count, f"Red, green and blue that the distraction gives to {whose}."
    if preset.background is not None:
        text = "Video of the distraction and frame of it that are shown, by their numbers from 0."
        found[BACKGROUND] = FRAME_NUMBERS, text
    return found
