"""Fleets of 10 to 1,000 servers, simulated: `python -m scripts.fleet_simulation --servers 10 100 1000`.

A seeded discrete-event simulation of clients and servers with losses, freezes, slow servers and a rolling upgrade. It
prints the lane-steps a second of each arrangement, the share of steps that is lost, how long lost lanes take to step
again, and which resource limits it. The same arguments give the same figures. docs/scaling.md has its results.

Clients of one fleet have servers of their own, so that each is simulated by itself, and their sums are the fleet's.
"""

import argparse
import dataclasses
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from scripts.fleet_events import ClientSimulation, Mode, Totals
from scripts.fleet_model import CLIENT_RESOURCES, Costs, Disturbances, Load, Model
from worldloom.terminal import print_heading, print_table


@dataclass(frozen=True)
class Arrangement:
    """A way to divide a fleet's lanes over clients."""

    name: str
    mode: Mode
    load: Load
    servers_per_client: int | None = None
    """None for one client with all servers."""


def list_arrangements(model: Model) -> list[Arrangement]:
    """Return one client, and what can be done where it is the limit."""
    load = model.load
    gray = dataclasses.replace(load, frame_bytes=load.frame_bytes // 3)
    shared = dataclasses.replace(load, transport="shared")
    few = model.servers_per_client
    return [
        Arrangement("one client, step", "step", load),
        Arrangement("one client, recv", "recv", load),
        Arrangement("one client, recv, gray frames", "recv", gray),
        Arrangement(f"a client for {few} servers, step", "step", load, few),
        Arrangement(f"a client for {few} servers, recv", "recv", load, few),
        Arrangement(f"a client for {few} servers, recv, 2 streams", "recv, 2 streams", load, few),
        Arrangement("a client beside each server", "step", shared, 1),
    ]


@dataclass(frozen=True)
class Result:
    """Figures of a fleet; docs/scaling.md describes each."""

    arrangement: str
    servers: int
    clients: int
    lanes: int
    hours: float
    lane_steps_per_s: float
    efficiency: float
    """Lane-steps a second as a part of what all servers could make that never wait."""
    limit: str
    """The resource that is busy for the largest share of time: servers, or the client's link, receive or merge."""
    limit_use: float
    server_use: float
    """Share of time that servers work."""
    parked_share: float
    """Lanes' time without a server."""
    stalled_share: float
    """Lanes' time in a step that waits for a server that does not answer."""
    truncated_share: float
    """Steps in episodes that a loss has truncated."""
    losses: int
    drains: int
    recovery_s: dict[str, float | None]
    """From a loss until all its lanes step again: median, 95th percentile and largest; None without losses."""
    client_cores: float
    """Cores that a client keeps busy: receiving and merging."""
    client_in_bits_per_s: float
    client_out_bits_per_s: float


def simulate(
    model: Model, disturbances: Disturbances, arrangement: Arrangement, servers: int, hours: float, seed: int
) -> Result:
    """Simulate a fleet for so long."""
    model = dataclasses.replace(model, load=arrangement.load)
    clients = -(-servers // (arrangement.servers_per_client or servers))
    sizes = [len(part) for part in np.array_split(np.arange(servers), clients)]
    seeds = np.random.SeedSequence(seed).spawn(clients)
    totals = [
        ClientSimulation(model, disturbances, size, arrangement.mode, np.random.default_rng(one)).run(3600 * hours)
        for size, one in zip(sizes, seeds, strict=True)
    ]
    return _summarise(model, arrangement, sizes, hours, totals)


def _summarise(
    model: Model, arrangement: Arrangement, sizes: Sequence[int], hours: float, totals: Sequence[Totals]
) -> Result:
    seconds, servers, clients = 3600 * hours, sum(sizes), len(sizes)
    lane_steps = sum(one.lane_steps for one in totals)
    lane_s = sum(one.lane_s for one in totals)
    client_use = np.sum([one.busy_s for one in totals], axis=0) / seconds / clients
    uses = {name.removesuffix("_s"): float(use) for name, use in zip(CLIENT_RESOURCES, client_use, strict=True)}
    server_use = sum(one.server_busy_s for one in totals) / seconds / servers
    limit, limit_use = max({"servers": server_use, **uses}.items(), key=lambda one: one[1])
    threads = min(model.hardware.receive_threads, max(sizes))
    recovery_s = [time_s for one in totals for time_s in one.recovery_s]
    cuts = np.quantile(recovery_s, [0.5, 0.95, 1.0]).tolist() if recovery_s else [None] * 3
    rate = lane_steps / seconds
    return Result(
        arrangement=arrangement.name,
        servers=servers,
        clients=clients,
        lanes=servers * model.load.lanes_per_server,
        hours=hours,
        lane_steps_per_s=rate,
        efficiency=rate / (servers * model.server_rate),
        limit=limit,
        limit_use=limit_use,
        server_use=server_use,
        parked_share=sum(one.parked_lane_s for one in totals) / lane_s,
        stalled_share=sum(one.stalled_lane_s for one in totals) / lane_s,
        truncated_share=sum(one.truncated_steps for one in totals) / lane_steps if lane_steps else 0.0,
        losses=sum(one.losses for one in totals),
        drains=sum(one.drains for one in totals),
        recovery_s=dict(zip(("median", "p95", "largest"), cuts, strict=True)),
        client_cores=threads * uses["receive"] + uses["merge"],
        client_in_bits_per_s=8 * rate * model.load.reply_bytes / clients,
        client_out_bits_per_s=8 * rate * model.load.request_bytes / clients,
    )


HEADS = ["arrangement", "servers", "clients", "lane-steps/s", "efficiency", "busiest", "parked", "stalled", "truncated"]
HEADS += ["recovery, 50 and 95 %", "client cores", "client in"]


def _cells(one: Result) -> list[str]:
    median_s, p95_s = one.recovery_s["median"], one.recovery_s["p95"]
    return [
        one.arrangement,
        f"{one.servers:,}",
        f"{one.clients:,}",
        f"{one.lane_steps_per_s:,.0f}",
        f"{100 * one.efficiency:.1f} %",
        f"{one.limit}, {100 * one.limit_use:.0f} %",
        *(f"{1e6 * share:.0f} ppm" for share in (one.parked_share, one.stalled_share, one.truncated_share)),
        "-" if median_s is None or p95_s is None else f"{median_s:.1f} s, {p95_s:.1f} s",
        f"{one.client_cores:.1f}",
        f"{one.client_in_bits_per_s / 1e9:.1f} Gbit/s",
    ]


def write_markdown(path: Path, results: Sequence[Result]) -> None:
    """Write the results as a Markdown table."""
    rows = [HEADS, ["---"] * len(HEADS), *map(_cells, results)]
    path.write_text("".join(f"| {' | '.join(row)} |\n" for row in rows), encoding="utf-8")


def plot(path: Path, model: Model, results: Sequence[Result]) -> None:
    """Draw lane-steps a second and efficiency by number of servers."""
    # Imported here: matplotlib comes with the extra `report`, and takes a second to load.
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10.5, 4.4), layout="constrained")
    rates, efficiencies = figure.subplots(1, 2)
    counts = sorted({one.servers for one in results})
    rates.plot(counts, [count * model.server_rate for count in counts], "k--", linewidth=1, label="all servers busy")
    for name in dict.fromkeys(one.arrangement for one in results):
        own = sorted((one for one in results if one.arrangement == name), key=lambda one: one.servers)
        places = [one.servers for one in own]
        rates.plot(places, [one.lane_steps_per_s for one in own], marker="o", markersize=4, label=name)
        efficiencies.plot(places, [100 * one.efficiency for one in own], marker="o", markersize=4)
    rates.set(xscale="log", yscale="log", xlabel="servers", ylabel="lane-steps a second")
    efficiencies.set(xscale="log", xlabel="servers", ylabel="% of what all servers could make", ylim=(0, None))
    for axes in (rates, efficiencies):
        axes.grid(True, color="#e3e6ee")
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside lower center", ncols=3, frameon=False)
    figure.savefig(path, dpi=120)


