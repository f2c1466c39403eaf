"""Environments of trials: worlds of the engine, or an Environment service of another program."""
