"""The test scenes under one sun, and under no lamps."""

import numpy as np

from tests.support.scene_builder import Color, Look, Piece, Shot, Stage, ground, pose, rgb, shaded, shadow, staged
from worldloom.render.views import look_at

CREAM, SAND, OCHRE, CORAL, BRICK = "f4ead7", "e6cfa5", "e9b44c", "e2725b", "b5533c"
SAGE, MOSS, TEAL, SKY, NAVY, PLUM, ROSE = "9cb89a", "5f7f5b", "2a8c8c", "8fc1d4", "2c3e5c", "7a4b6b", "e8a6a1"


@staged
def grazing_floor() -> Stage:
    """A chequered floor to the horizon, seen from low above it: minification, and depth over five powers of two."""
    look = Look(
        sun_at=(-0.8, -0.25, 0.55),
        sun=(0.80, 0.58, 0.38),
        ambient=(0.44, 0.43, 0.52),
        ambient_ground=(0.40, 0.32, 0.30),
        horizon="fcd9ae",
        zenith="5b7db1",
        fog_range=(14.0, 60.0),
    )
    pieces = [ground(CREAM, 1, 120.0, "checker", 2.0)]
    spots = ((-1.0, 4.6, 0.9, CORAL), (0.9, 6.2, 1.3, TEAL), (-3.3, 10.0, 1.8, OCHRE), (3.9, 12.0, 2.2, ROSE))
    for number, (x, y, size, color) in enumerate(spots):
        pieces.append(Piece("sphere", pose((x, y, size / 2), size), color, 2 + number))
    pieces += [shadow(piece, look, shaded(CREAM, 0.7), 1) for piece in pieces[1:]]
    return Stage([(look, pieces)], [Shot(look_at((0, 0, 0.75), (0.1, 8, 0.65)), fov_degrees=50)])


@staged
def near_boxes() -> Stage:
    """Portals one behind the other, seen from inside one: boxes before, beside, around and behind the camera."""
    look = Look(sun_at=(0.5, -0.5, 0.9), horizon="ffe9cf", zenith="f6b48f", fog_range=(5.0, 16.0), fog="ffe9cf")
    colors = [CORAL, OCHRE, CREAM, SAGE, TEAL, NAVY]
    pieces = [ground(SAND, 1, 40.0)]
    for number in range(12):
        y, color, tilt = 1.3 * (number - 2) + 0.35, colors[number % 6], 7.0 * (number - 2)
        for x, z, size in ((-1.2, 1.0, (0.3, 0.5, 2.0)), (1.2, 1.0, (0.3, 0.5, 2.0)), (0.0, 2.15, (2.7, 0.5, 0.3))):
            pieces.append(Piece("box", pose((x, y, z), size, yaw=tilt * (z < 2) * 0.25), color, 2 + number))
    pieces.append(Piece("box", pose((0.42, 0.24, 0.72), (0.5, 0.5, 0.08), yaw=25, roll=12), PLUM, 20, "wood"))
    pieces.append(Piece("box", pose((-0.35, 0.1, 1.45), (0.08, 1.2, 0.08), yaw=-8, pitch=20), ROSE, 21))
    ahead = Shot(look_at((0.0, 0.0, 1.05), (0.08, 4.0, 1.0)), fov_degrees=75, near=0.2)
    down = Shot(look_at((0.9, 0.3, 1.6), (-0.6, 3.0, 0.6)), fov_degrees=75)
    return Stage([(look, pieces)], [ahead, down])


@staged
def spheres() -> Stage:
    """Smooth balls of many sizes, with shadows: interpolated normals, and poses without volume."""
    look = Look(sun_at=(-0.6, -0.5, 0.9), sun=(0.66, 0.62, 0.55), ambient=(0.42, 0.45, 0.52), horizon=CREAM, zenith=SKY)
    floor = "efe2c9"
    balls = (
        (0.0, 0.2, 1.5, CORAL),
        (-1.25, -0.35, 0.9, TEAL),
        (1.2, -0.3, 1.0, OCHRE),
        (-0.45, -1.05, 0.5, CREAM),
        (0.5, -1.1, 0.42, NAVY),
        (-1.75, 1.1, 1.1, ROSE),
        (1.75, 1.3, 1.3, SAGE),
        (1.55, -1.15, 0.3, PLUM),
        (-1.35, -1.2, 0.28, OCHRE),
    )
    pieces = [
        Piece("sphere", pose((x, y, d / 2), d, yaw=20 * k), color, 2 + k) for k, (x, y, d, color) in enumerate(balls)
    ]
    pieces = [ground(floor, 1, 80.0), *pieces, *(shadow(piece, look, floor, 1) for piece in pieces)]
    return Stage([(look, pieces)], [Shot(look_at((0.3, -5.2, 2.3), (0.0, 0.1, 0.5)), fov_degrees=38)])


