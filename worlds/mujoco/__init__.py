"""Worlds simulated by MuJoCo: imported models, physics of many lanes at once, and the families `mujoco` and `dmc`.

Needs the extra `worldloom[mujoco]`. Other packages import this one only when one of its families is asked for.
"""

import logging

try:
    import mujoco
except ModuleNotFoundError as error:
    raise ImportError("MuJoCo is not installed: pip install 'worldloom[mujoco]'") from error

_MAX_LOGGED = 64
"""Most warnings of MuJoCo that are logged."""
_logged: set[str] = set()


def _log_once(warning: str) -> None:
    """Log a warning of MuJoCo the first time: where each lane has a model of its own, each of them has the same."""
    if warning not in _logged and len(_logged) < _MAX_LOGGED:
        _logged.add(warning)
        logging.getLogger("worldloom.worlds").warning("MuJoCo: %s", warning)


if mujoco.get_mju_user_warning() is None:  # else MuJoCo writes warnings to a file in the working directory
    mujoco.set_mju_user_warning(_log_once)
