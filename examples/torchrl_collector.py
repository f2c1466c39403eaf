"""A collector of TorchRL fills a replay buffer with transitions of mazes: `pip install 'worldloom[torchrl]'`."""

import argparse
import time

from worldloom.client.adaptors.torchrl import TorchRLEnv  # isort: skip  # first: it says what to install, if need be

import torch
from tensordict.nn import TensorDictModule
from torch import nn
from torchrl.collectors import Collector
from torchrl.data import LazyTensorStorage, ReplayBuffer

parser = argparse.ArgumentParser(description="A collector of TorchRL collects transitions of mazes.")
parser.add_argument("--address", default="local", help="server, HOST:PORT or unix:PATH; default: none")
parser.add_argument("--lanes", type=int, default=256, help="number of mazes")
parser.add_argument("--batches", type=int, default=20, help="batches of 32 steps of each lane")
args = parser.parse_args()


class Frames(nn.Module):
    """Frames of bytes as floats, channels first."""

    def forward(self, frames_nhwc: torch.Tensor) -> torch.Tensor:
        """Convert frames [..., height, width, channels]."""
        return frames_nhwc.movedim(-1, -3).float() / 255


env = TorchRLEnv(args.address, "maze", args.lanes, width=32, height=32, action_repeat=4)
env.set_seed(0)
network = nn.Sequential(
    Frames(),
    nn.Conv2d(3, 8, 4, stride=2),
    nn.ReLU(),
    nn.Conv2d(8, 16, 4, stride=2),
    nn.ReLU(),
    nn.Flatten(),
    nn.LazyLinear(env.action_spec.shape[-1]),
    nn.Tanh(),
)
policy = TensorDictModule(network, in_keys=["observation"], out_keys=["action"])
policy(env.reset())  # LazyLinear finds its size
size = 32 * args.lanes
collector = Collector(
    env,
    policy,
    frames_per_batch=size,
    total_frames=args.batches * size,
    auto_register_policy_transforms=False,  # this policy has no memory that would need to know where episodes begin
)
buffer = ReplayBuffer(storage=LazyTensorStorage(8 * size, ndim=2), batch_size=256)
start_s = time.perf_counter()
for batch in collector:
    buffer.extend(batch)
elapsed_s = time.perf_counter() - start_s
sample = buffer.sample()
print(
    f"{args.batches * size / elapsed_s:,.0f} transitions a second; sample: {tuple(sample['next', 'observation'].shape)}"
)
collector.shutdown()
