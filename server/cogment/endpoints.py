"""Where other services of a trial are: `grpc://HOST:PORT`."""

from worldloom.server.serving.addresses import TcpAddress, parse_address

SCHEME = "grpc://"
EXPECTED = "grpc://HOST:PORT"


def target_of(endpoint: str) -> str:
    """What a gRPC channel is opened to for an endpoint; one that stands for no address raises ValueError."""
    problem = ValueError(f"endpoint {endpoint[:100]!r}: expected {EXPECTED}")
    if not endpoint.startswith(SCHEME):
        raise problem
    try:
        address = parse_address(endpoint.removeprefix(SCHEME))
    except ValueError:
        raise problem from None
    if not isinstance(address, TcpAddress) or not address.port:
        raise problem
    return str(address)
