"""The capacity model: what a lane costs its server, the network and its client.

`python -m scripts.fleet_model --frames-per-s 1000000` prints how many servers and clients a load needs, and which
network. With `--profile FILE` the costs are those that `worldloom profile` measured on your machine. docs/scaling.md
explains the formulas; scripts/fleet_simulation.py simulates what they leave out: slow servers, losses and drains.

Every time is in seconds, every size in bytes. Processor seconds are those of one core of the machine that was measured.
"""

import argparse
import dataclasses
import json
import math
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

import numpy as np

Transport = Literal["tcp", "tls", "shared"]
"""gRPC over TCP, the same with TLS, or the local socket with frames in shared memory."""


@dataclass(frozen=True)
class Costs:
    """Processor time of client and server, as fitted on two cores of an Intel Xeon.

    Measured by `worldloom profile --family maze --lanes 64,256,1024 --size 64 --outputs rgb --transport
    local,socket,tcp,tls`, where no other source is named.
    """

    draw_lane_s: float = 20.0e-6
    """Simulate and draw one lane, mazes of 64×64 rgb: processor time of a lane with `local`."""
    server_message_s: float = 0.4e-3
    """A step's fixed cost at the server, median of the transports."""
    server_byte_s: float = 0.33e-9
    """Send a byte by gRPC: processor time of a lane with `tcp`, less that with `local`, by bytes of a frame."""
    server_tls_byte_s: float = 0.44e-9
    """Encrypt a byte: the same with `tls`, less that with `tcp`."""
    client_message_s: float = 0.2e-3
    """A step's fixed cost at the client for each server, with gRPC."""
    client_byte_s: float = 0.49e-9
    """Receive a byte by gRPC: processor time of the client for a lane with `tcp`."""
    client_tls_byte_s: float = 0.27e-9
    """Decrypt a byte: the same with `tls`, less that with `tcp`."""
    shared_message_s: float = 0.07e-3
    """A step's fixed cost at the client with `socket`, whose frames are drawn where the client reads them."""
    copy_bytes_per_s: float = 13.0e9
    """Copy frames that are not in the cache into one array of all lanes: `--copy` measures it."""
    make_fixed_s: float = 0.2
    """Connect to a server and create a world: a new VectorEnv with 16 lanes."""
    make_lane_s: float = 70.0e-6
    """Create a lane and draw its first frame: a new VectorEnv with 1,024 lanes, and its reset."""
    lane_memory_bytes: int = 20 << 10
    """Memory of a server for a lane, its reply buffers among it: the same with 16,384 lanes."""

    @classmethod
    def from_profile(cls, profile: Mapping[str, Any]) -> Self:
        """Return the costs that a profile.json has fits for; ValueError where a transport or number of lanes lacks."""
        frames = {(one["width"], one["height"], *one["outputs"]) for one in profile["configurations"]}
        width, height, *outputs = min(frames)
        if len(frames) > 1 or outputs != ["rgb"]:
            raise ValueError(f"a profile of {len(frames)} kinds of frames: expected one --size, and --outputs rgb")
        sides = {(side, one["transport"]): one for side, fits in profile["cpu_fits"].items() for one in fits}
        wanted = [
            ("client", "local"),
            ("client", "socket"),
            *((side, name) for side in ("client", "server") for name in ("tcp", "tls")),
        ]
        missing = [f"{side} with {name}" for side, name in wanted if (side, name) not in sides]
        if missing:
            raise ValueError(
                f"no fit of the processor time of the {', '.join(missing)}: expected a profile with three numbers of "
                "--lanes and --transport local,socket,tcp,tls"
            )
        lane_s = {key: 1e-6 * sides[key]["us_per_lane"] for key in wanted}
        frame_bytes = 3 * width * height
        draw_lane_s = lane_s["client", "local"]
        return cls(
            draw_lane_s=draw_lane_s,
            server_message_s=1e-6 * sides["server", "tcp"]["fixed_us"],
            server_byte_s=max(lane_s["server", "tcp"] - draw_lane_s, 0.0) / frame_bytes,
            server_tls_byte_s=max(lane_s["server", "tls"] - lane_s["server", "tcp"], 0.0) / frame_bytes,
            client_message_s=1e-6 * sides["client", "tcp"]["fixed_us"],
            client_byte_s=lane_s["client", "tcp"] / frame_bytes,
            client_tls_byte_s=max(lane_s["client", "tls"] - lane_s["client", "tcp"], 0.0) / frame_bytes,
            shared_message_s=1e-6 * sides["client", "socket"]["fixed_us"],
        )


