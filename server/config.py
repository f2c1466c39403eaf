"""Configuration of a server. The command line and the TOML file are both derived from the fields below.

An error that is caused by a limit names the limit's option.
"""

import argparse
import re
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

from worldloom.protos.addresses import Address, TcpAddress, UnixAddress, parse_listen_address
from worldloom.server.logs import LogFormat, LogLevel
from worldloom.server.options import ConfigError, add_flags, options_of, read_file

_OTHER_SETTINGS_BYTES = 1 << 16
"""Room for what a request has beside an upload."""


@dataclass(frozen=True)
class Limits:
    """Limits of one server. The defaults suit a machine of a few cores."""

    max_worlds: int = 4096
    """Worlds at a time."""
    max_lanes: int = 65_536
    """Lanes at a time, over all worlds."""
    max_streams: int = 1024
    """Streams at a time."""
    max_view_pixels: int = 1 << 22
    """Pixels of one frame, width × height. The default has room for 1920 × 1080 and 2560 × 1440."""
    max_message_bytes: int = 4 << 20
    """Bytes of a request."""
    allow_uploads: bool = False
    """Take models of the family `mujoco` that clients upload. They are compiled in a process of their own."""
    max_upload_bytes: int = 64 << 20
    """Bytes of an uploaded model with its files, as it is sent; decompressed it may have four times as many."""
    upload_timeout_s: float = 30.0
    """Seconds to compile an uploaded model in."""
    max_reply_bytes: int = 256 << 20
    """Bytes of a reply. Without the join setting max_reply_bytes a stream gets 4 MiB at most, gRPC's own default."""
    max_shared_bytes: int = 4 << 30
    """Bytes of all shared memory at a time. Memory is committed when it is first drawn to."""
    max_memory_bytes: int | None = None
    """Bytes of worlds, reply buffers and shared memory in all, by estimate; three quarters of the memory that is
    available when the server starts unless given."""
    max_texture_frames: int = 256
    """Pictures and frames of videos that are read of one set of `--texture-dir`: 1.2 MB of memory each."""
    max_waiting_requests: int = 1024
    """Unanswered requests of one stream at which the server stops reading it, until some have been answered."""
    idle_world_s: float = 600.0
    """Seconds after which an unused world is destroyed: without agents, or, if it is a trial's, without calls."""
    lost_world_s: float = 60.0
    """The same for a world whose stream created it, joined it and ended without leaving it: its client was killed, or
    lost its connection. A client that comes back finds its world for that long."""

    @property
    def max_request_bytes(self) -> int:
        """Bytes of the largest request: an upload, where they are allowed, with room for its other settings."""
        upload_bytes = self.max_upload_bytes + _OTHER_SETTINGS_BYTES if self.allow_uploads else 0
        return max(self.max_message_bytes, upload_bytes)


@dataclass(frozen=True)
class WebOptions:
    """Options of the page on which people watch a server. Without `web` there is none."""

    web: str | None = field(default=None, metadata={"metavar": "HOST:PORT"})
    """HOST:PORT of a page that shows all worlds live, with /metrics for Prometheus; port 0 picks a free one. None
    unless given."""
    web_host: tuple[str, ...] = field(default=(), metadata={"metavar": "NAME"})
    """Name by which browsers and Prometheus reach that page, beside addresses and localhost. May be given again."""
    web_control: bool = False
    """Let people play in worlds of their own, and in trials. Otherwise the page only shows."""
    web_tiles: int = 256
    """Frames in one picture of the page."""
    web_rate: int = 30
    """Pictures a second for one viewer."""
    web_percent: int = 5
    """Part of the engine's time that pictures may take while worlds are stepped, in percent."""
    web_viewers: int = 64
    """Viewers at a time."""

    @property
    def web_address(self) -> TcpAddress | None:
        """Address of the page; None if there is no page."""
        if self.web is None:
            return None
        try:
            address = parse_listen_address(self.web)
        except ValueError as error:
            raise ConfigError(f"--web {error}") from None
        if not isinstance(address, TcpAddress):
            raise ConfigError(f"--web is {self.web!r}: expected HOST:PORT, which browsers can open")
        return address

    def check(self) -> None:
        """Raise ConfigError for options that do not go together."""
        if self.web_address is None:
            given = next((one for one in fields(self) if getattr(self, one.name) != one.default), None)
            if given is not None:
                raise ConfigError(f"--{given.name.replace('_', '-')} without --web: expected --web HOST:PORT with it")
        if self.web_percent > 100:
            raise ConfigError(f"--web-percent is {self.web_percent}: expected 100 at most")
        for name in self.web_host:
            if not re.fullmatch(r"[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_])?", name):
                raise ConfigError(f"--web-host is {name!r}: expected a host's name without scheme, port and path")


