"""Run of a demo: start a server, measure two groups of clients, print a table of both, and save images.

Imported only once the options are known to be right: gRPC takes a while to load.
"""

import argparse
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import grpc
from dm_env_rpc.v1.error import DmEnvRpcError
from PIL import Image

from worldloom.client import ClientError
from worldloom.demo.clients import FAMILIES, ClientGroup, CounterReader, Counters, SingleStreams, VectorWorlds
from worldloom.demo.images import write_gif
from worldloom.demo.recording import VIDEO_FRAME_S, record
from worldloom.server.launch import ServerProcess
from worldloom.terminal import print_table, print_text, show_progress

_NOTE = "(All clients are threads of one Python process.)"
_RECORDING_FRACTION = 0.6
"""Part of the time of recording and writing that recording takes."""


@dataclass(frozen=True)
class Measurement:
    """Throughput of one group of clients."""

    name: str
    frames_come: str
    """How frames come: `in replies` or `in shared memory`."""
    worlds: int
    steps: Mapping[str, int]
    """Steps of worlds by family, as the clients counted them."""
    counted: Counters
    """Increase of the server's counters meanwhile."""


def run_demo(args: argparse.Namespace, video: Path) -> None:
    """Serve, step, print how fast it was, and save images. RuntimeError says in one line what failed."""
    print("starting a server in another process", file=sys.stderr, flush=True)
    flags = ["--listen", "127.0.0.1:0", "--log-level", "warning", "--renderer", args.renderer]
    flags += [] if args.device is None else ["--device", str(args.device)]
    with ServerProcess(*flags, show_stderr=True) as server:
        try:
            with closing(CounterReader(server.address)) as reader:
                renderer = f"{reader.text('server.renderer')}, {reader.text('server.device')}"
                print(f"server: process {server.pid} at {server.address}, renderer {renderer}", flush=True)
                measured = []
                for connect in (
                    lambda: SingleStreams(server.address, args.streams, args.size),
                    lambda: VectorWorlds(server.address, args.lanes, args.size),
                ):
                    with closing(connect()) as clients:
                        measured.append(_measure(clients, reader, args.seconds / 2))
            print(f"\n{args.size} x {args.size} rgb")
            print_table(table_rows(measured), text_columns=1, indent=0)
            print_text(_NOTE)
            print(flush=True)
            _save_images(server.address, args.frames, args.out, video)
        except grpc.RpcError as error:
            raise RuntimeError(f"lost the server at {server.address}: {error.details()}") from error
        except (ClientError, DmEnvRpcError) as error:
            raise RuntimeError(str(error)) from error


def table_rows(measured: Sequence[Measurement]) -> list[list[str]]:
    """Return the rows of the table: a name, and a cell for each group of clients."""

    def row(name: str, cell: Callable[[Measurement], str]) -> list[str]:
        return [name, *(cell(one) for one in measured)]

    rows = [
        row("", lambda one: one.name),
        row("frames come", lambda one: one.frames_come),
        row("worlds", lambda one: f"{one.worlds:,}"),
        row("frames a second", lambda one: f"{one.counted.frames / one.counted.time_s:,.0f}"),
    ]
    rows += [row(f"  {family}", partial(_family_cell, family)) for family in measured[0].steps]
    rows.append(row("mean batch, streams", lambda one: f"{_per_batch(one, one.counted.steps):,.1f}"))
    rows.append(row("mean batch, worlds", lambda one: f"{_per_batch(one, one.counted.lane_steps):,.1f}"))
    if all(_all_stages_s(one) > 0 for one in measured):
        rows.append(row("time of a batch, ms", lambda one: _time_cell(one, _all_stages_s(one))))
        # Without stages that took no time, such as those of the other renderer.
        stages = [stage for stage in measured[0].counted.stage_s if any(one.counted.stage_s[stage] for one in measured)]
        rows += [row(f"  {stage}", partial(_stage_cell, stage)) for stage in stages]
    return rows


def _per_batch(one: Measurement, count: float) -> float:
    return count / max(1, one.counted.ticks)


def _all_stages_s(one: Measurement) -> float:
    return sum(one.counted.stage_s.values())


def _family_cell(family: str, one: Measurement) -> str:
    return f"{one.steps[family] / one.counted.time_s:,.0f}"


def _stage_cell(stage: str, one: Measurement) -> str:
    return _time_cell(one, one.counted.stage_s[stage])


def _time_cell(one: Measurement, spent_s: float) -> str:
    return f"{1e3 * _per_batch(one, spent_s):.2f} {spent_s / _all_stages_s(one):6.1%}"


def _measure(clients: ClientGroup, reader: CounterReader, seconds: float) -> Measurement:
    """Step for `seconds`, and until every family has taken a step."""
    with show_progress(f"{clients.name}, {seconds:g} s") as update:
        before = reader.read()
        began_s = time.perf_counter()

        def is_over() -> bool:
            passed_s = time.perf_counter() - began_s
            steps = [clients.steps(family) for family in FAMILIES]
            update(min(1.0, passed_s / seconds), f"{sum(steps) / passed_s:,.0f} frames a second")
            return passed_s >= seconds and all(steps)

        clients.step_until(is_over)
        steps = {family: clients.steps(family) for family in FAMILIES}
        return Measurement(clients.name, clients.frames_come, clients.worlds, steps, reader.read().since(before))


def _save_images(address: str, count: int, sheet_path: Path, video_path: Path) -> None:
    with show_progress("recording") as update:
        video, sheet = record(address, count, lambda fraction: update(_RECORDING_FRACTION * fraction, ""))
        Image.fromarray(sheet).save(sheet_path)
        update(_RECORDING_FRACTION, "writing the files")
        write_gif(video_path, video, VIDEO_FRAME_S)
    print(f"saved {sheet_path}: some of the worlds in rgb, the last row also in depth and labels")
    print(f"saved {video_path}: {count} frames of them")
