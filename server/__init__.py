"""The room for everything that serves, and for the command line.

It may use every room below it: `worldloom.worlds`, `worldloom.render`, `worldloom.kernels` and `worldloom.protos`. It
knows nothing of `worldloom.client` or `worldloom.bench`.
"""
