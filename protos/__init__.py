"""Parts of the protocols that client and server share.

- Generated code of the .proto files in `protos/cogment` and `protos/worldloom`.
- `wire`: protobuf's wire format, for messages that are encoded and decoded by hand.
- `addresses`: listen addresses, `HOST:PORT` or `unix:PATH`.
- `errors`: the errors that a server answers requests with, and their codes.

This package imports no other package of worldloom, so a client of a remote server loads no kernels and no renderer.
"""
