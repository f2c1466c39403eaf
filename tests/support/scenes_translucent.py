"""The test scenes with translucent rows: layers one behind the other, in each other, before and behind opaque rows."""

from tests.support.scene_builder import Lamp, Look, Piece, Shot, Stage, ground, pose, staged
from tests.support.scenes_daylight import CORAL, CREAM, NAVY, OCHRE, PLUM, ROSE, SAGE, SAND, SKY, TEAL
from tests.support.scenes_lamps import EVENING, GLOSSY, POLISHED, SATIN
from worldloom.kernels.tables import HEADLIGHT, SPOT
from worldloom.render.views import look_at


@staged
def glasshouse() -> Stage:
    """Panes one behind the other, round and bent glass, glass in glass; rows in an order that is not theirs."""
    look = Look(fog_range=(4.0, 20.0))
    pieces = [
        Piece("quad", pose((0.9, -1.1, 0.6), (0.9, 1.0, 1.2), yaw=10), SKY, 9, alpha=0.35),
        Piece("sphere", pose((-0.9, -0.2, 0.6), 1.1), CORAL, 2, alpha=0.5),
        ground(SAND, 1, 30.0, "checker", 1.5),
        Piece("box", pose((-0.9, -0.2, 0.4), 0.45, yaw=20), OCHRE, 3),
        Piece("torus", pose((0.1, 1.3, 0.8), 1.2, yaw=30, roll=60), TEAL, 4, alpha=0.6),
        Piece("quad", pose((0.8, 0.1, 0.7), (1.0, 1.0, 1.4), yaw=-5), ROSE, 5, alpha=0.4),
        Piece("ribbon", pose((-0.3, 0.9, 0.5), (0.9, 0.9, 1.0)), SAGE, 6, alpha=0.7),
        Piece("cylinder", pose((1.5, 0.9, 0.5), (0.6, 0.6, 1.0)), NAVY, 7, "brick", (2, 1), alpha=0.8),
        Piece("sphere", pose((0.8, -0.4, 0.3), 0.5), PLUM, 8, alpha=0.999),
        Piece("box", pose((0.0, -1.0, 0.3), 0.6), "ffffff", 10, alpha=0.0),
    ]
    ahead = Shot(look_at((0.1, -4.6, 1.5), (0.1, 0.1, 0.6)), fov_degrees=42)
    slanted = Shot(look_at((2.0, -5.0, 4.0), (0.1, 0.3, 0.5)), orthographic_height=3.6, near=0.5, far=30.0)
    return Stage([(look, pieces)], [ahead, slanted])


@staged
def lantern() -> Stage:
    """Glass that shines before a sky of textures: a pond with things in and over it, and a ball around another."""
    lamps = (
        Lamp(HEADLIGHT, ambient="303030", diffuse="606060", specular="404040"),
        Lamp(SPOT, (1.0, -2.0, 3.0), (-0.3, 0.7, -1.0), diffuse="c0a080", specular="ffffff", cone_degrees=60.0),
    )
    look = Look(horizon="20242e", zenith="141722", lamps=lamps, sky=EVENING)
    pieces = [
        Piece("plane", pose((0, 0, 0.15), (3.4, 3.0, 1)), TEAL, 1, "noise", (2, 2), GLOSSY, alpha=0.55),
        Piece("plane", pose((0, 0, -0.3), (6.0, 6.0, 1)), CREAM, 2, "wood", (3, 3), SATIN),
        Piece("capsule", pose((-1.0, -0.3, 0.2), 0.6, yaw=20, pitch=70), ROSE, 3, shine=GLOSSY),
        Piece("sphere", pose((0.7, 0.2, 0.75), 1.1), SKY, 4, shine=POLISHED, alpha=0.3),
        Piece("sphere", pose((0.7, 0.2, 0.75), 0.6), OCHRE, 5, shine=POLISHED, alpha=0.6),
        Piece("box", pose((-0.4, 0.9, 0.5), (0.6, 0.6, 0.8), yaw=35), PLUM, 6, "brick", (1, 1), SATIN, alpha=0.45),
    ]
    ahead = Shot(look_at((-0.4, -3.8, 1.9), (0.0, 0.1, 0.3)), fov_degrees=46)
    return Stage([(look, pieces)], [ahead])
