"""Builders of test scenes: instances, light and sky of lanes, lamps, views and shadows."""

from collections.abc import Callable, Sequence
from functools import cache
from typing import NamedTuple, Protocol, TypeAlias

import numpy as np

from tests.support.scene_assets import evening, in_facets, ribbon, roof, torus
from worldloom.kernels.outputs import OUTPUT_NAMES, output_bits
from worldloom.kernels.tables import (
    CASTS,
    CASTS_NOTHING,
    F32,
    LAMP_AMBIENT,
    LAMP_ATTENUATION,
    LAMP_CONE,
    LAMP_DIFFUSE,
    LAMP_DIRECTION,
    LAMP_EXPONENT,
    LAMP_KIND,
    LAMP_POSITION,
    LAMP_SHADOW,
    LAMP_SIZE,
    LAMP_SPECULAR,
    NO_TEXTURE,
    ONE_SKY,
    SCREEN_SKY,
    STANDS_FOR_SHADOW,
    TINTED_SKY,
    ViewTable,
)
from worldloom.render.assets import AssetLibrary
from worldloom.render.meshes import capsule, cylinder, sphere
from worldloom.render.scene import Scene
from worldloom.render.views import make_views

Point: TypeAlias = tuple[float, float, float]
Color: TypeAlias = tuple[float, float, float] | str

ALL_OUTPUTS = output_bits(OUTPUT_NAMES)
FACETED = ("box", "plane", "quad", "roof")
"""Meshes whose normals are those of their triangles."""


class Piece(NamedTuple):
    """An instance row."""

    mesh: str
    pose: F32
    color: Color
    label: int
    texture: str | None = None
    uv_scale: tuple[float, float] = (1.0, 1.0)
    shine: Point = (0.0, 0.0, 0.0)
    shadow: int = CASTS
    alpha: float = 1.0


class Lamp(NamedTuple):
    """A lamp of a lane: directional, a spot (in all directions unless it has a cone), or a headlight."""

    kind: int
    at: Point = (0.0, 0.0, 0.0)
    towards: Point = (0.0, 0.0, -1.0)
    ambient: Color = (0.0, 0.0, 0.0)
    diffuse: Color = (0.0, 0.0, 0.0)
    specular: Color = (0.0, 0.0, 0.0)
    attenuation: Point = (1.0, 0.0, 0.0)
    cone_degrees: float = 180.0
    exponent: float = 0.0
    reach: float = 3.0
    """Half the side of the square in which it casts shadows."""

    def numbers(self) -> F32:
        """Return its row of `LaneTable.lamps`."""
        numbers = np.zeros(LAMP_SIZE, np.float32)
        numbers[LAMP_KIND], numbers[LAMP_EXPONENT], numbers[LAMP_SHADOW] = self.kind, self.exponent, self.reach
        numbers[LAMP_CONE] = np.cos(np.radians(self.cone_degrees))
        for first, three in (
            (LAMP_POSITION, self.at),
            (LAMP_DIRECTION, self.towards),
            (LAMP_AMBIENT, rgb(self.ambient)),
            (LAMP_DIFFUSE, rgb(self.diffuse)),
            (LAMP_SPECULAR, rgb(self.specular)),
            (LAMP_ATTENUATION, self.attenuation),
        ):
            numbers[first : first + 3] = three
        return numbers


class Look(NamedTuple):
    """Light, sky and fog of a lane; fog has the horizon's colour unless given; `sky` names the first texture of six."""

    sun_at: Point = (0.45, -0.6, 0.8)
    sun: Color = (0.62, 0.58, 0.50)
    ambient: Color = (0.46, 0.50, 0.56)
    ambient_ground: Color = (0.30, 0.28, 0.27)
    horizon: Color = "dfe9ec"
    zenith: Color = "7fb0d6"
    fog: Color | None = None
    fog_range: tuple[float, float] = (0.0, 0.0)
    lamps: Sequence[Lamp] = ()
    sky: str | None = None
    is_one_sky: bool = False
    """That texture is on all sides."""
    is_screen_sky: bool = False
    """That texture fills the frame."""
    is_tinted_sky: bool = False
    """Its textures are multiplied by the colour of the zenith."""


class Shot(NamedTuple):
    """A view."""

    camera: F32
    fov_degrees: float = 40.0
    orthographic_height: float = np.nan
    near: float = 0.05
    far: float = 100.0
    lane: int = 0


class Stage(NamedTuple):
    """Lanes, and views of them."""

    lanes: Sequence[tuple[Look, Sequence[Piece]]]
    shots: Sequence[Shot]


class SceneFunction(Protocol):
    """A function that builds a test scene and its views."""

    def __call__(
        self, width: int = 96, height: int = 96, samples: int = 1, outputs: int = ALL_OUTPUTS
    ) -> tuple[Scene, ViewTable]: ...


SCENES: dict[str, SceneFunction] = {}
"""All test scenes by name."""


def staged(function: Callable[[], Stage]) -> SceneFunction:
    """Register a function that describes a stage; return one that builds it."""

    def make(
        width: int = 96, height: int = 96, samples: int = 1, outputs: int = ALL_OUTPUTS
    ) -> tuple[Scene, ViewTable]:
        stage = function()
        shots = stage.shots
        views = make_views(
            [shot.lane for shot in shots],
            camera=[shot.camera for shot in shots],
            fov_degrees=[shot.fov_degrees for shot in shots],
            orthographic_height=[shot.orthographic_height for shot in shots],
            near=[shot.near for shot in shots],
            far=[shot.far for shot in shots],
            width=width,
            height=height,
            samples=samples,
            outputs=outputs,
        )
        return build(*stage.lanes), views

    SCENES[function.__name__] = make
    return make


