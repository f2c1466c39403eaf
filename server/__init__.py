"""The server: the engine, the protocols on top of it, their transports, and the command line.

It may import `worldloom.worlds`, `worldloom.render`, `worldloom.kernels` and `worldloom.protos`, but not
`worldloom.client`, `worldloom.fleet`, `worldloom.profiler`, `worldloom.demo` or `worldloom.bench`.
"""