@staged
def blocks_2d() -> Stage:
    """A game board from straight above, twelve squares high: blocks on the pixel grid where a square is whole pixels,
    and between them some that are turned or lie between pixels."""
    look = Look(sun_at=(0.0, 0.0, 1.0), sun=(0.4, 0.4, 0.4), ambient=(0.6, 0.6, 0.6), horizon="223047", zenith="34506b")
    board = (
        "............",
        ".TT......GG.",
        ".TT.....GG..",
        "............",
        "...O........",
        "...OOO......",
        "............",
        "P.........C.",
        "PP.NNNN..CCC",
        "PRRRR.OSS.TT",
        "GGRNNNOSSCTT",
        "GGCCCCOOPPPP",
    )
    colors = {"T": TEAL, "G": SAGE, "O": OCHRE, "P": PLUM, "N": SKY, "C": CORAL, "R": ROSE, "S": CREAM}
    pieces = []
    for line, text in enumerate(board):
        for column, key in enumerate(text):
            if key != ".":
                at = (column - 5.5, 5.5 - line, 0.0)
                pieces.append(Piece("plane", pose(at), shaded(colors[key], 0.86), 1 + "TGOPNCRS".index(key)))
                inner = pose((at[0], at[1], 0.1), (0.75, 0.75, 1.0))
                pieces.append(Piece("plane", inner, colors[key], 1 + "TGOPNCRS".index(key)))
    pieces.append(Piece("plane", pose((0.31, 3.07, 0.2), (1.3, 1.3, 1), yaw=30), CORAL, 10, "noise"))
    pieces.append(Piece("sphere", pose((3.37, 0.23, 0.5), 1.45), OCHRE, 11))
    pieces.append(Piece("plane", pose((-3.96, 1.04, 0.2), (2.21, 0.33, 1)), SKY, 12))
    above = look_at((0, 0, 10), (0, 0, 0), up=(0, 1, 0))
    return Stage([(look, pieces)], [Shot(above, orthographic_height=12.0, near=0.5, far=20.0)])


@staged
def misty_wood() -> Stage:
    """Trees that fade into the morning: fog from clear to nothing."""
    look = Look(
        sun_at=(0.8, -0.3, 0.6),
        sun=(0.66, 0.52, 0.34),
        ambient=(0.44, 0.50, 0.54),
        horizon="f1e6cf",
        zenith="9fc3d3",
        fog_range=(3.0, 26.0),
    )
    pieces = [ground("8a9a6c", 1, 120.0, "noise", 7.0)]
    rng = np.random.default_rng(5)
    for number, y in enumerate(np.linspace(5.0, 25, 24)):
        x = (-1) ** number * (1.0 + rng.uniform(0.0, 0.24 * y))
        tall = rng.uniform(2.4, 4.2)
        trunk, crown = shaded("7b5a43", rng.uniform(0.8, 1.1)), shaded(MOSS, rng.uniform(0.85, 1.25))
        pieces.append(Piece("cylinder", pose((x, y, tall / 4), (0.28, 0.28, tall / 2)), trunk, 2, "wood", (1, 3)))
        for level, (lift, wide) in enumerate(((0.52, 1.5), (0.72, 1.15), (0.9, 0.75))):
            size = wide * tall / 3
            at = (x + rng.uniform(-0.1, 0.1), y, tall * lift)
            pieces.append(Piece("sphere", pose(at, (size, size, size * 0.85)), shaded(crown, 1 + 0.12 * level), 3))
    pieces.append(Piece("sphere", pose((0.35, 5.2, 0.22), 0.44), CORAL, 4))
    return Stage([(look, pieces)], [Shot(look_at((0, 0, 1.25), (0, 8, 1.35)), fov_degrees=48)])


