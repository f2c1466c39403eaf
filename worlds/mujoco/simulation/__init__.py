"""Simulating many lanes of a MuJoCo model at once."""
