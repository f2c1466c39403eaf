"""The room for our .proto files and the code generated from them.

It uses no other room.
"""
