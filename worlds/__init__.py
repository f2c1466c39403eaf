"""The room for world families: vectorised simulations that fill scene tables.

It may use `worldloom.render` and `worldloom.kernels`. It knows nothing of servers, clients or the wire.
"""
