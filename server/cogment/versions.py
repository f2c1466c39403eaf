"""What every service answers that is asked for its version."""

import functools
from importlib import metadata

import grpc

from worldloom.protos.cogment.api.common_pb2 import VersionInfo

API_VERSION = "0.3.0"
"""Of the Cogment API that is spoken here."""


def version_info() -> VersionInfo:
    """The versions of this server, of the API and of gRPC."""
    found = {"worldloom": _own_version(), "cogment-api": API_VERSION, "grpc": grpc.__version__}
    return VersionInfo(versions=[VersionInfo.Version(name=name, version=version) for name, version in found.items()])


@functools.cache
def _own_version() -> str:
    return metadata.version("worldloom")
