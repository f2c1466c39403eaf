"""World families: vectorised simulations that write the tables of a scene.

It may import `worldloom.render` and `worldloom.kernels`. It knows nothing of servers, clients or messages.
"""
