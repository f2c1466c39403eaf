"""The room that measures what worlds and their pixels cost: `worldloom profile`.

It plays as clients do, reads the counters of engines and servers, and writes what it found for people and programs. It
may use every room but the benchmarks.
"""
