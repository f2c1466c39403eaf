"""Rewards and observations of dm_control tasks for many lanes at once."""
