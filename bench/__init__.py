"""Benchmarks: files named `bench_*.py`, run by `make bench`, and two comparisons with commands of their own.

`__main__.py` runs each benchmark in a process of its own, with `plugin.py` in it, and makes the table. `make ablation`
compares with a naive server (`ablation.py`), `make bench-peers` with other environments that render (`peers`). It may
use every package, and no package may use it.
"""
