"""The room for benchmarks: files named `bench_*.py`, run by `make bench`.

And for two comparisons with others, each a command of its own: `make ablation` with a naive server (`ablation.py`), and
`make bench-peers` with other ways to get pixels (`peers`). It may use every room, and no room may use it.
"""
