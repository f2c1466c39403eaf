"""The page on which people watch a server, and metrics for Prometheus: HTTP on a thread of its own.

It reads what the engine samples once a second, and asks it for pictures of the worlds that somebody has on the screen.
Needs the extra `web`.
"""
