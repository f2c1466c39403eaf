"""`worldloom demo`: a server in a process of its own, clients of every family, and images of what they observe.

It uses `worldloom.client` and reaches worlds through clients alone, as users do.
"""
