"""The wanted state of a fleet, and the checks of its arguments.

A `FleetSpec` is all that the reconciler needs to build the fleet again. Each server's actor keeps a copy; of several
copies the one with the highest version counts.
"""

import argparse
import math
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NoReturn

from worldloom.fleet.certificates import Authority, make_authority
from worldloom.server.config import add_config_flags, read_config

_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?")
_RESERVED = ("--listen", "--tls-cert", "--tls-key", "--tls-client-ca", "--insecure", "--token-file", "--drain-s")
"""Options of `worldloom serve` that the fleet sets itself."""
_ALWAYS_GIVEN = ("--tls-cert", "server.pem", "--tls-key", "server-key.pem", "--token-file", "token")
"""Some of these, which allow others; files are read when a server starts."""
MAX_SERVERS = 10_000
DEFAULT_LEARNER = "default"
OTHER_LEARNERS = "*"
"""Key of the quota of each learner that has none of its own."""
_TOKEN_BYTES = 32


@dataclass(frozen=True)
class FleetSecrets:
    """Secrets of a fleet. They appear in no log, command line or status."""

    token: str = field(repr=False)
    authority: Authority = field(repr=False)


def make_secrets() -> FleetSecrets:
    """Return a new token and a new certificate authority."""
    return FleetSecrets(secrets.token_urlsafe(_TOKEN_BYTES), make_authority())


@dataclass(frozen=True)
class FleetSpec:
    """The wanted state of a fleet."""

    name: str
    servers: int
    cpus_per_server: float
    gpus_per_server: float
    secrets: FleetSecrets
    serve_arguments: tuple[str, ...] = ()
    """Arguments of `worldloom serve` besides those that the fleet sets."""
    quotas: Mapping[str, int] = field(default_factory=dict)
    """The most lanes of each learner; OTHER_LEARNERS is for each one without a quota of its own."""
    drain_s: float = 600.0
    """Time in which a server that is drained hands its lanes over."""
    cache_dir: str | None = None
    """Directory of compiled kernels on each node; None is that of the node's user."""
    python: str | None = None
    """Python on each node that runs `worldloom serve`; None is the one that Ray runs actors with."""
    is_detached: bool = False
    """True if the fleet outlives the program that made it."""
    version: int = 1
    """Counts every change."""
    generation: int = 1
    """Counts changes that need servers to be replaced."""

    def __post_init__(self) -> None:
        check_name(self.name)
        check_count("servers", self.servers, 1, MAX_SERVERS)
        check_number("cpus_per_server", self.cpus_per_server, above=0)
        check_number("gpus_per_server", self.gpus_per_server, minimum=0)
        check_number("drain_s", self.drain_s, above=0)
        check_quotas(self.quotas)
        check_serve_arguments(self.serve_arguments)
        for name in ("cache_dir", "python"):
            check_path(name, getattr(self, name))

    @property
    def resources(self) -> dict[str, float]:
        """Resources of one server, as Ray names them."""
        return {"CPU": self.cpus_per_server, **({"GPU": self.gpus_per_server} if self.gpus_per_server else {})}

    def change(self, **changes: Any) -> "FleetSpec":
        """Return a later version with these fields; servers are not replaced for it."""
        return replace(self, version=self.version + 1, **changes)

    def upgrade(self, **changes: Any) -> "FleetSpec":
        """Return a later version with these fields, for which all servers are replaced."""
        return self.change(generation=self.generation + 1, **changes)

    def quota_of(self, learner: str) -> int | None:
        """Return the most lanes of a learner; None if there is no limit."""
        return self.quotas.get(learner, self.quotas.get(OTHER_LEARNERS))


def check_name(name: object) -> None:
    """Raise ValueError unless a text can be the name of a fleet."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ValueError(f"name is {name!r}: expected 1 to 40 small letters, digits and dashes")


def check_count(name: str, value: object, minimum: int, maximum: int) -> None:
    """Raise ValueError unless a value is a whole number in a range."""
    if not isinstance(value, int) or isinstance(value, bool) or not minimum <= value <= maximum:
        raise ValueError(f"{name} is {value!r}: expected a whole number of {minimum} to {maximum}")


def check_number(name: str, value: object, above: float | None = None, minimum: float | None = None) -> None:
    """Raise ValueError unless a value is a finite number above or from a bound."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    bound = f"above {above:g}" if above is not None else f"of {minimum or 0:g} or more"
    if (
        not is_number
        or (above is not None and value <= above)  # type: ignore[operator]
        or (minimum is not None and value < minimum)  # type: ignore[operator]
    ):
        raise ValueError(f"{name} is {value!r}: expected a number {bound}")


def check_learner(learner: object) -> None:
    """Raise ValueError unless a text can be the name of a learner."""
    if not isinstance(learner, str) or not learner.strip() or learner == OTHER_LEARNERS:
        raise ValueError(f"learner is {learner!r}: expected a name other than {OTHER_LEARNERS!r}")


def check_quotas(quotas: object) -> None:
    """Raise ValueError unless these are lanes by learner."""
    if not isinstance(quotas, Mapping):
        raise ValueError(f"quotas is {quotas!r}: expected a dict of lanes by learner, such as {{'a': 1024}}")
    for learner, lanes in quotas.items():
        if learner != OTHER_LEARNERS:
            check_learner(learner)
        check_count(f"the quota of {learner!r}", lanes, 0, 2**31)


def check_path(name: str, path: object) -> None:
    """Raise ValueError unless a path is None or the same on every node, whatever the working directory."""
    if path is not None and (not isinstance(path, str) or not Path(path).is_absolute()):
        raise ValueError(f"{name} is {path!r}: expected an absolute path, which every node has")


class _ArgumentParser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ValueError(message)


def check_serve_arguments(arguments: Sequence[str]) -> None:
    """Raise ValueError unless `worldloom serve` takes these arguments and the fleet does not set them itself."""
    if isinstance(arguments, str) or not all(isinstance(one, str) for one in arguments):
        raise ValueError(f"serve_arguments is {arguments!r}: expected a list of texts, such as ('--max-lanes', '4096')")
    for one in arguments:
        if one.partition("=")[0] in (*_RESERVED, "--config"):
            raise ValueError(f"serve_arguments has {one!r}: expected none of {', '.join(_RESERVED)}, --config")
    parser = _ArgumentParser(add_help=False, allow_abbrev=False)
    add_config_flags(parser)
    try:
        read_config(parser.parse_args([*_ALWAYS_GIVEN, *arguments]))
    except ValueError as error:
        raise ValueError(f"serve_arguments: {error}") from None


def fit_cpus_per_server(servers: int, node_cpus: Sequence[float]) -> float:
    """Return the most CPUs for each of so many servers that the nodes have room for: whole, or 1/n if there are few."""
    largest = int(max(node_cpus, default=1.0))
    for cpus in range(largest, 0, -1):
        if sum(int(node // cpus) for node in node_cpus) >= servers:
            return float(cpus)
    for divisor in range(2, 10 * MAX_SERVERS):
        if sum(int(node * divisor) for node in node_cpus) >= servers:
            return math.floor(10_000 / divisor) / 10_000  # Ray counts ten-thousandths
    return 0.0001