@dataclass(frozen=True)
class ServeConfig:
    """Configuration of one server. Invalid values raise ConfigError; files are read when the server starts."""

    listen: tuple[str, ...] = field(default=("127.0.0.1:9000",), metadata={"metavar": "ADDRESS"})
    """HOST:PORT or unix:PATH to listen on; port 0 picks a free one. May be given again."""
    renderer: Literal["auto", "gl", "cpu"] = "auto"
    """Renderer: gl draws with OpenGL, cpu on the processor, auto chooses."""
    device: int | None = field(default=None, metadata={"minimum": 0})
    """Graphics device to draw on, by its number in `worldloom doctor`."""
    threads: int | None = None
    """Threads that the cpu renderer draws with; one for each processor that the server may use unless given."""
    family: tuple[str, ...] = field(default=(), metadata={"metavar": "MODULE:CLASS"})
    """MODULE:CLASS of a family to add, from an installed module or one in the current directory. May be given again."""
    model_dir: tuple[Path, ...] = field(default=(), metadata={"metavar": "DIRECTORY"})
    """Directory that models of the family `mujoco` may be read from, with its subdirectories. May be given again."""
    texture_dir: tuple[Path, ...] = field(default=(), metadata={"metavar": "DIRECTORY"})
    """Directory that pictures and videos may be read from, for textures and backgrounds that vary. May be given
    again."""
    gym_id: tuple[str, ...] = field(default=(), metadata={"metavar": "PATTERN"})
    """Pattern of ids that the family `gym` may make, such as 'Ant*'; those of Gymnasium itself unless given. May be
    given again."""
    gym_import: tuple[str, ...] = field(default=(), metadata={"metavar": "MODULE"})
    """Module to import, which registers environments with Gymnasium. May be given again."""
    gym_kwarg: tuple[str, ...] = field(default=(), metadata={"metavar": "NAME"})
    """Keyword argument of environments that clients may set, beside those that tune Gymnasium's own. May be given
    again."""
    cogment: Path | None = None
    """YAML file that describes trials: serves the Cogment API beside dm_env_rpc."""
    tls_cert: Path | None = None
    """Certificate chain of this server, in PEM. With it every HOST:PORT uses TLS."""
    tls_key: Path | None = None
    """Private key of that certificate, in PEM, without a password."""
    tls_client_ca: Path | None = None
    """Certificates in PEM: only clients with a certificate signed by one of these are accepted."""
    insecure: bool = False
    """Listen without TLS on addresses that other machines can reach: anyone there can read the traffic and connect."""
    token_file: Path | None = None
    """File with a token: only clients that send `authorization: Bearer TOKEN` are accepted."""
    local_socket: str = field(default="auto", metadata={"metavar": "auto|off|PATH"})
    """Unix socket that clients on this machine use instead of gRPC, whichever address they connect to: auto picks one
    without a file, off has none, PATH is for containers that share a directory."""
    local_socket_user: tuple[str, ...] = field(default=(), metadata={"metavar": "USER"})
    """Name or number of another user who may use that socket, or any. May be given again."""
    drain_s: float | None = None
    """Seconds after SIGTERM or SIGINT in which the streams that there are go on, while new ones are refused and the
    health service reports NOT_SERVING: clients of several servers hand their lanes over to the others. None unless
    given."""
    page: WebOptions = field(default_factory=WebOptions)
    """The page on which people watch the server."""
    limits: Limits = field(default_factory=Limits)
    """Limits of the server; each is an option of its own."""
    timers: bool = True
    """Measure the time of each stage of a tick, for `worldloom profile --attach` and the counters."""
    log_level: LogLevel = "info"
    """Minimum level of log messages."""
    log_format: LogFormat = "text"
    """Format of log messages: text, or JSON with one object a line."""

    def __post_init__(self) -> None:
        for option in OPTIONS:
            owner = next(one for one in (self, self.page, self.limits) if hasattr(one, option.field))
            option.take(getattr(owner, option.field), f"--{option.name}")
        self._check_tls()
        for address in self.addresses:
            self._check_exposure(address)
        self._check_page()
        self._check_local_socket()
        if self.renderer == "cpu" and self.device is not None:
            raise ConfigError(f"--device is {self.device}: expected none with --renderer cpu, which needs no device")

    @property
    def addresses(self) -> tuple[Address, ...]:
        """Addresses to listen on."""
        try:
            found = tuple(parse_listen_address(text) for text in self.listen)
        except ValueError as error:
            raise ConfigError(f"--listen {error}") from None
        for address, text in zip(found, self.listen, strict=True):
            if found.count(address) > 1 and getattr(address, "port", None) != 0:
                raise ConfigError(f"--listen {text!r} is given twice: expected it once")
        return found

    @property
    def has_local_socket(self) -> bool:
        """True if there is a socket for clients on this machine."""
        return self.local_socket != "off"

    @property
    def local_socket_path(self) -> Path | None:
        """Path of that socket; None if it has no file."""
        if self.local_socket in ("auto", "off"):
            return None
        try:
            address = parse_listen_address(f"unix:{self.local_socket}")
        except ValueError as error:
            raise ConfigError(f"--local-socket {error}, auto or off") from None
        assert isinstance(address, UnixAddress)
        return address.path

    def _check_local_socket(self) -> None:
        path = self.local_socket_path
        if path is not None and UnixAddress(path) in self.addresses:
            raise ConfigError(f"--local-socket is {self.local_socket!r}: expected another path than those of --listen")
        if self.local_socket_user and not self.has_local_socket:
            raise ConfigError("--local-socket-user with --local-socket off: expected one of them alone")

    def _check_tls(self) -> None:
        for flag, value, needed, other in (
            ("--tls-cert", self.tls_cert, "--tls-key", self.tls_key),
            ("--tls-key", self.tls_key, "--tls-cert", self.tls_cert),
            ("--tls-client-ca", self.tls_client_ca, "--tls-cert", self.tls_cert),
        ):
            if value is not None and other is None:
                raise ConfigError(f"{flag} is {str(value)!r}: expected {needed} with it")

    def _check_page(self) -> None:
        self.page.check()
        address = self.page.web_address
        if address is not None and not self.insecure:
            check_page_exposure(address, has_token=self.token_file is not None, has_tls=self.tls_cert is not None)

    def _check_exposure(self, address: Address) -> None:
        if isinstance(address, TcpAddress) and not (address.is_loopback or self.tls_cert or self.insecure):
            raise ConfigError(exposure_text(str(address)))


