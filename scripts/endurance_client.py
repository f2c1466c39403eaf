"""The clients of the endurance run: one process that steps worlds of all families, and makes them anew now and then.

    python -m scripts.endurance_client ROLE ADDRESS SECONDS

Roles: `shm` and `grpc` are vector worlds with their frames in shared memory or in the replies, `plain` are streams
of one lane each. It prints `ready`, begins when a line comes in, and prints what it found as a line of JSON.
"""

import json
import random
import sys
import threading
import time
from typing import Any, Literal

import numpy as np

from scripts.support.stream_client import StreamClient

LANES = {"catch": 512, "cartpole": 512, "maze": 256}
SIDE = 32
"""Side of the frames in pixels."""
_LIFE_S = 4.0
"""Of a world, on average."""
_ACTIONS = 16
"""Sets of actions that are used in turn: sampling them each time would take longer than the step."""
_MOST_PROBLEMS = 5
_LONGEST_S = 3600.0


class Lanes:
    """One vector world after the other."""

    def __init__(self, address: str, transport: Literal["shm", "grpc"], family: str, problems: list[str]) -> None:
        from worldloom.client import VectorEnv

        self.env = VectorEnv(
            address, family, LANES[family], width=SIDE, height=SIDE, transport=transport, observations=["eye.rgb"]
        )
        self._problems = problems
        self._actions = [self.env.action_space.sample() for _ in range(_ACTIONS)]
        self._steps = 0
        self.env.reset()
        self._done = np.zeros(self.env.num_envs, bool)

    def send(self) -> None:
        """Begin a step."""
        self._steps += 1
        self.env.send(self._actions[self._steps % _ACTIONS])

    def receive(self) -> int:
        """End it; how many lanes that were."""
        seen, reward, terminated, truncated, _ = self.env.recv()
        if reward[self._done].any() or (terminated | truncated)[self._done].any():
            self._problems.append(f"{self.env} step {self._steps}: a lane that begins has a reward, or ends")
        self._done = terminated | truncated
        lane = self._steps % self.env.num_envs
        if not seen["eye.rgb"][lane].any():
            self._problems.append(f"{self.env} step {self._steps}: lane {lane} has a black frame")
        return self.env.num_envs


def vector(address: str, transport: Literal["shm", "grpc"], seconds: float) -> dict[str, Any]:
    """Worlds of all families, a step of each under way at a time."""
    problems: list[str] = []
    rng = random.Random(transport)
    worlds = {family: Lanes(address, transport, family, problems) for family in LANES}
    _wait_for_a_line()
    lane_steps, lives = 0, len(worlds)
    until_s = time.monotonic() + seconds
    next_life_s = time.monotonic() + rng.expovariate(len(worlds) / _LIFE_S)
    while time.monotonic() < until_s and len(problems) < _MOST_PROBLEMS:
        for one in worlds.values():
            one.send()
        lane_steps += sum(one.receive() for one in worlds.values())
        if time.monotonic() > next_life_s:
            next_life_s += rng.expovariate(len(worlds) / _LIFE_S)
            family = rng.choice(list(LANES))
            worlds.pop(family).env.close()
            worlds[family] = Lanes(address, transport, family, problems)
            lives += 1
    for one in worlds.values():
        one.env.close()
    return {"lane_steps": lane_steps, "lives": lives, "problems": problems}


def plain(address: str, seconds: float) -> dict[str, Any]:
    """Streams of one lane, which come and go; half of them without a word, and one has shared memory."""
    steps, lives = [0] * len(LANES), [0] * len(LANES)
    problems: list[str] = []

    def live_on(number: int, family: str) -> None:
        rng = random.Random(number)
        try:
            while time.monotonic() < until_s:
                lives[number] += 1
                life_until_s = min(until_s, time.monotonic() + rng.expovariate(1.0 / _LIFE_S))
                with StreamClient(address, _LONGEST_S) as wire:
                    world = wire.create(family)
                    wire.join(world, width=SIDE, height=SIDE, shm=number == 0)
                    see = ("eye.rgb@shm" if number == 0 else "eye.rgb", "reward", "step_type")
                    while time.monotonic() < life_until_s:
                        wire.step(*see)
                        steps[number] += 1
                    if lives[number] % 2:
                        wire.leave()
                        wire.destroy(world)
        except Exception as error:
            problems.append(f"plain stream of {family}: {type(error).__name__}: {error}")

    _wait_for_a_line()
    until_s = time.monotonic() + seconds
    threads = [threading.Thread(target=live_on, args=pair) for pair in enumerate(LANES)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {"lane_steps": sum(steps), "lives": sum(lives), "problems": problems}


def _wait_for_a_line() -> None:
    print("ready", flush=True)
    sys.stdin.readline()


def _main(role: str, address: str, seconds: float) -> None:
    if role == "plain":
        found = plain(address, seconds)
    elif role == "shm":
        found = vector(address, "shm", seconds)
    else:
        found = vector(address, "grpc", seconds)
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    _main(sys.argv[1], sys.argv[2], float(sys.argv[3]))
