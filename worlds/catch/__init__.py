"""The catch family: a ball falls, a paddle at the bottom of the board must be under it when it lands."""

from worldloom.worlds.catch.family import Catch

__all__ = ["Catch"]