@dataclass(frozen=True)
class Hardware:
    """Machines and network: assumed, since they are yours to choose."""

    server_cores: int = 4
    """Cores that draw on each server."""
    receive_threads: int = 4
    """Threads of a client that receive at the same time; a server's replies are received by one."""
    server_link_bits_per_s: float = 10e9
    client_link_bits_per_s: float = 25e9
    latency_s: float = 0.1e-3
    """One way, in one data centre."""


@dataclass(frozen=True)
class Load:
    """Lanes, and what they send."""

    lanes_per_server: int = 1024
    frame_bytes: int = 64 * 64 * 3
    other_bytes: int = 32
    """Bytes of a lane's reply beside its frame: reward, step type and framing."""
    action_bytes: int = 16
    """Bytes of a lane's request."""
    transport: Transport = "tls"

    @property
    def reply_bytes(self) -> int:
        """Bytes of a lane's step to the client over the network; none where memory is shared."""
        return 0 if self.transport == "shared" else self.frame_bytes + self.other_bytes

    @property
    def request_bytes(self) -> int:
        """Bytes of a lane's step to the server over the network."""
        return 0 if self.transport == "shared" else self.action_bytes


@dataclass(frozen=True)
class Disturbances:
    """Rates of losses, freezes and drains, and the times of recovery; 0 for a rate means never."""

    losses_per_s: float = 1 / (30 * 86400)
    """Losses of a server in a second: one in 30 days, assumed. Machines that may be taken away at any time are lost
    each day or so."""
    freezes_per_s: float = 1 / (7 * 86400)
    """Times that a server stops answering for a while, assumed: one a week."""
    freeze_s: float = 1.0
    """Mean of how long, exponential; assumed."""
    detection_s: tuple[float, float] = (1.5, 2.0)
    """Until a client takes a server for lost: three health checks, 0.5 s apart, counted from any moment between two."""
    notice_s: float = 5.0
    """Until the reconciler starts a server in place of one that is gone."""
    start_s: float = 1.0
    """Start of a server whose kernels are compiled; `make bench` measures 0.75 s to the first frame."""
    compile_s: float = 60.0
    """Further time on a machine that has not compiled them yet."""
    new_machine_share: float = 0.5
    """Part of the lost servers that are replaced on such a machine, assumed."""
    upgrades_per_s: float = 1 / 86400
    """Drains of each server: a rolling upgrade a day."""
    drained_share: float = 0.02
    """Servers that are drained at the same time, as a part of all; one at least."""
    episode_steps: int = 1000
    """Length of all episodes, so that a drain takes as many steps; mazes are interrupted after 1000."""
    drain_parts: int = 8
    """Lanes of a drained server are handed over in so many groups, each when its first lane's episode ends."""
    slow_share: float = 0.05
    """Part of the servers that have `slow_speed`, because of other load on their machines; assumed."""
    slow_speed: float = 0.5
    step_sigma: float = 0.1
    """Standard deviation of the logarithm of a server's time from step to step; assumed, as 95th percentile of 1.2
    times the median."""
    room_share: float = 1.0
    """Lanes that a server takes beyond those it begins with, as part of them. Memory is no limit before."""
    rebalances: bool = True
    """A server that comes back is given lanes of the others at the ends of their episodes, until all have as many."""


class ClientTimes(NamedTuple):
    """Times that a reply of some lanes takes of each resource of its client."""

    link_s: float
    """The link into the client's machine."""
    receive_s: float
    """The threads that receive, all together."""
    merge_s: float
    """The thread that steps the env: to send the request, read the reply, and copy it into the array of all lanes."""


CLIENT_RESOURCES = ClientTimes._fields


