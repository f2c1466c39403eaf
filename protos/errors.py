"""What can be refused, and with which code. Nothing here knows of gRPC or protobuf.

    RequestError
    ├── InvalidArgument      a request that is wrong in itself: a name, a type, a shape, a value
    ├── DeadlineExceeded     another service took too long
    ├── NotFound             a world or property that is not there
    ├── AlreadyExists        something that is there already
    ├── PermissionDenied     a property that cannot be read, written or listed
    ├── FailedPrecondition   a request that does not fit the stream's state: not joined, joined already
    ├── ResourceExhausted    a limit; the text says which and how to raise it
    ├── Unauthenticated      no token, or a wrong one
    ├── Unimplemented        an extension nobody knows
    ├── Unavailable          the server is shutting down, or another service cannot be reached
    └── Internal             a bug of ours or of a family's

A refused request has changed nothing. The text says what went wrong, what was expected, what came and what to do.
"""

from typing import ClassVar


class RequestError(Exception):  # it is an answer, seldom an error of the server's
    """A request that is answered with an error."""

    code: ClassVar[int]
    """As google.rpc.Code numbers it."""


class InvalidArgument(RequestError):
    """A request that is wrong in itself."""

    code = 3


class DeadlineExceeded(RequestError):
    """Another service took too long."""

    code = 4


class NotFound(RequestError):
    """A world or property that is not there."""

    code = 5


class AlreadyExists(RequestError):
    """Something that is there already."""

    code = 6


class PermissionDenied(RequestError):
    """A property that cannot be read, written or listed."""

    code = 7


class ResourceExhausted(RequestError):
    """A limit is reached; the text names it."""

    code = 8


class FailedPrecondition(RequestError):
    """A request that does not fit the state of its stream."""

    code = 9


class Unimplemented(RequestError):
    """Something this server does not know."""

    code = 12


class Internal(RequestError):
    """A bug."""

    code = 13


class Unavailable(RequestError):
    """The server is shutting down, or another service cannot be reached."""

    code = 14


class Unauthenticated(RequestError):
    """No token, or a wrong one."""

    code = 16
