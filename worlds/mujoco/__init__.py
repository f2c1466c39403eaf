"""Worlds of MuJoCo: models as assets and instance rows, physics of many lanes at once, and the families made of them.

Needs the extra `worldloom[mujoco]`; nothing outside this package imports it.
"""

try:
    import mujoco as _mujoco  # noqa: F401
except ModuleNotFoundError as _error:
    raise ImportError("MuJoCo is not installed: pip install 'worldloom[mujoco]'") from _error
