"""The maze family: corridors seen in first person, with goals to find."""

from worldloom.worlds.maze.family import Maze

__all__ = ["Maze"]
