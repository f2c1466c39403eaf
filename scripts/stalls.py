"""Measure how long one client's requests hold up the steps of another: `python -m scripts.stalls`.

A witness in another process steps a world of its own all the time and notes when each step began and how long it took,
while this process sends what could hold it up: large worlds, their first steps and resets, models that take long to
load, requests of 4 MB. Prints the witness's longest step during each; exits with 1 if one took longer than the limit.
With `--server` it measures a server that runs already.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

from dm_env_rpc.v1 import dm_env_rpc_pb2 as rpc

from scripts.report import Report
from scripts.support.messages import RequestFailed, packed
from scripts.support.server_process import serving
from scripts.support.stream_client import StreamClient

MOST_S = 0.1
"""Longest time that a step may be held up by what is not a step."""
_LIFETIME_S = 600.0
_QUIET_S = 1.0
_MAX_REPLY_BYTES = 1 << 28


class Moment(NamedTuple):
    """One step of the witness, in seconds of the monotonic clock."""

    start_s: float
    took_s: float


def witness(address: str) -> None:
    """Step until standard input ends; then print all moments as JSON."""
    moments: list[Moment] = []
    with StreamClient(address, _LIFETIME_S) as client:
        client.join(client.create("catch"), width=8, height=8)
        client.step()
        print("ready", flush=True)
        end = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"])
        while end.poll() is None:
            start_s = time.monotonic()
            client.step("reward", "eye.gray")
            moments.append(Moment(start_s, time.monotonic() - start_s))
            time.sleep(0.001)
    print(json.dumps(moments))


@contextmanager
def watching(address: str) -> Iterator[Callable[[], list[Moment]]]:
    """Yield a function that ends the witness and returns its moments."""
    command = [sys.executable, "-m", "scripts.stalls", "--witness", address]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:

        def finish() -> list[Moment]:
            printed, _ = process.communicate(timeout=_LIFETIME_S)
            return [Moment(*moment) for moment in json.loads(printed)]

        try:
            assert process.stdout is not None
            if process.stdout.readline() != "ready\n":
                raise RuntimeError("the witness did not get ready: see above")
            yield finish
        finally:
            process.kill()


def disturb(address: str, lanes: int, model_lanes: int) -> Iterator[tuple[str, Callable[[], None]]]:
    """Yield what could hold up others, by name, to be done one after the other."""
    client = StreamClient(address, _LIFETIME_S)
    other = StreamClient(address, _LIFETIME_S)
    join = {"width": 4, "height": 4, "max_reply_bytes": _MAX_REPLY_BYTES}
    world = ""

    def create(family: str, **settings: object) -> None:
        nonlocal world
        world = client.create(family, **settings)
        client.join(world, observations=["step_type", "eye.gray"], **join)

    def leave() -> None:
        client.leave()
        client.destroy(world)

    def send(**payload: object) -> None:
        with suppress(RequestFailed):
            client.ask(**payload)

    yield "nothing", lambda: time.sleep(_QUIET_S)
    yield f"create a maze of 31 x 31 with {lanes} lanes", lambda: create("maze", size=31, lanes=lanes, seed=1)
    yield "its first step, without frames", lambda: _discard(client.step("step_type"))
    yield "Reset, and its next step", lambda: _step_after_reset(client)
    yield "ResetWorld with another size, while it has no agent", lambda: _move(client, other, world)
    yield "destroy it", lambda: client.destroy(world)
    yield "load a MuJoCo model", lambda: create("dmc", domain="cartpole", task="balance", seed=1)
    yield "leave it", leave
    settings = {"domain": "humanoid_CMU", "task": "run", "lanes": model_lanes, "seed": 1}
    yield f"create humanoid_CMU with {model_lanes} lanes", lambda: create("dmc", **settings)
    yield "its first step, without frames", lambda: _discard(client.step("step_type"))
    yield "destroy it", leave
    create("catch")
    client.step()
    uids = rpc.StepRequest(requested_observations=[1] * ((4 << 20) - 64))
    yield "4 MB of UIDs in a step", lambda: send(step=uids)
    many = rpc.CreateWorldRequest(settings=packed({"family": "catch", **{str(k): k for k in range(180_000)}}))
    yield "4 MB of settings", lambda: send(create_world=many)
    other.close()
    client.close()


def _discard(_reply: object) -> None:
    pass


def _step_after_reset(client: StreamClient) -> None:
    client.ask(reset=rpc.ResetRequest())
    client.step("step_type")


def _move(client: StreamClient, other: StreamClient, world: str) -> None:
    client.leave()
    other.ask(reset_world=rpc.ResetWorldRequest(world_name=world, settings=packed({"size": 29})))


def run(address: str, lanes: int, model_lanes: int, most_s: float) -> Report:
    """Measure a server."""
    report = Report()
    phases: list[tuple[str, float, float]] = []
    with watching(address) as finish:
        for name, do in disturb(address, lanes, model_lanes):
            start_s = time.monotonic()
            do()
            phases.append((name, start_s, time.monotonic()))
        moments = finish()
    for name, start_s, end_s in phases:
        during = [one.took_s for one in moments if one.start_s < end_s and one.start_s + one.took_s > start_s]
        longest_s = max(during, default=0.0)
        median_s = statistics.median(during) if during else 0.0
        text = f"took {end_s - start_s:6.2f} s; steps of another client: longest {longest_s * 1e3:6.0f} ms,"
        report.row(name, f"{text} median {median_s * 1e3:4.1f} ms")
        report.expect(longest_s <= most_s, f"{name}: a step took {longest_s:.3f} s, expected {most_s} at most")
    return report


def main(given: list[str] | None = None) -> int:
    """Measure and print the report."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--server", metavar="ADDRESS", help="measure this server instead of a new one")
    parser.add_argument("--lanes", type=int, default=16_384, help="lanes of the maze (default: %(default)s)")
    parser.add_argument("--model-lanes", type=int, default=128, help="lanes of humanoid_CMU (default: %(default)s)")
    parser.add_argument("--most-s", type=float, default=MOST_S, help="limit in seconds (default: %(default)s)")
    parser.add_argument("--witness", metavar="ADDRESS", help=argparse.SUPPRESS)
    args = parser.parse_args(given)
    if args.witness:
        witness(args.witness)
        return 0
    if args.server:
        return run(args.server, args.lanes, args.model_lanes, args.most_s).tell()
    with serving() as server:
        return run(server.address, args.lanes, args.model_lanes, args.most_s).tell()


if __name__ == "__main__":
    sys.exit(main())