def _prepare(path: Path) -> None:
    """Make the directory of a file, and check that it can be written: the run before takes minutes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    is_new = not path.exists()
    path.open("ab").close()
    if is_new:
        path.unlink()


def parse_arguments(given: list[str] | None) -> argparse.Namespace:
    """Return the arguments; exits with 2 where they are wrong."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--servers", type=int, nargs="+", default=[10, 30, 100, 300, 1000], metavar="N")
    parser.add_argument("--lanes-per-server", type=int, default=Load.lanes_per_server, metavar="N")
    parser.add_argument(
        "--hours",
        type=float,
        default=6.0,
        help="time of the largest fleet; smaller ones run for as many server-hours (default: %(default)s)",
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--draw-lane-us", type=float, default=1e6 * Costs.draw_lane_s, help="cost of a lane's frame")
    parser.add_argument("--loss-days", type=float, default=30.0, help="mean days until a server is lost; 0: never")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write model and results there")
    parser.add_argument("--table", type=Path, metavar="FILE", help="write the table as Markdown there")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw lane-steps a second as PNG there")
    args = parser.parse_args(given)
    if min(*args.servers, args.lanes_per_server) < 1 or min(args.hours, args.draw_lane_us) <= 0:
        parser.error("expected servers and lanes of at least 1, hours and microseconds above 0")
    if args.loss_days < 0 or args.seed < 0:
        parser.error("expected no days and no seed below 0")
    for path in (args.json, args.table, args.plot):
        if path is not None:
            try:
                _prepare(path)
            except OSError as error:
                parser.error(f"{path} cannot be written: {error.strerror}; expected the path of a file")
    return args


def main(given: list[str] | None = None) -> int:
    """Simulate all fleets, print their figures, and write the files."""
    args = parse_arguments(given)
    model = Model(Costs(draw_lane_s=1e-6 * args.draw_lane_us), load=Load(args.lanes_per_server))
    losses_per_s = 1 / (86400 * args.loss_days) if args.loss_days else 0.0
    disturbances = Disturbances(losses_per_s=losses_per_s)
    results = [
        simulate(model, disturbances, arrangement, servers, args.hours * max(args.servers) / servers, args.seed)
        for arrangement in list_arrangements(model)
        for servers in sorted(set(args.servers))
    ]
    server_hours = args.hours * max(args.servers)
    print_heading(f"{server_hours:g} server-hours each, {args.lanes_per_server:,} lanes a server, seed {args.seed}")
    print_table([_cells(one) for one in results], text_columns=1, heads=HEADS)
    if args.json is not None:
        content: dict[str, Any] = {
            "seed": args.seed,
            "model": dataclasses.asdict(model),
            "disturbances": dataclasses.asdict(disturbances),
            "results": [dataclasses.asdict(one) for one in results],
        }
        args.json.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    if args.table is not None:
        write_markdown(args.table, results)
    if args.plot is not None:
        plot(args.plot, model, results)
    return 0


if __name__ == "__main__":
    sys.exit(main())
