"""The dm_env_rpc protocol as a state machine: bytes in, bytes out. Independent of gRPC."""
