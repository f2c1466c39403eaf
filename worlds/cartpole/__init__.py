"""The cartpole family: swing a pole up on a cart and hold it there."""

from worldloom.worlds.cartpole.family import Cartpole

__all__ = ["Cartpole"]
