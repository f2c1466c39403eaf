"""PPO of RLlib learns to catch from pixels: `pip install 'worldloom[rllib]' torch`."""

import argparse

from worldloom.client.adaptors.rllib import make_rllib_env  # isort: skip  # first: it says what to install, if need be

import ray
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
from ray.tune.registry import register_env

parser = argparse.ArgumentParser(description="PPO of RLlib learns to catch from pixels.")
parser.add_argument("--address", default="local", help="server, HOST:PORT or unix:PATH; default: none")
parser.add_argument("--iterations", type=int, default=40, help="iterations of 4096 steps")
parser.add_argument("--seed", type=int, default=0, help="seed of the worlds and of the network")
args = parser.parse_args()

register_env("catch", make_rllib_env)
ray.init(include_dashboard=False, log_to_driver=False)
config = (
    PPOConfig()
    .environment(
        "catch",
        env_config={
            "address": args.address,
            "family": "catch",
            "width": 24,
            "height": 24,
            "observations": ["eye.gray"],
        },
    )
    .env_runners(
        num_env_runners=0,  # in this process; others would have worlds of their own
        num_envs_per_env_runner=64,
        gym_env_vectorize_mode="vector_entry_point",
    )
    .training(train_batch_size=4096, minibatch_size=512, num_epochs=4, lr=1e-3, entropy_coeff=0.01)
    .rl_module(model_config=DefaultModelConfig(conv_filters=[[8, 4, 2], [16, 4, 2]], vf_share_layers=True))
    .debugging(seed=args.seed)
)
algorithm = config.build_algo()
for iteration in range(args.iterations):
    runners = algorithm.train()["env_runners"]
    steps, mean_return = runners["num_env_steps_sampled_lifetime"], runners["episode_return_mean"]
    print(f"{iteration:3}  {steps:8,.0f} steps  mean return {mean_return:5.2f}", flush=True)
algorithm.stop()
ray.shutdown()
