"""Published benchmarks of visual distraction by name: their axes, ranges and laws. docs/distractions.md cites them.

The Distracting Control Suite moves the camera, colours materials and replaces the sky by videos. DMControl-GB either
draws the colours of floor, body and sky, or replaces the sky, and the floor, by videos that are fixed to the screen.
"""

import math
from dataclasses import dataclass

from worldloom.worlds.settings import Setting

DISTRACTION, DISTRACTION_AXES = "distraction", "distraction_axes"
"""Names of the settings that choose a benchmark and a part of it."""
NONE, ALL = "none", "all"
CAMERA, COLORS, BACKGROUND = "camera", "colors", "background"
"""Axes of a distraction."""


@dataclass(frozen=True)
class CameraRange:
    """Range and motion of a camera around the origin of its sphere; see `camera_walks.py` for the laws."""

    angle: float = 0.0
    """Largest change of bearing, of angle from the zenith and of roll, in radians."""
    nearer: float = 0.0
    """Part of its distance by which it comes nearer at most."""
    farther: float = 0.0
    speed: float = 0.0
    """Largest way in a step, in metres at distance 4."""
    speed_deviation: float = 0.0
    roll_speed: float = 0.0
    """Largest roll in a step, in radians."""
    roll_deviation: float = 0.0


@dataclass(frozen=True)
class ColorRange:
    """Colours of materials: uniform within `most` of their own, or normally distributed around published ones."""

    most: float = 0.0
    deviation: float = 0.0
    """Standard deviation of what is added in a step."""
    normal: float = 0.0
    """Standard deviation of the colours of body, floor and sky; 0: `most` counts."""


@dataclass(frozen=True)
class Backdrop:
    """Pictures and videos behind everything."""

    videos: int = 0
    """Number of the first videos of a set that are used; 0: all."""
    plays: bool = False
    """True if a video goes on; else one frame of it stays."""
    fills_screen: bool = False
    """True if it is fixed to the screen, and goes on once for each action; else it is a sky, seen by direction."""
    hides_floor: bool = False


@dataclass(frozen=True)
class Preset:
    """One benchmark at one level."""

    name: str
    camera: CameraRange | None = None
    colors: ColorRange | None = None
    background: Backdrop | None = None

    @property
    def axes(self) -> tuple[str, ...]:
        """Names of what it varies."""
        found = {CAMERA: self.camera, COLORS: self.colors, BACKGROUND: self.background}
        return tuple(name for name, what in found.items() if what is not None)

    def only(self, axis: str) -> "Preset":
        """Return the preset with one of its axes, or all of them."""
        return Preset(
            self.name,
            self.camera if axis in (ALL, CAMERA) else None,
            self.colors if axis in (ALL, COLORS) else None,
            self.background if axis in (ALL, BACKGROUND) else None,
        )


def distracting_control(name: str, scale: float, videos: int, is_dynamic: bool) -> Preset:
    """Return a level of the Distracting Control Suite, whose ranges are all proportional to one scale."""
    moving = scale if is_dynamic else 0.0
    camera = CameraRange(
        angle=math.pi / 2 * scale,
        nearer=0.5 * scale,
        farther=1.5 * scale,
        speed=0.4 * moving,
        speed_deviation=0.1 * moving,
        roll_speed=math.pi / 50 * moving,
        roll_deviation=math.pi / 300 * moving,
    )
    return Preset(name, camera, ColorRange(scale, 0.03 * moving), Backdrop(videos, is_dynamic))


_LEVELS = {"easy": (0.1, 4), "medium": (0.2, 8), "hard": (0.3, 0)}
_PRESETS = (
    *(distracting_control(f"dcs-{level}", *of_level, False) for level, of_level in _LEVELS.items()),
    *(distracting_control(f"dcs-{level}-dynamic", *of_level, True) for level, of_level in _LEVELS.items()),
    Preset("gb-color-easy", colors=ColorRange(normal=0.1)),
    Preset("gb-color-hard", colors=ColorRange(normal=0.2)),
    Preset("gb-video-easy", background=Backdrop(10, plays=True, fills_screen=True)),
    Preset("gb-video-hard", background=Backdrop(100, plays=True, fills_screen=True, hides_floor=True)),
)
PRESETS = {preset.name: preset for preset in _PRESETS}

DISTRACTION_SETTINGS = (
    Setting(
        DISTRACTION,
        NONE,
        f"Published benchmark of visual distraction, the Distracting Control Suite (dcs) or DMControl-GB (gb): "
        f"{', '.join(PRESETS)}. Videos are those of `background_set`; the built-in ones are made by code, not those of "
        "the benchmarks.",
        choices=(NONE, *PRESETS),
    ),
    Setting(
        DISTRACTION_AXES,
        ALL,
        "Part of the benchmark that is used: all of it, or camera, colours or background alone.",
        choices=(ALL, CAMERA, COLORS, BACKGROUND),
    ),
)
"""Settings of families that offer the benchmarks."""
