"""The clients of the kills: one process with a few streams.

    python -m scripts.kills_client doomed ADDRESS NUMBER STAGE WORLD
    python -m scripts.kills_client survivor ADDRESS NUMBER

`doomed` creates and leaves worlds at random, seeded by its number, until it is killed. It says when one of
them comes to that stage. A stream of every other process joins WORLD, where its steps wait. `survivor` steps until the
server is gone, and says as a line of JSON what became of each stream. Both print `ready`, and begin when a line comes.
"""

import json
import random
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import grpc
import numpy as np
from dm_env_rpc.v1 import dm_env_rpc_pb2 as rpc

from scripts.support.messages import packed
from scripts.support.shared_memory import MappedSegment
from scripts.support.stream_client import StreamClient

STAGES = (
    "connecting",
    "creating",
    "joining",
    "mapping",
    "stepping",
    "waiting",
    "idling",
    "resetting",
    "leaving",
    "any",
)
"""Where a client can be when it is killed; `any` is wherever it is after a while."""
FAMILIES = ("catch", "cartpole", "maze")
_STREAMS = 3
_LIFETIME_S = 120.0


class Kind(NamedTuple):
    """How a stream of a doomed client lives."""

    lanes: int | None
    shm: bool
    side: int = 32


KINDS = (
    Kind(None, False),
    Kind(None, True),
    Kind(16, False),
    Kind(64, True),
    Kind(256, False, 64),
    Kind(256, True, 64),
)


class Doomed:
    """One stream after the other. `reach` is told each stage."""

    def __init__(self, address: str, rng: random.Random, reach: Callable[[str], None]) -> None:
        self._address, self._rng, self._reach = address, rng, reach

    def live(self) -> None:
        """One life: from connecting to leaving."""
        rng, kind = self._rng, self._rng.choice(KINDS)
        self._reach("connecting")
        with StreamClient(self._address, _LIFETIME_S) as wire:
            self._reach("creating")
            world = wire.create(rng.choice(FAMILIES), **({} if kind.lanes is None else {"lanes": kind.lanes}))
            self._join(wire, world, kind.shm, kind.side)
            see = ["eye.rgb", "reward"] if not kind.shm else ["eye.rgb@shm", *rng.sample(["eye.rgb", "reward"], 1)]
            for _ in range(rng.randrange(1, 8)):
                self._step(wire, see)
            self._reach("resetting")
            wire.ask(reset=rpc.ResetRequest(settings=packed({"width": kind.side + 8})))
            if kind.shm:
                MappedSegment(wire.property)
            self._step(wire, see)
            self._reach("leaving")
            wire.leave()
            if rng.random() < 0.5:
                wire.destroy(world)

    def wait(self, world: str) -> None:
        """Join a world whose other agent never steps, and step."""
        with StreamClient(self._address, _LIFETIME_S) as wire:
            self._join(wire, world, shm=True, side=32)
            wire.send_step("eye.rgb@shm", "reward")
            self._reach("waiting")
            wire.step_reply()

    def _join(self, wire: StreamClient, world: str, shm: bool, side: int) -> None:
        self._reach("joining")
        wire.join(world, width=side, height=side, shm=shm, max_reply_bytes=1 << 30)
        if shm:
            self._reach("mapping")
            MappedSegment(wire.property).array[::4096] = 1

    def _step(self, wire: StreamClient, see: list[str]) -> None:
        wire.send_step(*see)
        self._reach("stepping")
        wire.step_reply()
        self._reach("idling")
        time.sleep(self._rng.uniform(0.0, 0.004))


def doomed(address: str, number: int, stage: str, world: str) -> None:
    """Live until the end, which comes from outside."""
    told = threading.Event()

    def reach(here: str) -> None:
        if here == stage and not told.is_set():
            told.set()
            print(stage, flush=True)

    def live_on(stream: int) -> None:
        one = Doomed(address, random.Random(f"{number} {stream}"), reach)
        if stream == 0 and (number % 2 or stage == "waiting"):
            one.wait(world)
        while True:
            one.live()

    _wait_for_a_line()
    for stream in range(_STREAMS):
        threading.Thread(target=live_on, args=(stream,), daemon=True).start()
    time.sleep(_LIFETIME_S)


def survivor(address: str, number: int) -> None:
    """Step until the server is gone."""
    from worldloom.client import LostConnection, VectorEnv

    def step_env(transport: Any) -> dict[str, Any]:
        with VectorEnv(address, FAMILIES[number % 3], 64, transport=transport) as env:
            kept = env.reset()[0]["eye.rgb"]
            before = kept.copy()
            begun.wait()
            try:
                while True:
                    env.step(env.action_space.sample())
            except LostConnection:
                at_s = time.monotonic()
                return {"at_s": at_s, "error": "LostConnection", "intact": bool(np.array_equal(kept, before))}

    def step_plain(shm: bool) -> dict[str, Any]:
        with StreamClient(address, _LIFETIME_S) as wire:
            wire.join(wire.create(FAMILIES[number % 3]), shm=shm)
            see = ["eye.rgb@shm"] if shm else ["eye.rgb"]
            place = wire.step(*see).observations[see[0]]
            picture = np.zeros(0)
            if shm:
                picture = MappedSegment(wire.property).frames(place, np.empty((64, 64, 3), np.uint8))
            before = picture.copy()
            begun.wait()
            try:
                while True:
                    wire.step("reward", "eye.gray")
            except grpc.RpcError:
                at_s = time.monotonic()
                return {"at_s": at_s, "error": "RpcError", "intact": bool(np.array_equal(picture, before))}

    found: dict[str, dict[str, Any]] = {}
    begun = threading.Barrier(5)
    deeds = {
        "VectorEnv, shm": lambda: step_env("shm"),
        "VectorEnv, grpc": lambda: step_env("grpc"),
        "plain, shm": lambda: step_plain(shm=True),
        "plain": lambda: step_plain(shm=False),
    }

    def note(name: str) -> None:
        found[name] = deeds[name]()

    threads = [threading.Thread(target=note, args=(name,)) for name in deeds]
    for thread in threads:
        thread.start()
    begun.wait(_LIFETIME_S)
    _wait_for_a_line()
    for thread in threads:
        thread.join(_LIFETIME_S)
    print(json.dumps(found), flush=True)


def _wait_for_a_line() -> None:
    print("ready", flush=True)
    sys.stdin.readline()


if __name__ == "__main__":
    if sys.argv[1] == "doomed":
        doomed(sys.argv[2], int(sys.argv[3]), sys.argv[4], sys.argv[5])
    else:
        survivor(sys.argv[2], int(sys.argv[3]))