@staged
def turned_wood() -> Stage:
    """Wooden toys: cylinders and capsules standing, lying and leaning, textured around and on their flat ends."""
    look = Look(
        sun_at=(0.8, -0.6, 1.2),
        sun=(0.68, 0.62, 0.52),
        ambient=(0.46, 0.48, 0.53),
        ambient_ground=(0.36, 0.34, 0.32),
        horizon="eef0ea",
        zenith="cfdcdc",
        fog_range=(6.0, 24.0),
    )
    oak, walnut, red, green = "ffffff", "b39a84", "ff9c86", "b9d6a8"
    floor = "dfe3dd"
    pieces = [
        Piece("cylinder", pose((-1.05, 0.35, 0.6), (0.8, 0.8, 1.2)), oak, 2, "wood", (2, 1)),
        Piece("cylinder", pose((-1.05, 0.35, 1.4), (0.6, 0.6, 0.4)), red, 3, "wood", (2, 0.5)),
        Piece("capsule", pose((1.15, 0.45, 0.9), (0.9, 0.9, 0.9)), walnut, 4, "wood", (2, 2)),
        Piece("cylinder", pose((0.1, 0.95, 0.45), (0.9, 0.9, 0.9), yaw=35, pitch=90), green, 5, "wood", (2, 1)),
        Piece("long_capsule", pose((0.05, -0.45, 0.21), 0.42, yaw=-18, pitch=90), red, 6, "wood", (1, 3)),
        Piece("long_capsule", pose((0.2, 0.75, 1.05), 0.26, yaw=40, pitch=85), oak, 7, "wood", (1, 3)),
        Piece("cylinder", pose((0.98, -0.75, 0.12), (0.7, 0.7, 0.24), yaw=20), oak, 8, "wood", (3, 0.5)),
        Piece("cylinder", pose((-0.85, -0.75, 0.3), (0.6, 0.6, 0.14), yaw=60, pitch=84), green, 9, "wood", (2, 0.5)),
    ]
    pieces = [ground(floor, 1, 60.0), *pieces, *(shadow(piece, look, floor, 1) for piece in pieces)]
    return Stage([(look, pieces)], [Shot(look_at((0.5, -4.3, 2.1), (0.06, 0.15, 0.58)), fov_degrees=36)])


@staged
def brick_corridor() -> Stage:
    """A maze as an agent sees it: brick walls past the frame's borders, a chequered floor, a cloudy ceiling."""
    look = Look(
        sun_at=(0.35, -0.45, 0.8),
        horizon="20242e",
        zenith="20242e",
        fog="3a3540",
        fog_range=(5.0, 24.0),
        ambient_ground=(0.62, 0.58, 0.52),
    )
    pieces = [
        Piece("plane", pose((0, 8, 0), (4, 20, 1)), "e8ded0", 1, "checker", (2, 10)),
        Piece("plane", pose((0, 8, 2), (4, 20, -1)), "cfd8e2", 2, "noise", (1, 5)),
    ]
    walls = ((-1.2, 3.0, 12.0, 90), (1.2, 1.0, 8.0, -90), (1.2, 9.4, 5.0, -90), (0.0, 12.0, 4.0, 0))
    for x, y, length, turn in walls:
        face = pose((x, y, 1.0), (length, 1.0, 2.0), yaw=turn)
        pieces.append(Piece("quad", face, "fff4ea", 3, "brick", (length / 2, 1)))
    pieces.append(Piece("quad", pose((3.0, 6.0, 1.0), (4, 1, 2), yaw=-90), "fff4ea", 3, "brick", (2, 1)))
    pieces.append(Piece("box", pose((1.05, 4.4, 1.0), (0.34, 0.34, 2.0)), "d8d3cb", 4, "noise"))
    pieces.append(Piece("box", pose((1.05, 7.4, 1.0), (0.34, 0.34, 2.0)), "d8d3cb", 4, "noise"))
    pieces.append(Piece("box", pose((0.0, 11.97, 0.8), (1.0, 0.1, 1.6)), TEAL, 5, "wood"))
    pieces.append(Piece("sphere", pose((-0.45, 4.2, 0.35), 0.7), CORAL, 6))
    pieces.append(Piece("box", pose((0.35, 6.3, 0.3), 0.6, yaw=30), OCHRE, 7, "wood"))
    return Stage([(look, pieces)], [Shot(look_at((-0.15, 0.2, 1.1), (0.1, 6, 0.92)), fov_degrees=70)])


