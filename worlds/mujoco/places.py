"""Where the numbers of a simulation lie in memory: how kernels read and write what MuJoCo computes, without copies.

An MjData keeps its arrays where they are for as long as it lives. So a lane's places are found once, and kernels go
through `worldloom.render.memory.NUMBERS`, all memory as float64.
"""

import mujoco
import numpy as np

from worldloom.kernels.tables import I64
from worldloom.render.memory import place_of_numbers

FIELDS = (
    *("qpos", "qvel", "act", "ctrl", "qacc_warmstart", "sensordata"),
    *("xpos", "xquat", "xmat", "xipos", "subtree_com"),
    *("geom_xpos", "geom_xmat", "site_xpos", "site_xmat"),
    *("cam_xpos", "cam_xmat", "light_xpos", "light_xdir", "wrap_xpos"),
)
"""Arrays of float64 in an MjData, in the order of the columns of a table of places."""
QPOS, QVEL, ACT, CTRL, QACC_WARMSTART, SENSORDATA = range(6)
XPOS, XQUAT, XMAT, XIPOS, SUBTREE_COM = range(6, 11)
GEOM_XPOS, GEOM_XMAT, SITE_XPOS, SITE_XMAT = range(11, 15)
CAM_XPOS, CAM_XMAT, LIGHT_XPOS, LIGHT_XDIR, WRAP_XPOS = range(15, 20)


def places_of(data: mujoco.MjData) -> I64:
    """The places [len(FIELDS)] of a simulation's arrays. It must live for as long as they are used."""
    return np.array([place_of_numbers(getattr(data, name)) for name in FIELDS], np.int64)
