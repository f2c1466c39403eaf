"""Step 1024 mazes with random actions, and print the frames per second.

python examples/random_agents.py [--address HOST:PORT] [--seconds 5]
"""

import argparse
import time

from worldloom import VectorEnv

parser = argparse.ArgumentParser(description="Step 1024 mazes with random actions.")
parser.add_argument(
    "--address", default="local", help="address of a server, HOST:PORT or unix:PATH; default: no server"
)
parser.add_argument("--seconds", type=float, default=5.0)
args = parser.parse_args()

with VectorEnv(args.address, "maze", num_envs=1024, width=64, height=64, observations=["eye.rgb"]) as env:
    env.reset(seed=0)
    steps, start_s = 0, time.perf_counter()
    while (elapsed_s := time.perf_counter() - start_s) < args.seconds:
        obs, reward, terminated, truncated, info = env.step(env.action_space.sample())
        steps += 1
    print(f"{steps * env.num_envs / elapsed_s:,.0f} frames a second, each {obs['eye.rgb'].shape[1:]}, {env.transport}")
