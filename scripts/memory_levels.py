"""Memory of a server whose worlds come and go: `python -m scripts.memory_levels`.

Creates worlds of a dm_control task one after the other, each with settings of its own so that its model is compiled
anew, steps them with frames, destroys them, and prints the server's memory while each is there and after it is gone.
The level must stay that after the first. Exits with 1 if it does not.
"""

import argparse
import sys
import time

from scripts.report import Report
from scripts.support.server_process import ServerProcess, serving
from scripts.support.stream_client import StreamClient

MOST_GROWTH_MIB = 50.0
"""Above the level after the first world. That one includes what stays for good: dm_control's modules, MuJoCo's library,
kernels and the drawn meshes and textures of the model."""
_STEPS = 3
_GIVEN_BACK_WITHIN_S = 30.0
_STREAM_S = 7200.0


def run_world(wire: StreamClient, server: ServerProcess, domain: str, task: str, lanes: int, cycle: int) -> float:
    """Create a world, step it with frames and destroy it; return the server's memory in MiB before it is destroyed."""
    world = wire.create("dmc", domain=domain, task=task, lanes=lanes, seed=cycle, time_limit=10.0 + cycle)
    wire.join(world, width=64, height=64, observations=["eye.rgb"])
    for _ in range(_STEPS):
        wire.step("eye.rgb")
    held_mib = server.resident_bytes / 2**20
    wire.leave()
    wire.destroy(world)
    return held_mib


def level_after(server: ServerProcess, most_mib: float) -> float:
    """Return the server's memory in MiB once it is below this, or when there was time enough to give it back."""
    deadline_s = time.monotonic() + _GIVEN_BACK_WITHIN_S
    while True:
        server.wait_until_idle()
        level_mib = server.resident_bytes / 2**20
        if level_mib <= most_mib or time.monotonic() > deadline_s:
            return level_mib
        time.sleep(0.1)


def measure(domain: str, task: str, lanes: int, cycles: int) -> Report:
    """Run the worlds and report the levels."""
    report = Report()
    with serving("--log-level", "warning") as server, StreamClient(server.address, _STREAM_S) as wire:
        print(f"before: {server.resident_bytes / 2**20:.0f} MiB", flush=True)
        first_mib = None
        for cycle in range(cycles):
            held_mib = run_world(wire, server, domain, task, lanes, cycle)
            if first_mib is None:
                time.sleep(1.0)  # what is given back comes a moment later, on another thread
                first_mib = level_after(server, held_mib)
            level_mib = level_after(server, first_mib + MOST_GROWTH_MIB)
            print(f"world {cycle + 1}: {held_mib:.0f} MiB, {level_mib:.0f} MiB when destroyed", flush=True)
            report.expect(
                level_mib <= first_mib + MOST_GROWTH_MIB,
                f"{level_mib:.0f} MiB after world {cycle + 1}: expected {first_mib + MOST_GROWTH_MIB:.0f} at most",
            )
    return report


def main(given: list[str] | None = None) -> int:
    """Run, and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--domain", default="dog")
    parser.add_argument("--task", default="walk")
    parser.add_argument("--lanes", type=int, default=4)
    parser.add_argument("--worlds", type=int, default=40, help="worlds, one after the other (default: %(default)s)")
    args = parser.parse_args(given)
    return measure(args.domain, args.task, args.lanes, args.worlds).tell()


if __name__ == "__main__":
    sys.exit(main())