@dataclass(frozen=True)
class Model:
    """Costs, hardware and load together: the formulas of docs/scaling.md."""

    costs: Costs = Costs()
    hardware: Hardware = Hardware()
    load: Load = Load()

    def draw_s(self, lanes: float) -> float:
        """Return the time from a request of some lanes until they are drawn, on an idle server."""
        return self.costs.server_message_s + lanes * self.costs.draw_lane_s / self.hardware.server_cores

    def reply_s(self, lanes: float) -> float:
        """Return the time that a server takes to send a reply of some lanes."""
        costs, hardware = self.costs, self.hardware
        send_byte_s = costs.server_byte_s + (costs.server_tls_byte_s if self.load.transport == "tls" else 0.0)
        # One thread sends the reply of a stream, while the link carries what it has sent.
        byte_s = max(send_byte_s, 8 / hardware.server_link_bits_per_s)
        return lanes * self.load.reply_bytes * byte_s

    def server_step_s(self, lanes: float) -> float:
        """Return the time from a request of some lanes until the last byte of its reply has left, on an idle server."""
        return self.draw_s(lanes) + self.reply_s(lanes)

    def client_times(self, lanes: float, servers: int) -> ClientTimes:
        """Return the times of a reply of some lanes at a client with so many servers."""
        costs, hardware = self.costs, self.hardware
        if self.load.transport == "shared":
            return ClientTimes(0.0, 0.0, costs.shared_message_s)  # servers draw into the client's array
        reply_bytes = lanes * self.load.reply_bytes
        receive_byte_s = costs.client_byte_s + (costs.client_tls_byte_s if self.load.transport == "tls" else 0.0)
        return ClientTimes(
            8 * reply_bytes / hardware.client_link_bits_per_s,
            reply_bytes * receive_byte_s / min(hardware.receive_threads, servers),
            costs.client_message_s + (reply_bytes / costs.copy_bytes_per_s if servers > 1 else 0.0),
        )

    def make_s(self, lanes: float) -> float:
        """Return the time to make lanes on a server."""
        return self.costs.make_fixed_s + lanes * self.costs.make_lane_s

    def bounds(self, servers: int) -> dict[str, float]:
        """Return the lane-steps a second that each resource allows, with one client."""
        lanes = self.load.lanes_per_server
        times = self.client_times(lanes, servers)
        rates = {name: lanes / time_s if time_s else math.inf for name, time_s in times._asdict().items()}
        return {
            "servers": servers * self.server_rate,
            **{name.removesuffix("_s"): rate for name, rate in rates.items()},
        }

    @property
    def server_rate(self) -> float:
        """Lane-steps a second of one server that never waits."""
        return self.load.lanes_per_server / self.server_step_s(self.load.lanes_per_server)

    @property
    def servers_per_client(self) -> int:
        """Servers whose lanes one client can take, at least one."""
        count = 1
        while min(self.bounds(count + 1), key=self.bounds(count + 1).__getitem__) == "servers" and count < 10_000:
            count += 1
        return count


class Sizing(NamedTuple):
    """Numbers of machines for a load."""

    servers: int
    clients: int
    network_bits_per_s: float
    """Bits a second into all clients together."""
    server_memory_bytes: float
    """Bytes of memory of each server's lanes."""
    client_limit: str
    """The resource that limits a client first."""


def size_fleet(model: Model, frames_per_s: float, lanes: int, use: float = 0.8) -> Sizing:
    """Return the servers and clients that a load needs, if they are to be busy for no more than this share of time."""
    servers = math.ceil(frames_per_s / (use * model.server_rate))
    is_shared = model.load.transport == "shared"
    bounds = model.bounds(1 if is_shared else max(servers, 2))
    client_bounds = {name: rate for name, rate in bounds.items() if name != "servers"}
    limit = min(client_bounds, key=client_bounds.__getitem__)
    # Memory is shared with clients on the same machine alone: one beside each server.
    clients = servers if is_shared else max(1, math.ceil(frames_per_s / (use * client_bounds[limit])))
    memory_bytes = math.ceil(lanes / servers) * model.costs.lane_memory_bytes
    return Sizing(servers, clients, 8 * frames_per_s * model.load.reply_bytes, memory_bytes, limit)


def one_machine_rate(costs: Costs, servers: int, threads: int, cores: int, lanes: int) -> float:
    """Return the lane-steps a second of servers on one machine with their client, with frames in shared memory.

    Each server has so many threads that draw. Servers work at the same time, on the cores that there are; the client
    steps all lanes together, and merges replies when no server has anything to do.
    """
    model = Model(costs, Hardware(server_cores=threads), Load(transport="shared"))
    each_s = model.server_step_s(lanes / servers)
    busy_cores = servers * threads
    return lanes / (
        each_s * max(1.0, busy_cores / cores) + servers * model.client_times(lanes / servers, servers).merge_s
    )


