"""PPO of Stable-Baselines3, with its own defaults, learns to catch from pixels: `pip install 'worldloom[sb3]'`."""

import argparse

from stable_baselines3 import PPO
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.logger import configure

from worldloom.client.adaptors.sb3 import SB3VecEnv

parser = argparse.ArgumentParser(description="PPO of Stable-Baselines3 learns to catch from pixels.")
parser.add_argument("--address", default="local", help="server, HOST:PORT or unix:PATH; default: none")
parser.add_argument("--lanes", type=int, default=8, help="games in parallel; an update takes 2048 steps of each")
parser.add_argument("--steps", type=int, default=200_000, help="steps to train for, of all lanes together")
parser.add_argument("--seed", type=int, default=0, help="seed of the worlds and of the network")
parser.add_argument("--out", default="out/sb3-catch", help="folder of progress.csv, which has the learning curve")
args = parser.parse_args()

env = SB3VecEnv(args.address, "catch", args.lanes, width=36, height=36, observations=["eye.gray"])
model = PPO("CnnPolicy", env, seed=args.seed)
model.set_logger(configure(args.out, ["stdout", "csv"]))
model.learn(args.steps)
mean_return, _ = evaluate_policy(model, env, n_eval_episodes=25 * args.lanes)
print(f"mean return {mean_return:.2f}")
