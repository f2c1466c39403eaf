"""PPO of Stable-Baselines3, with its own defaults, learns to catch from pixels: `pip install 'worldloom[sb3]'`."""

import argparse

from worldloom.client.adaptors.sb3 import SB3VecEnv  # isort: skip  # first: it says what to install, if need be

from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import EvalCallback, StopTrainingOnRewardThreshold
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.logger import configure

parser = argparse.ArgumentParser(description="PPO of Stable-Baselines3 learns to catch from pixels.")
parser.add_argument("--address", default="local", help="server, HOST:PORT or unix:PATH; default: none")
parser.add_argument("--lanes", type=int, default=8, help="games in parallel; an update takes 2048 steps of each")
parser.add_argument("--steps", type=int, default=200_000, help="most steps to train for, of all lanes together")
parser.add_argument("--seed", type=int, default=0, help="seed of the worlds and of the network")
parser.add_argument(
    "--out", default="out/sb3-catch", help="folder of progress.csv, the learning curve, and best_model.zip"
)
args = parser.parse_args()

arguments = {"width": 36, "height": 36, "observations": ["eye.gray"]}
env = SB3VecEnv(args.address, "catch", args.lanes, **arguments)
test_env = SB3VecEnv(args.address, "catch", args.lanes, seed=args.seed + 1000, **arguments)
model = PPO("CnnPolicy", env, seed=args.seed)
model.set_logger(configure(args.out, ["stdout", "csv"]))
# With these defaults later updates forget a good policy again. So evaluate before each update, keep the best policy,
# and stop when it is good enough.
evaluation = EvalCallback(
    test_env,
    callback_on_new_best=StopTrainingOnRewardThreshold(0.95),
    n_eval_episodes=200,
    eval_freq=model.n_steps,
    deterministic=False,  # actions as they are sampled in training: the most likely ones catch long before
    best_model_save_path=args.out,
)
model.learn(args.steps, evaluation)
model.set_parameters(f"{args.out}/best_model")
mean_return, _ = evaluate_policy(model, test_env, n_eval_episodes=500, deterministic=False)
model.logger.record("eval/mean_reward", mean_return)
model.dump_logs()
print(f"mean return {mean_return:.2f}")
