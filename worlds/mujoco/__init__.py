"""Worlds simulated by MuJoCo: imported models, physics of many lanes at once, and the families `mujoco` and `dmc`.

Needs the extra `worldloom[mujoco]`. Other packages import this one only when one of its families is asked for.
"""

import logging

try:
    import mujoco
except ModuleNotFoundError as error:
    raise ImportError("MuJoCo is not installed: pip install 'worldloom[mujoco]'") from error

if mujoco.get_mju_user_warning() is None:  # else MuJoCo writes warnings to a file in the working directory
    mujoco.set_mju_user_warning(logging.getLogger("worldloom.worlds").warning)
