"""What gRPC is told about its connections."""

from worldloom.server.limits import Limits

_LEAST_RECEIVED_BYTES = 64 << 20
_LARGEST = 2**31 - 1
_QUIET_MS = 20_000
"""After so long without a word a client is asked whether it is there."""
_PATIENCE_MS = 20_000
"""So long it may take to answer."""


def channel_options(limits: Limits) -> list[tuple[str, int]]:
    """Options for a server."""
    return [
        # Else a second server on the same port would silently get half of the clients.
        ("grpc.so_reuseport", 0),
        # gRPC ends the whole stream over a request above this; ours ends with an error in its place, so it comes first.
        ("grpc.max_receive_message_length", receive_limit_bytes(limits)),
        ("grpc.max_send_message_length", -1),
        # Machines that vanished without a word are noticed, and their streams leave their worlds.
        ("grpc.keepalive_time_ms", _QUIET_MS),
        ("grpc.keepalive_timeout_ms", _PATIENCE_MS),
        ("grpc.http2.ping_timeout_ms", _PATIENCE_MS),  # the timeout above counts only while nothing can be sent
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
        # Clients may ask as often as they like whether we are there; by default that ends their connection.
        ("grpc.http2.min_ping_interval_without_data_ms", 1_000),
        ("grpc.http2.max_ping_strikes", 0),
    ]


def receive_limit_bytes(limits: Limits) -> int:
    """The largest request that is answered at all."""
    return min(max(4 * limits.max_message_bytes, _LEAST_RECEIVED_BYTES), _LARGEST)