def measure_copy_bytes_per_s() -> float:
    """Measure how fast frames that are not in the cache are copied into one large array."""
    parts = [np.full(12 << 20, index, np.uint8) for index in range(32)]
    whole = np.ones(len(parts) * parts[0].size, np.uint8)
    best_s = math.inf
    for _ in range(3):
        begin_s = time.perf_counter()
        for index, part in enumerate(parts):
            whole[index * part.size : (index + 1) * part.size] = part
        best_s = min(best_s, time.perf_counter() - begin_s)
    return whole.size / best_s


def _check_positive(parser: argparse.ArgumentParser, name: str, value: float) -> None:
    if not 0 < value < math.inf:
        parser.error(f"--{name.replace('_', '-')} is {value:g}: expected a number above 0")


def main(given: list[str] | None = None) -> int:
    """Print the sizing of a load."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--frames-per-s", type=float, default=1e6, help="frames a second (default: %(default)g)")
    parser.add_argument("--lanes", type=int, default=1_000_000, help="lanes (default: %(default)s)")
    parser.add_argument("--frame-bytes", type=int, default=Load.frame_bytes, help="bytes of a frame (default: 64² rgb)")
    parser.add_argument("--transport", choices=("tcp", "tls", "shared"), default="tls")
    parser.add_argument("--lanes-per-server", type=int, default=Load.lanes_per_server, help="lanes of a message")
    parser.add_argument("--server-cores", type=int, default=Hardware.server_cores)
    parser.add_argument("--client-gbit-per-s", type=float, default=Hardware.client_link_bits_per_s / 1e9)
    parser.add_argument("--profile", type=Path, metavar="FILE", help="profile.json to take the costs from")
    parser.add_argument("--machine-cores", type=int, metavar="N", help="also print rates of servers on one machine")
    parser.add_argument("--copy", action="store_true", help="measure how fast this machine copies frames")
    args = parser.parse_args(given)
    for name in ("frames_per_s", "lanes", "frame_bytes", "lanes_per_server", "server_cores", "client_gbit_per_s"):
        _check_positive(parser, name, getattr(args, name))
    if args.machine_cores is not None:
        _check_positive(parser, "machine_cores", args.machine_cores)
    try:
        costs = Costs() if args.profile is None else Costs.from_profile(json.loads(args.profile.read_text()))
    except OSError as error:
        parser.error(f"--profile {args.profile}: {error.strerror}; expected the profile.json of `worldloom profile`")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        parser.error(f"--profile {args.profile} is no profile of the costs: {type(error).__name__}: {error}")
    if args.copy:
        costs = dataclasses.replace(costs, copy_bytes_per_s=measure_copy_bytes_per_s())
    hardware = Hardware(server_cores=args.server_cores, client_link_bits_per_s=args.client_gbit_per_s * 1e9)
    load = Load(args.lanes_per_server, frame_bytes=args.frame_bytes, transport=args.transport)
    model = Model(costs, hardware, load)
    for name, value in dataclasses.asdict(costs).items():
        print(f"{name:20} {value:.3g}")
    print(f"\na server of {hardware.server_cores} cores: {model.server_rate:,.0f} frames/s")
    for name, rate in model.bounds(100).items():
        if name != "servers":
            print(f"a client's {name}: {rate:,.0f} frames/s")
    sizing = size_fleet(model, args.frames_per_s, args.lanes)
    print(
        f"{args.frames_per_s:,.0f} frames/s in {args.lanes:,} lanes, each machine busy for 80 % at most:\n"
        f"  {sizing.servers} servers, with {sizing.server_memory_bytes / 2**30:.1f} GiB of lanes each\n"
        f"  {sizing.network_bits_per_s / 1e9:.1f} Gbit/s to {sizing.clients} clients, "
        f"each limited by its {sizing.client_limit} first"
    )
    if args.machine_cores is not None:
        for servers in (1, 2, 4):
            apart = one_machine_rate(costs, servers, 1, args.machine_cores, args.lanes_per_server)
            together = one_machine_rate(costs, 1, servers, args.machine_cores, args.lanes_per_server)
            print(f"{servers} servers of a thread: {apart:,.0f} frames/s; one of {servers}: {together:,.0f} frames/s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
