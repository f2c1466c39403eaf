"""The family `dmc`: tasks of the dm_control suite."""