def build(*lanes: tuple[Look, Sequence[Piece]]) -> Scene:
    """Return a scene with these lanes."""
    library = assets()
    scene = Scene(library)
    for look, pieces in lanes:
        (lane,) = scene.add(1, len(pieces))
        table, instances = scene.lanes, scene.instances
        table.light_direction[lane] = -np.asarray(look.sun_at)
        table.light_color[lane], table.ambient[lane] = rgb(look.sun), rgb(look.ambient)
        table.ambient_ground[lane] = rgb(look.ambient_ground)
        table.sky_horizon[lane], table.sky_zenith[lane] = rgb(look.horizon), rgb(look.zenith)
        table.fog_color[lane], table.fog_range[lane] = rgb(look.fog or look.horizon), look.fog_range
        table.lamp_count[lane] = len(look.lamps)
        for number, lamp in enumerate(look.lamps):
            table.lamps[lane, number] = lamp.numbers()
        table.sky_textures[lane] = NO_TEXTURE if look.sky is None else library.texture(look.sky)
        if look.is_one_sky:
            table.sky_textures[lane] = ONE_SKY - table.sky_textures[lane]
        elif look.is_screen_sky:
            table.sky_textures[lane] = SCREEN_SKY - table.sky_textures[lane]
        elif look.is_tinted_sky:
            table.sky_textures[lane] += TINTED_SKY
        for row, piece in zip(scene.rows(lane)[0], pieces, strict=True):
            instances.mesh[row] = library.mesh(piece.mesh)
            instances.pose[row], instances.color[row], instances.label[row] = piece.pose, rgb(piece.color), piece.label
            instances.texture[row] = NO_TEXTURE if piece.texture is None else library.texture(piece.texture)
            instances.uv_scale[row], instances.shine[row] = piece.uv_scale, piece.shine
            instances.shadow[row] = piece.shadow
            instances.alpha[row] = piece.alpha
    return scene


def rgb(color: Color) -> tuple[float, float, float]:
    """Return a colour as three numbers in 0..1; a string has two hexadecimal digits for each."""
    if isinstance(color, str):
        return int(color[0:2], 16) / 255, int(color[2:4], 16) / 255, int(color[4:6], 16) / 255
    return color


def shaded(color: Color, factor: float) -> Color:
    """Return the same colour, darker or lighter."""
    red, green, blue = rgb(color)
    return red * factor, green * factor, blue * factor


def pose(at: Point, size: float | Point = 1.0, yaw: float = 0.0, pitch: float = 0.0, roll: float = 0.0) -> F32:
    """Return a pose: scale, then rotation in degrees around x (roll), y (pitch) and z (yaw), then position."""
    (cy, cp, cr), (sy, sp, sr) = np.cos(np.radians([yaw, pitch, roll])), np.sin(np.radians([yaw, pitch, roll]))
    around_x = np.array([[1, 0, 0], [0, cr, -sr], [0, sr, cr]])
    around_y = np.array([[cp, 0, sp], [0, 1, 0], [-sp, 0, cp]])
    around_z = np.array([[cy, -sy, 0], [sy, cy, 0], [0, 0, 1]])
    turned = around_z @ around_y @ around_x @ np.diag(np.broadcast_to(np.asarray(size, np.float64), 3))
    return np.column_stack([turned, at]).astype(np.float32)


def ground(color: Color, label: int, size: float = 60.0, texture: str | None = None, tile: float = 2.0) -> Piece:
    """Return a square floor at z = 0; its texture repeats every `tile` metres."""
    repeats = size / tile
    floor = pose((0, 0, 0), (size, size, 1))
    return Piece("plane", floor, color, label, texture, (repeats, repeats), shadow=CASTS_NOTHING)


def shadow(piece: Piece, look: Look, floor: Color, label: int, height: float = 0.004) -> Piece:
    """The piece pressed flat onto the floor along the light: a pose without volume.

    Its colour is what the floor has left where the sun does not reach. Round shapes are pressed with a normal for each
    facet: upper and lower side lie in one plane, and a smooth normal may disagree with its triangle on which it is.
    """
    mesh = piece.mesh if piece.mesh in FACETED else f"{piece.mesh} in facets"
    sun = np.asarray(look.sun_at) / np.linalg.norm(look.sun_at)
    pressed = np.array([[1, 0, -sun[0] / sun[2]], [0, 1, -sun[1] / sun[2]], [0, 0, 0]]) @ piece.pose
    pressed[2, 3] = height
    lit = np.asarray(rgb(look.ambient)) + np.asarray(rgb(look.sun)) * sun[2]
    red, green, blue = np.asarray(rgb(floor)) * rgb(look.ambient) / lit
    return Piece(mesh, pressed.astype(np.float32), (red, green, blue), label, shadow=STANDS_FOR_SHADOW)


@cache
def assets() -> AssetLibrary:
    """Return the asset library that all test scenes share."""
    library = AssetLibrary()
    long_capsule = capsule(slices=24, stacks=6, half_length=1.5)
    for name, mesh in (("torus", torus()), ("ribbon", ribbon()), ("roof", roof()), ("long_capsule", long_capsule)):
        library.add_mesh(name, mesh)
    for name, mesh in (
        ("sphere", sphere(24, 12)),
        ("cylinder", cylinder(24)),
        ("capsule", capsule(24, 6)),
        ("long_capsule", long_capsule),
        ("torus", torus(32, 14)),
        ("ribbon", ribbon()),
    ):
        library.add_mesh(f"{name} in facets", in_facets(mesh))
    for number in range(6):
        library.add_texture(f"evening {number}", evening(number, library.texture_size))
    return library