@staged
def mirror_lake() -> Stage:
    """Huts on the shore and their mirror images in still water: poses that turn triangles around."""
    look = Look(
        sun_at=(-0.8, -0.9, 0.7),
        sun=(0.80, 0.60, 0.44),
        ambient=(0.48, 0.47, 0.58),
        ambient_ground=(0.40, 0.34, 0.36),
        horizon="f9d3b4",
        zenith="6f7fae",
    )
    above = []
    huts = ((-2.1, 0.4, 1.4, 1.1, 14, CORAL), (-0.3, 0.9, 1.3, 1.9, -8, SAGE), (1.55, 0.2, 1.6, 1.0, -20, TEAL))
    for x, y, wide, tall, yaw, color in huts:
        above.append(Piece("box", pose((x, y, tall / 2 + 0.1), (wide, 1.2, tall), yaw), color, 2))
        above.append(Piece("roof", pose((x, y, tall + 0.1), (wide * 1.2, 1.4, 0.9), yaw), NAVY, 3))
        window = pose((x, y, tall * 0.55 + 0.1), (wide * 0.3, 1.26, tall * 0.4), yaw)
        above.append(Piece("box", window, "fff0a8", 4))
    above.append(Piece("box", pose((0.0, 0.5, 0.05), (6.6, 2.4, 0.1)), "d9b48a", 5, "wood", (4, 1)))
    above.append(Piece("cylinder", pose((2.9, 1.2, 0.9), (0.14, 0.14, 1.8)), "7b5a43", 6))
    above.append(Piece("sphere", pose((2.9, 1.2, 1.9), (1.1, 1.1, 1.4)), "7c9c6b", 7))
    above.append(Piece("long_capsule", pose((-1.5, -2.2, 0.04), 0.22, yaw=12, pitch=90), OCHRE, 8, "wood", (1, 2)))
    mirror = np.diag(np.array([1, 1, -1], np.float32))
    below = [
        Piece(
            piece.mesh, mirror @ piece.pose, _tinted(piece.color, 0.62), piece.label + 8, piece.texture, piece.uv_scale
        )
        for piece in above
    ]
    return Stage([(look, [*above, *below])], [Shot(look_at((0.3, -8.6, 1.5), (0.05, 0.4, 0.25)), fov_degrees=37)])


def _tinted(color: Color, part: float) -> Color:
    red, green, blue = rgb(shaded(color, part))
    return red + 0.10, green + 0.10, blue + 0.16


@staged
def shadow_play() -> Stage:
    """A low sun behind leaning slabs: long shadows, which are boxes without volume."""
    look = Look(
        sun_at=(-1.0, -0.3, 0.75),
        sun=(0.98, 0.76, 0.50),
        ambient=(0.42, 0.44, 0.58),
        ambient_ground=(0.52, 0.40, 0.36),
        horizon="ffe0b5",
        zenith="e79a7b",
    )
    floor = "f0dcc0"
    slabs = (
        ((-1.5, 1.2, 0.9), (0.35, 0.35, 1.8), 10, 0, TEAL),
        ((-0.6, 1.5, 0.65), (0.5, 0.35, 1.3), 35, 0, CORAL),
        ((0.5, 1.1, 1.1), (0.3, 0.5, 2.2), -15, 0, NAVY),
        ((1.3, 0.4, 0.55), (0.24, 0.24, 1.25), 20, 24, OCHRE),
        ((-0.25, 0.2, 0.25), (0.5, 0.5, 0.5), 40, 0, CREAM),
        ((0.2, 0.0, 1.5), (0.42, 0.42, 0.42), 30, 35, ROSE),
        ((1.9, 1.6, 0.4), (0.8, 0.3, 0.8), -30, 0, PLUM),
    )
    pieces = [
        Piece("box", pose(at, size, yaw, lean), color, 2 + k) for k, (at, size, yaw, lean, color) in enumerate(slabs)
    ]
    pieces += [Piece("sphere", pose((-1.25, -0.1, 0.3), 0.6), SAGE, 9)]
    pieces = [ground(floor, 1, 80.0), *pieces, *(shadow(piece, look, floor, 20) for piece in pieces)]
    return Stage([(look, pieces)], [Shot(look_at((-0.3, -4.6, 2.3), (0.25, 0.4, 0.62)), fov_degrees=42)])


@staged
def rings() -> Stage:
    """Meshes of a user's own: linked one-sided rings, and an open ribbon that shows its inside too."""
    look = Look(sun_at=(-0.4, -0.8, 0.9), sun=(0.62, 0.60, 0.56), horizon="eef2f2", zenith="b7c9d3", fog_range=(6, 22))
    floor = "e3e8e6"
    pieces = [
        Piece("torus", pose((-0.75, 0.1, 0.95), 1.7, yaw=20, roll=72), OCHRE, 2),
        Piece("torus", pose((0.05, 0.2, 0.75), 1.5, yaw=-30, pitch=25), TEAL, 3, "checker", (8, 3)),
        Piece("torus", pose((-0.55, -0.75, 0.13), (0.8, 0.8, 0.8)), CORAL, 4, "wood", (4, 1)),
        Piece("ribbon", pose((1.35, 0.1, 0.95), (1.1, 1.1, 1.5), yaw=200), ROSE, 5, "noise"),
        Piece("sphere", pose((1.35, 0.1, 0.25), 0.5), NAVY, 6),
    ]
    pieces = [ground(floor, 1, 60.0), *pieces, *(shadow(piece, look, floor, 1) for piece in pieces)]
    return Stage([(look, pieces)], [Shot(look_at((0.3, -4.4, 1.9), (0.22, 0.1, 0.75)), fov_degrees=38)])


