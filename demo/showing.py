"""What happens in a demo, from the start of its server to the last picture."""

import argparse
import sys
import time
from contextlib import closing
from pathlib import Path

import grpc
from dm_env_rpc.v1.error import DmEnvRpcError

from worldloom.client import ClientError
from worldloom.demo.counters import Watch
from worldloom.demo.crowd import FAMILIES, Crowd, SingleStreams, VectorWorlds
from worldloom.demo.film import FRAME_S, shoot
from worldloom.demo.own_server import flags_of, own_server
from worldloom.demo.progress import progress
from worldloom.demo.report import Figures, report
from worldloom.render.gif import write_gif
from worldloom.render.png import write_png

_REMARK = "(All clients are threads of one Python process.)"


def show(args: argparse.Namespace, film: Path) -> None:
    """Serve, step, say how fast it went, and save pictures. What goes wrong is a RuntimeError in one line."""
    print("starting a server in another process", file=sys.stderr, flush=True)
    with own_server(*flags_of([("renderer", args.renderer), ("device", args.device)])) as server:
        try:
            with closing(Watch(server.address)) as watch:
                drawn_by = f"{watch.text('server.renderer')}, {watch.text('server.device')}"
                print(f"server: process {server.pid} at {server.address}, renderer {drawn_by}", flush=True)
                found = []
                for crowd in (
                    lambda: SingleStreams(server.address, args.streams, args.size),
                    lambda: VectorWorlds(server.address, args.lanes, args.size),
                ):
                    with closing(crowd()) as clients:
                        found.append(_measure(clients, watch, args.seconds / 2))
            print(f"\n{args.size} x {args.size} rgb\n" + "\n".join(report(found)) + f"\n{_REMARK}\n", flush=True)
            _take_pictures(server.address, args.frames, args.out, film)
        except grpc.RpcError as error:
            raise RuntimeError(f"lost the server at {server.address}: {error.details()}") from error
        except (ClientError, DmEnvRpcError) as error:
            raise RuntimeError(str(error)) from error


def _measure(crowd: Crowd, watch: Watch, seconds: float) -> Figures:
    """Step for so long."""
    with progress(f"{crowd.name}, {seconds:g} s") as tell:
        before = watch.read()
        began_s = time.perf_counter()

        def is_over() -> bool:
            passed_s = time.perf_counter() - began_s
            steps = [crowd.steps(family) for family in FAMILIES]
            tell(min(1.0, passed_s / seconds), f"{sum(steps) / passed_s:,.0f} frames a second")
            return passed_s >= seconds and all(steps)

        crowd.step_until(is_over)
        steps = {family: crowd.steps(family) for family in FAMILIES}
        return Figures(crowd.name, crowd.way, crowd.worlds, steps, watch.read().since(before))


def _take_pictures(address: str, count: int, sheet: Path, film: Path) -> None:
    with progress("filming") as tell:
        frames, still = shoot(address, count, lambda part: tell(0.6 * part, ""))
        write_png(sheet, still)
        tell(0.6, "writing it")
        write_gif(film, frames, FRAME_S)
    print(f"saved {sheet}: some of the worlds; of its last row of them also depth and labels")
    print(f"saved {film}: {count} frames of them")
