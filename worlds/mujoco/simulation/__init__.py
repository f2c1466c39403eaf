"""Simulation of many lanes of a MuJoCo model at once."""
