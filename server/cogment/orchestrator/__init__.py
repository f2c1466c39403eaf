"""Orchestrating trials: actors, ticks, rewards, messages, datalogs, and the services of other programs."""
