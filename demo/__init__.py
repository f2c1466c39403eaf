"""The room for `worldloom demo`: a server in a process of its own, clients of every family, and pictures of them.

It may use `worldloom.client`, what that uses, and `worldloom.render` for pictures. It sees worlds through clients
alone, as everyone does who is not the server.
"""
