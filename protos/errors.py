"""Errors that a server answers requests with, and their codes.

    RequestError
    ├── InvalidArgument      a wrong name, type, shape or value in the request
    ├── DeadlineExceeded     another service did not answer in time
    ├── NotFound             no such world or property
    ├── AlreadyExists        a trial of that id is under way
    ├── PermissionDenied     a property that cannot be read, written or listed; a setting that the operator forbids
    ├── ResourceExhausted    a limit is reached; the text says which, and how to raise it
    ├── FailedPrecondition   a request that the stream's state does not allow: not joined, joined already
    ├── Unimplemented        an unknown extension or request
    ├── Internal             a bug in the server or in a family
    ├── Unavailable          the server is shutting down, or another service cannot be reached
    └── Unauthenticated      the token is missing or wrong

A request that raises one of these has changed nothing. The text says what was wrong, what was expected, what was given,
and what to do. This module knows neither gRPC nor protobuf: each transport maps `code`, a google.rpc.Code, to its own
form.
"""

import re
from typing import ClassVar


class RequestError(Exception):
    """Base class of the errors that a request can be answered with."""

    code: ClassVar[int]
    """The number in google.rpc.Code."""


class InvalidArgument(RequestError):
    """A wrong name, type, shape or value in the request."""

    code = 3


class DeadlineExceeded(RequestError):
    """Another service that did not answer in time."""

    code = 4


class NotFound(RequestError):
    """A world or property that does not exist."""

    code = 5


class AlreadyExists(RequestError):
    """A trial whose id is in use."""

    code = 6


class PermissionDenied(RequestError):
    """A property that cannot be read, written or listed, or a setting that the operator forbids."""

    code = 7


class ResourceExhausted(RequestError):
    """A limit that is reached; the text says which, and how to raise it."""

    code = 8


class FailedPrecondition(RequestError):
    """A request that the state of its stream does not allow."""

    code = 9


class Unimplemented(RequestError):
    """An extension or request that this server does not know."""

    code = 12


class Internal(RequestError):
    """A bug in the server or in a family."""

    code = 13

    @classmethod
    def caused_by(cls, what: str, error: BaseException) -> "Internal":
        """Return the error for a failure: what failed, and type and text of the exception."""
        return cls(f"{what}: {exception_text(error)}")


class Unavailable(RequestError):
    """A server that is shutting down, or another service that cannot be reached."""

    code = 14


class Unauthenticated(RequestError):
    """A missing or wrong token."""

    code = 16


_MAX_TEXT_LENGTH = 1000
_QUOTED_DIRECTORIES = re.compile(r"(?<=['\"])(?:[A-Za-z]:)?[\\/][^'\"]*[\\/](?=[^'\"\\/]+['\"])")
_DIRECTORIES = re.compile(r"(?<![\w.])(?:[A-Za-z]:)?(?:[\\/]+[^\\/\s'\"<>|:,;()]+)*[\\/]+(?=[^\\/\s'\"<>|:,;()])")
"""The directories of an absolute path; in quotes they may have blanks."""


def exception_text(error: BaseException) -> str:
    """Return type and text of an exception in one line, without the directories of files that it names."""
    try:
        text = str(error)
    except Exception:  # its own code failed
        text = ""
    text = " ".join(_DIRECTORIES.sub("", _QUOTED_DIRECTORIES.sub("", text)).split())
    if len(text) > _MAX_TEXT_LENGTH:
        text = f"{text[:_MAX_TEXT_LENGTH]} ..."
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
