"""The test scenes under lamps of every kind, and before a sky of six textures."""

from tests.support.scene_builder import Lamp, Look, Piece, Point, Shot, Stage, ground, pose, staged
from tests.support.scenes_daylight import CORAL, CREAM, NAVY, OCHRE, PLUM, ROSE, SAGE, SAND, SKY, TEAL
from worldloom.kernels.tables import DIRECTIONAL, HEADLIGHT, SPOT
from worldloom.render.views import look_at

POLISHED, GLOSSY, SATIN, GLOWING = (0.0, 0.9, 96.0), (0.0, 0.6, 24.0), (0.0, 0.4, 4.0), (0.6, 0.3, 10.0)
EVENING = "evening 0"


@staged
def lamplit_table() -> Stage:
    """Spots with and without a cone, soft and hard, fading with distance: on smooth, flat and textured things."""
    lamps = (
        Lamp(SPOT, (-1.4, -1.2, 2.6), (0.55, 0.5, -1.0), "0c0a08", "d9b27a", "cccccc", (1, 0, 0), 38.0, 8.0),
        Lamp(SPOT, (1.9, 0.3, 1.3), (-1, 0.1, -0.45), diffuse="5f86c9", specular="9fb8e0", cone_degrees=55.0),
        Lamp(
            SPOT, (0.2, 1.9, 1.5), ambient="1c1420", diffuse="e07a5c", specular="ff9a80", attenuation=(0.3, 0.2, 0.45)
        ),
    )
    look = Look(horizon="20242e", zenith="141722", fog_range=(6.0, 30.0), lamps=lamps)
    pieces = [
        ground(CREAM, 1, 40.0, "checker", 1.6)._replace(shine=SATIN),
        Piece("sphere", pose((-0.75, 0.1, 0.5), 1.0), CORAL, 2, shine=POLISHED),
        Piece("sphere", pose((0.25, -0.8, 0.25), (0.5, 0.7, 0.5), yaw=30), "ffffff", 3, "wood", (2, 1), SATIN),
        Piece("box", pose((0.55, 0.55, 0.55), (0.7, 0.7, 1.1), yaw=25), TEAL, 4, shine=GLOSSY),
        Piece("box", pose((1.25, -0.45, 0.25), (0.5, 0.5, 0.5), yaw=-20), "ffffff", 5, "brick", (1, 1), GLOSSY),
        Piece("long_capsule", pose((-0.5, 1.25, 0.2), 0.4, yaw=15, pitch=90), OCHRE, 6, shine=GLOSSY),
        Piece("cylinder", pose((-1.5, -0.6, 0.3), (0.5, 0.5, 0.6)), SAGE, 7, shine=SATIN),
        Piece("torus", pose((0.55, 0.55, 1.35), 0.7, yaw=20, roll=70), ROSE, 8, shine=(0.0, 0.5, 0.0)),
    ]
    ahead = Shot(look_at((0.4, -4.4, 2.3), (0.0, 0.1, 0.4)), fov_degrees=42)
    return Stage([(look, pieces)], [ahead])


@staged
def head_lamp() -> Stage:
    """A lamp at the head, two suns, and things that glow: in perspective, and from above at an angle without it."""
    lamps = (
        Lamp(HEADLIGHT, ambient="1a1a1a", diffuse="666666", specular="808080"),
        Lamp(DIRECTIONAL, (9, 9, 9), (0.4, 0.8, -1.5), "0a0a10", "7f7766", "ffeecc"),
        Lamp(DIRECTIONAL, towards=(-3, 1, -0.6), diffuse="24405c", specular="4060a0"),
    )
    look = Look(horizon=SKY, zenith=NAVY, lamps=lamps)
    pieces = [ground(SAND, 1, 30.0, "checker", 3.0)]
    shines: tuple[Point, ...] = (POLISHED, GLOSSY, GLOWING, (0.0, 0.0, 0.0), SATIN)
    colors = (CORAL, TEAL, OCHRE, PLUM, SAGE)
    meshes = ("sphere", "box", "capsule", "cylinder", "roof")
    for number, (mesh, color, shine) in enumerate(zip(meshes, colors, shines, strict=True)):
        at = (1.15 * (number - 2), 0.5 - 0.6 * (number % 2), 0.55)
        texture = "noise" if mesh == "capsule" else None
        size = (0.8, 0.8, 0.8) if mesh != "capsule" else (0.6, 0.6, 0.6)
        pieces.append(Piece(mesh, pose(at, size, 20.0 * number, 10.0), color, 2 + number, texture, (1, 1), shine))
    pieces.append(Piece("ribbon", pose((0.2, 1.6, 0.9), (1.2, 1.2, 1.4)), ROSE, 8, shine=GLOSSY))
    ahead = Shot(look_at((-0.7, -4.6, 1.9), (0.0, 0.2, 0.5)), fov_degrees=50)
    slanted = Shot(look_at((1.0, -5.0, 5.0), (0.0, 0.3, 0.4)), orthographic_height=4.4, near=0.5, far=30.0)
    return Stage([(look, pieces)], [ahead, slanted])


@staged
def sky_box() -> Stage:
    """A sky of six textures: a tilted camera that sees several of them and where they meet, up, down and flat on."""
    sun = Lamp(DIRECTIONAL, towards=(0.6, 0.8, -1.0), ambient="504858", diffuse="c9a284", specular="ffffff")
    look = Look(fog="7f6a80", fog_range=(2.0, 9.0), lamps=(sun,), sky=EVENING)
    pieces = []
    for number, (x, y) in enumerate(((2.2, 0.4), (1.2, 2.0), (-0.9, 2.4), (-2.3, 0.5), (-1.5, -1.9), (1.4, -2.0))):
        color = (CORAL, TEAL, OCHRE, PLUM, SAGE, NAVY)[number]
        mesh = ("sphere", "box", "torus")[number % 3]
        for lift in (-1.6, 0.1, 1.7):
            at = (x * (1.3 - 0.2 * abs(lift)), y * (1.3 - 0.2 * abs(lift)), lift)
            pieces.append(Piece(mesh, pose(at, 0.7, 25 * number, 30), color, 1 + number, shine=GLOSSY))
    noon = Look(sky=EVENING)
    tilted = Shot(look_at((0, 0, 0), (1.0, 1.2, 0.7), up=(0.5, 0, 1)), fov_degrees=120)
    down = Shot(look_at((0, 0, 0), (-0.5, -0.6, -0.7), up=(0.2, 0.1, 1)), fov_degrees=110)
    flat = Shot(look_at((-1.5, -5, -1), (0, 0, 0)), orthographic_height=6.0, near=0.5, far=15.0, lane=1)
    picture = look._replace(is_one_sky=True)
    inside = tilted._replace(lane=2)
    board = flat._replace(lane=2)
    screen = [tilted._replace(lane=3), flat._replace(lane=3), tilted._replace(lane=4)]
    lanes = [(look, pieces), (noon, pieces), (picture, pieces), (look._replace(is_screen_sky=True), pieces)]
    lanes.append((look._replace(is_tinted_sky=True), pieces))
    return Stage(lanes, [tilted, down, flat, inside, board, *screen])
