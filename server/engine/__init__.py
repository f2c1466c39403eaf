"""The engine: one thread that steps and draws the worlds of everyone. Knows nothing of gRPC or protobuf."""
