"""The Cogment API: trials, agents and environments on the same worlds as dm_env_rpc."""
