"""Other ways to get pixels, run beside ours: `make bench-peers`.

Each peer has a small program here that makes its environments and steps them, and so have we. The programs of peers run
with the Python of `.venv-peers`, which has no worldloom: they import nothing but `pace`, by its relative name, and what
they measure only when they run.
"""
