"""How much of everything a server gives away; each limit is named by its flag in the error of whoever meets it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Limits of one server. The defaults suit a machine of a few cores."""

    max_worlds: int = 4096
    """Worlds at a time."""
    max_lanes: int = 65_536
    """Lanes at a time, over all worlds."""
    max_streams: int = 1024
    """Streams at a time."""
    max_view_pixels: int = 1 << 20
    """Pixels of one picture, width × height."""
    max_message_bytes: int = 4 << 20
    """Bytes of a request."""
    max_reply_bytes: int = 256 << 20
    """Bytes of a reply. Streams that do not say what they take get no more than 4 MiB, as gRPC's own limit is."""
    max_shared_bytes: int = 4 << 30
    """Bytes of all shared memory at a time. Of what is set aside only what is painted takes room."""
    max_waiting_requests: int = 1024
    """Requests of one stream that were not answered yet."""
    idle_world_s: float = 600.0
    """Seconds after which a world is destroyed that nobody has joined, or nobody calls for if it is a trial's."""
