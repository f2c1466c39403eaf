"""The room for benchmarks: files named `bench_*.py`, run by `make bench`.

It may use every room, and no room may use it.
"""
