"""Worlds of MuJoCo: models as assets and instance rows, physics of many lanes at once, and the families made of them.

Needs the extra `worldloom[mujoco]`; nothing outside this package imports it.
"""

import logging

try:
    import mujoco
except ModuleNotFoundError as error:
    raise ImportError("MuJoCo is not installed: pip install 'worldloom[mujoco]'") from error

if mujoco.get_mju_user_warning() is None:  # else it would write warnings to a file in the working directory
    mujoco.set_mju_user_warning(logging.getLogger("worldloom.worlds").warning)
