"""Wire format of local sockets: how dm_env_rpc messages travel between two processes of one machine.

A connection is a Unix socket of type stream. Both sides send frames: a header of eight bytes (length of the content,
then kind, each an unsigned integer of 32 bits in little-endian order) and the content.

    client ─ HELLO ──► server      proofs that the client knows the key, and the token if there is one
    client ◄─ WELCOME ─ server     the server's proof that it is the one whose key the client has
    client ─ MESSAGE ─► server     an EnvironmentRequest
    client ◄─ MESSAGE ─ server     an EnvironmentResponse, one for each request in the same order
    client ◄─ END ───── server     a google.rpc.Status: why the server ends the stream, or never opened it

Neither key nor token is sent: a proof is an HMAC with them of a random number that the client has chosen. So a program
that happens to listen at the same path, in another container, learns nothing and is recognised.
"""

import hashlib
import hmac
import json
import secrets
import struct
from dataclasses import asdict, dataclass

HEADER = struct.Struct("<II")
"""Length of the content in bytes, and kind of frame."""
MESSAGE, HELLO, WELCOME, END = range(4)
"""Kinds of frames."""
MAX_HELLO_BYTES = 1024
"""Size of the largest HELLO and WELCOME."""
ABSTRACT = "abstract:"
"""Beginning of the address of a socket without a file; others are paths."""
_CLIENT, _SERVER = b"client", b"server"


def pack_frame(kind: int, content: bytes) -> bytes:
    """Return a whole frame."""
    return HEADER.pack(len(content), kind) + content


def socket_name(address: str) -> str:
    """Return the address in the form that Python's sockets take."""
    return "\0" + address.removeprefix(ABSTRACT) if address.startswith(ABSTRACT) else address


@dataclass(frozen=True)
class LocalAddress:
    """A local socket, as properties of its server tell it to clients."""

    address: str
    """A path, or ABSTRACT and a name."""
    key: str
    """A secret of whoever may read the properties, by which client and server recognise each other."""


@dataclass(frozen=True)
class Hello:
    """The first frame of a client."""

    nonce: str
    """A random number."""
    key: str
    """Proof that the client knows the key of the socket."""
    token: str = ""
    """Proof that it knows the token; empty without one."""

    @classmethod
    def make(cls, key: str, token: str | None) -> "Hello":
        """Make a new one."""
        nonce = secrets.token_hex(16)
        return cls(nonce, _prove(key, _CLIENT, nonce), "" if token is None else _prove(token, _CLIENT, nonce))

    def pack(self) -> bytes:
        """Return its content."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def parse(cls, content: bytes) -> "Hello":
        """Parse the content of a frame; ValueError if it is none."""
        try:
            found = json.loads(content)
            hello = cls(**found)
        except (ValueError, TypeError, RecursionError):
            raise ValueError("expected a hello of this version") from None
        if not all(isinstance(value, str) and value.isascii() for value in found.values()):
            raise ValueError("expected texts in the hello")
        return hello

    def has_key(self, key: str) -> bool:
        """Return whether the client knows this key."""
        return hmac.compare_digest(self.key, _prove(key, _CLIENT, self.nonce))

    def has_token(self, token: str) -> bool:
        """Return whether the client knows this token."""
        return hmac.compare_digest(self.token, _prove(token, _CLIENT, self.nonce))

    def welcome(self, key: str) -> bytes:
        """Return the content of the server's reply."""
        return _prove(key, _SERVER, self.nonce).encode()

    def is_welcomed(self, content: bytes, key: str) -> bool:
        """Return whether a reply comes from the server with this key."""
        return hmac.compare_digest(content, self.welcome(key))


def _prove(secret: str, side: bytes, nonce: str) -> str:
    return hmac.new(secret.encode(), side + nonce.encode(), hashlib.sha256).hexdigest()
