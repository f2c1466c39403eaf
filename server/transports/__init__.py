"""Transports: how requests and replies travel between clients and the engine."""
