"""Worlds of MuJoCo: models as assets and instance rows, physics of many lanes at once, and the families made of them.

Needs the extra `worldloom[mujoco]`; nothing outside this package imports it.
"""
