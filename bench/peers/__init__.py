"""Comparison with other environments that render, run beside worldloom: `make bench-peers`.

Each peer has a small program here that makes its environments and steps them, and so has worldloom. Programs of peers
run with the Python of `.venv-peers`, which has no worldloom: they import only `program`, by its relative name, and the
peer itself when they run.
"""
