"""A token that clients have to show, as the metadata `authorization: Bearer TOKEN`. Health checks go without."""

import hmac
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc

from worldloom.server.logs import Log
from worldloom.server.serving.options import ConfigError

log = Log("tokens")

_OPEN_TO_ALL = "/grpc.health.v1.Health/"
"""Who watches whether a server is up seldom has its token, and learns nothing else."""
_EXPECTED = "expected the metadata `authorization: Bearer TOKEN` with the token that the server was started with"


def read_token(path: Path | None) -> str | None:
    """The token in a file, if there is one; space around it does not count."""
    if path is None:
        return None
    try:
        token = path.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise ConfigError(f"--token-file {path} cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        token = "\0"
    # What went wrong is told without the token: errors end up in logs.
    if not token:
        raise ConfigError(f"--token-file {path} is empty: expected a token in it")
    if not (token.isascii() and token.isprintable()) or " " in token:
        raise ConfigError(f"--token-file {path}: expected one token of printable ASCII letters without space in it")
    return token


class TokenCheck(grpc.aio.ServerInterceptor):  # type: ignore[misc]  # grpc.aio has no types
    """Lets calls through that show the token."""

    def __init__(self, token: str) -> None:
        self._token = token.encode()
        self._refuse = grpc.stream_stream_rpc_method_handler(_refuse)  # answers calls of every kind

    async def intercept_service(self, continuation: Callable[[Any], Awaitable[Any]], call: Any) -> Any:
        """The handler of a call, or one that refuses it."""
        if call.method.startswith(_OPEN_TO_ALL) or self._is_shown(call.invocation_metadata):
            return await continuation(call)
        return self._refuse

    def _is_shown(self, metadata: Any) -> bool:
        shown = [value for key, value in metadata if key == "authorization"]
        if len(shown) != 1:
            return False
        scheme, _, token = shown[0].partition(" ")
        return scheme.lower() == "bearer" and hmac.compare_digest(token.strip().encode(), self._token)


async def _refuse(_requests: object, context: Any) -> None:
    has_one = any(key == "authorization" for key, _ in context.invocation_metadata())
    problem = "the token is not the right one" if has_one else "there is no token"
    log.warning("refused", peer=context.peer(), reason=problem)
    await context.abort(grpc.StatusCode.UNAUTHENTICATED, f"{problem}: {_EXPECTED}")
