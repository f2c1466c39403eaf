"""`worldloom profile`: what worlds and their pixels cost on this machine, or what a running server does.

It steps worlds as clients do, reads the counters of engines and servers, and writes the results for people and
programs. It may use every package but `demo` and `bench`.
"""