def check_page_exposure(address: TcpAddress, has_token: bool, has_tls: bool) -> None:
    """Raise ConfigError for a page that other machines can open without a token or without encryption."""
    if address.is_loopback or (has_token and has_tls):
        return
    raise ConfigError(
        f"--web {str(address)!r} can be opened from other machines: expected --token-file, --tls-cert and --tls-key"
        " with it, or an address of this machine only (127.0.0.1, [::1], localhost), or --insecure if anyone on"
        " that network may read the traffic and watch"
    )


def exposure_text(address: str) -> str:
    """Return the error for an address that is exposed without encryption."""
    return (
        f"--listen {address!r} can be reached from other machines without encryption: expected --tls-cert and --tls-key"
        " with it, or an address of this machine only (127.0.0.1, [::1], localhost, unix:PATH), or --insecure if"
        " anyone on that network may read the traffic and connect"
    )


OPTIONS = options_of(ServeConfig)


def add_config_flags(parser: argparse.ArgumentParser) -> None:
    """Add the options of the configuration and of the file."""
    add_flags(parser, OPTIONS)
    parser.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help="TOML file with options by the same names: max-worlds = 10. The command line wins over the file",
    )


def read_config(args: argparse.Namespace) -> ServeConfig:
    """Return the configuration: the command line wins over the file, the file over the defaults."""
    given: dict[str, Any] = {} if args.config is None else read_file(args.config, OPTIONS)
    for option in OPTIONS:
        if hasattr(args, option.field):
            given[option.field] = option.take(getattr(args, option.field), f"--{option.name}")
    page, limits = (
        {one.name: given.pop(one.name) for one in fields(kind) if one.name in given} for kind in (WebOptions, Limits)
    )
    return ServeConfig(**given, page=WebOptions(**page), limits=Limits(**limits))