@staged
def twenty_one_boxes() -> Stage:
    """A table of many small things, each its own label, laid out as sunflowers lay out their seeds."""
    look = Look(sun_at=(-0.5, -0.4, 0.9), horizon="f3ece2", zenith="f3ece2", ambient=(0.46, 0.47, 0.52))
    floor = "f3ece2"
    stops = np.array([rgb(color) for color in (OCHRE, CORAL, PLUM, NAVY, TEAL, SAGE)])
    pieces = []
    for number in range(21):
        angle, radius = np.radians(137.508) * number, 0.33 * np.sqrt(number + 0.6)
        place = number / 20 * (len(stops) - 1)
        low = min(int(place), len(stops) - 2)
        mixed = stops[low] + (place - low) * (stops[low + 1] - stops[low])
        size = 0.26 + 0.008 * number
        at = (radius * np.cos(angle), radius * np.sin(angle), size * 0.5 * (1 + (20 - number) / 12))
        tall = (size, size, size * (1 + (20 - number) / 12))
        pieces.append(Piece("box", pose(at, tall, yaw=float(np.degrees(angle))), tuple(mixed), 2 + number))
    pieces = [ground(floor, 1, 60.0), *pieces, *(shadow(piece, look, floor, 1) for piece in pieces)]
    return Stage([(look, pieces)], [Shot(look_at((0.6, -3.8, 3.4), (0.0, -0.05, 0.1)), fov_degrees=38)])


@staged
def three_lights() -> Stage:
    """One hamlet in three lanes: at noon, at dusk, and under another sun. The rows differ in nothing but the lane."""
    noon = Look(sun_at=(-0.3, -0.4, 1.0), sun=(0.70, 0.68, 0.60))
    dusk = Look(
        sun_at=(-0.9, -0.2, 0.25),
        sun=(0.95, 0.46, 0.22),
        ambient=(0.26, 0.28, 0.42),
        ambient_ground=(0.20, 0.16, 0.20),
        horizon="f2a07b",
        zenith="3a3f6e",
        fog="8f6f86",
        fog_range=(5.0, 30.0),
    )
    other = Look(
        sun_at=(0.6, -0.5, 0.6),
        sun=(0.25, 0.75, 0.62),
        ambient=(0.40, 0.22, 0.46),
        ambient_ground=(0.26, 0.12, 0.30),
        horizon="c86fb0",
        zenith="1f1b4d",
        fog="7d3f8c",
        fog_range=(4.0, 24.0),
    )
    camera = look_at((0.8, -5.6, 2.2), (0.0, 0.5, 0.75))
    shots = [Shot(camera, fov_degrees=42, lane=lane) for lane in range(3)]
    return Stage([(look, _hamlet(look)) for look in (noon, dusk, other)], shots)


def _hamlet(look: Look) -> list[Piece]:
    floor = "a9b48c"
    pieces = []
    houses = (
        (-1.5, 0.6, 1.0, 1.0, 20, CREAM, CORAL),
        (0.1, 1.3, 1.2, 1.3, -12, CREAM, TEAL),
        (1.6, 0.3, 0.9, 0.8, -35, CREAM, BRICK),
    )
    for x, y, wide, tall, yaw, wall, top in houses:
        pieces.append(Piece("box", pose((x, y, tall / 2), (wide, wide, tall), yaw), wall, 2, "brick", (1, 1)))
        pieces.append(Piece("roof", pose((x, y, tall), (wide * 1.2, wide * 1.2, 0.8), yaw), top, 3))
    for x, y, tall in ((-2.5, 1.6, 1.9), (2.6, 1.5, 2.2), (-0.7, -0.6, 1.0), (0.9, 2.6, 2.4)):
        pieces.append(Piece("cylinder", pose((x, y, tall / 4), (0.14, 0.14, tall / 2)), "7b5a43", 4))
        pieces.append(Piece("sphere", pose((x, y, tall * 0.7), (tall * 0.5, tall * 0.5, tall * 0.65)), MOSS, 5))
    shadows = [shadow(piece, look, shaded(floor, 0.78), 1) for piece in pieces]
    return [ground(floor, 1, 90.0, "noise", 8.0), *pieces, *shadows]
