"""PPO learns from pixels, in PyTorch: catch, a maze, or a task of the dm_control suite.

    python examples/ppo.py catch
    python examples/ppo.py maze
    python examples/ppo.py dmc-cartpole-swingup --video out/swingup.gif
    python examples/ppo.py catch --address 127.0.0.1:9000   # with a `worldloom serve`

Proximal policy optimisation, https://arxiv.org/abs/1707.06347, in one file: tasks, network, rollout and advantages,
update, training, video, command line. It writes the learning curve as CSV and PNG.
"""

import argparse
import csv
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn
from torch.distributions import Categorical, Distribution, Independent, Normal

from learning_curves import draw_learning_curves
from worldloom import ClientError, VectorEnv
from worldloom.demo.images import write_gif

GAE_LAMBDA = 0.95  # of generalised advantage estimation
CLIP_RANGE = 0.2  # of the ratio of new to old probability, around 1
VALUE_WEIGHT = 0.25
MAX_GRADIENT_NORM = 0.5
RETURN_WINDOW = 256  # episodes in a reported mean return
MAX_RANDOM_STEPS = 2000  # of each lane, to find out what random actions are worth
VIDEO_LANES, VIDEO_SIZE = 4, 128  # lanes in the video, and pixels of each


@dataclass(frozen=True)
class Task:
    """An environment, and the hyperparameters that it is learnt with."""

    family: str
    observation: str
    settings: dict[str, Any] = field(default_factory=dict)  # of the family
    size: int = 32  # pixels: the width and height of frames
    samples: int = 1  # per pixel
    action_repeat: int = 1  # steps of the world for each action
    frame_stack: int = 1
    lanes: int = 256
    steps: int = 1_000_000  # of the world, in all lanes together
    rollout: int = 32  # actions of each lane between two updates
    epochs: int = 4
    minibatches: int = 8
    learning_rate: float = 1e-3  # at the first step; decays linearly to 0 at the last
    discount: float = 0.99
    entropy_weight: float = 0.0
    reward_scale: float = 1.0  # for training only; reported returns are not scaled
    filters: tuple[int, int] = (8, 16)  # of the two convolutions
    hidden: int = 128  # units of the layer after them
    returns: tuple[float, float] = (0.0, 1000.0)  # the least and the greatest possible
    random_episodes: int = 256  # with random actions, to compare with


TASKS = {
    "catch": Task(
        "catch",
        "eye.gray",
        size=24,
        steps=250_000,
        rollout=18,
        learning_rate=2e-3,
        entropy_weight=0.01,
        returns=(-1.0, 1.0),
        random_episodes=4096,
    ),
    # Many goals, so that one is mostly in sight: the policy remembers nothing. With slow turns it learns faster.
    "maze": Task(
        "maze",
        "eye.rgb",
        {"goals": 8, "max_steps": 300, "turn_speed": 5.0},
        action_repeat=4,
        steps=4_000_000,
        minibatches=16,
        learning_rate=7e-4,
        filters=(16, 32),
        returns=(0.0, 8.0),
        random_episodes=2048,
    ),
}
SUITE_TASK = Task("dmc", "eye.gray", size=48, action_repeat=4, frame_stack=3, steps=2_500_000, reward_scale=0.05)
SUITE_TASKS = {
    "cartpole-swingup": replace(
        SUITE_TASK,
        observation="lookatcart.gray",
        size=32,
        samples=4,
        frame_stack=2,
        steps=8_000_000,
        minibatches=16,
        learning_rate=7e-4,
    ),
}


def find_task(name: str) -> Task:
    """Return the task of a name: one of TASKS, or dmc-DOMAIN-TASK for any of the dm_control suite."""
    if name in TASKS:
        return TASKS[name]
    family, _, suite_name = name.partition("-")
    domain, dash, task = suite_name.partition("-")
    if family != "dmc" or not dash:
        raise SystemExit(
            f"the task is {name!r}: expected {', '.join(TASKS)}, or dmc-DOMAIN-TASK such as dmc-walker-walk"
        )
    return replace(SUITE_TASKS.get(suite_name, SUITE_TASK), settings={"domain": domain, "task": task})


def env_arguments(task: Task) -> dict[str, Any]:
    """Return the arguments of an env with plain arrays, whose episodes begin within the step that ends one."""
    return {
        **dict.fromkeys(("width", "height"), task.size),
        "samples": task.samples,
        "observations": [task.observation],
        "settings": task.settings,
        **dict.fromkeys(("flat", "episode_statistics"), True),
        "autoreset": "same_step",
        "action_repeat": task.action_repeat,
        "frame_stack": task.frame_stack,
        "clip_actions": True,  # a normal distribution has no limits, actions have
    }


def make_env(task: Task, address: str, lanes: int) -> VectorEnv:
    """Create an env of the task."""
    try:
        return VectorEnv(address, task.family, lanes, **env_arguments(task))
    except (ClientError, ValueError) as error:
        raise SystemExit(str(error)) from None


class Network(nn.Module):
    """Two convolutions and a layer, then a distribution of actions and a value."""

    def __init__(self, env: VectorEnv, task: Task, mean_frame: np.ndarray, deviation: float) -> None:
        super().__init__()
        shape: Any = env.single_observation_space.shape
        height, width, channels = shape
        self.frame_channels = channels // task.frame_stack
        self.register_buffer("mean_frame", torch.from_numpy(mean_frame).permute(2, 0, 1))
        self.register_buffer("deviation", torch.tensor(deviation))
        space: Any = env.single_action_space
        self.is_continuous = isinstance(space, spaces.Box)
        if self.is_continuous:
            self.log_std = nn.Parameter(torch.zeros(space.shape))
            outputs = self.log_std.numel()
        else:  # an output for each choice of each action: [actions, choices], fewer than the most where it says so
            counts = space.nvec.tolist() if isinstance(space, spaces.MultiDiscrete) else [int(space.n)]
            self.register_buffer("is_choice", torch.arange(max(counts)) < torch.tensor(counts)[:, None])
            outputs = self.is_choice.numel()
        convolutions = nn.Sequential(
            orthogonal(nn.Conv2d(channels, task.filters[0], 4, stride=2), 2**0.5),
            nn.ReLU(),
            orthogonal(nn.Conv2d(*task.filters, 4, stride=2), 2**0.5),
            nn.ReLU(),
            nn.Flatten(),
        ).to(memory_format=torch.channels_last)
        features = convolutions(torch.zeros(1, channels, height, width)).shape[1]
        self.layers = nn.Sequential(convolutions, orthogonal(nn.Linear(features, task.hidden), 2**0.5), nn.ReLU())
        # Small, so that the first actions hardly depend on the frames.
        self.policy_head = orthogonal(nn.Linear(task.hidden, outputs), 0.01)
        self.value_head = orthogonal(nn.Linear(task.hidden, 1), 1.0)

    def forward(self, frames_nhwc: Tensor) -> tuple[Distribution, Tensor]:
        """Return the distribution of actions [n, k] and the values [n].

        Inputs are differences of frames: of the newest from the mean frame, and of each older one from the next.
        """
        frames = frames_nhwc.permute(0, 3, 1, 2).float()
        newest = frames[:, -self.frame_channels :]
        moved = frames[:, self.frame_channels :] - frames[:, : -self.frame_channels]
        features = self.layers(torch.cat([newest - self.mean_frame, moved], dim=1) / self.deviation)
        outputs, values = self.policy_head(features), self.value_head(features)[:, 0]
        if self.is_continuous:
            return Independent(Normal(outputs, self.log_std.exp()), 1), values
        logits = outputs.view(-1, *self.is_choice.shape).where(self.is_choice, -1e8)
        return Independent(Categorical(logits=logits), 1), values


def orthogonal(layer: nn.Module, gain: float) -> nn.Module:
    """Initialise a layer with orthogonal weights, and biases of 0."""
    nn.init.orthogonal_(layer.weight, gain)
    nn.init.zeros_(layer.bias)
    return layer


class Player:
    """An env with its present observations, and the returns of the episodes that have ended."""

    def __init__(self, env: VectorEnv, task: Task, seed: int, device: str) -> None:
        self.env, self.task, self.device = env, task, device
        self.steps = 0  # of the world, in all lanes together
        self.returns: list[float] = []
        self.observations = self.to_device(env.reset(seed=seed)[0])

    def to_device(self, array: np.ndarray) -> Tensor:
        """Return an array as a tensor; it is copied only if the device is not the CPU."""
        return torch.from_numpy(array).to(self.device)

    def step(self, actions: Tensor) -> tuple[np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Apply actions [lanes, k]; return rewards, which lanes terminated and were truncated, and the info."""
        shape = self.env.action_space.shape
        observations, rewards, terminated, truncated, info = self.env.step(actions.cpu().numpy().reshape(shape))
        self.observations = self.to_device(observations)
        self.steps += self.env.num_envs * self.task.action_repeat
        if "episode" in info:
            self.returns.extend(info["episode"]["r"][info["_episode"]].tolist())
        return rewards, terminated, truncated, info

    def mean_return(self) -> float:
        """Return the mean return of the last episodes."""
        return float(np.mean(self.returns[-RETURN_WINDOW:]))


@dataclass
class Batch:
    """Transitions to train on, one per row."""

    observations: Tensor  # uint8 [n, height, width, channels]
    actions: Tensor  # [n, k], as sampled
    log_probs: Tensor  # [n], of these actions when they were sampled
    advantages: Tensor  # [n]
    returns: Tensor  # [n], targets of the value


@torch.no_grad()
def collect_rollout(player: Player, network: Network) -> Batch:
    """Play for `task.rollout` actions of each lane, and estimate the advantage of each action."""
    task, taken = player.task, []
    for _ in range(task.rollout):
        observations = player.observations
        policy, values = network(observations)
        actions = policy.sample()
        rewards, terminated, truncated, info = player.step(actions)
        targets = player.to_device(np.asarray(task.reward_scale * rewards, np.float32))
        if truncated.any():
            # These episodes would have gone on: what they were worth then is estimated from their last observation.
            # `observations` are of the next episode already.
            lanes, last_observations = info["_final_lanes"], player.to_device(info["_final_stacked"])
            is_truncated = player.to_device(truncated[lanes])
            targets[lanes] += task.discount * is_truncated * network(last_observations)[1]
        continues = player.to_device(~(terminated | truncated))
        taken.append((observations, actions, policy.log_prob(actions), values, targets, continues))
    observations, actions, log_probs, values, rewards, continues = map(torch.stack, zip(*taken, strict=True))

    advantages = torch.zeros_like(values)
    next_values, next_advantages = network(player.observations)[1], torch.zeros_like(values[0])
    for t in reversed(range(task.rollout)):
        surprise = rewards[t] + task.discount * continues[t] * next_values - values[t]
        advantages[t] = surprise + task.discount * GAE_LAMBDA * continues[t] * next_advantages
        next_values, next_advantages = values[t], advantages[t]
    return Batch(*(one.flatten(0, 1) for one in (observations, actions, log_probs, advantages, advantages + values)))


def compute_loss(network: Network, batch: Batch, entropy_weight: float) -> Tensor:
    """Return PPO's loss."""
    policy, values = network(batch.observations)
    ratio = (policy.log_prob(batch.actions) - batch.log_probs).exp()
    advantages = (batch.advantages - batch.advantages.mean()) / (batch.advantages.std() + 1e-8)
    gain = torch.minimum(ratio * advantages, ratio.clamp(1 - CLIP_RANGE, 1 + CLIP_RANGE) * advantages)
    error = (values - batch.returns) ** 2
    return (VALUE_WEIGHT * error - gain - entropy_weight * policy.entropy()).mean()


def update(network: Network, optimizer: torch.optim.Optimizer, batch: Batch, task: Task) -> None:
    """Train on a rollout for some epochs, each in a new random order."""
    for _ in range(task.epochs):
        order = torch.randperm(len(batch.actions), device=batch.actions.device)
        for rows in order.chunk(task.minibatches):
            minibatch = Batch(*(one[rows] for one in vars(batch).values()))
            optimizer.zero_grad()
            compute_loss(network, minibatch, task.entropy_weight).backward()
            nn.utils.clip_grad_norm_(network.parameters(), MAX_GRADIENT_NORM)
            optimizer.step()


def train(player: Player, network: Network, max_steps: int, max_s: float) -> list[tuple[int, float, float]]:
    """Train until `max_steps` or `max_s` is reached.

    Returns the learning curve: after each rollout in which episodes ended, the steps and seconds so far, and the mean
    return of the last episodes.
    """
    task, curve, start_s, episodes = player.task, [], time.perf_counter(), 0
    optimizer = torch.optim.Adam(network.parameters(), eps=1e-5)
    while player.steps < max_steps and time.perf_counter() - start_s < max_s:
        optimizer.param_groups[0]["lr"] = task.learning_rate * (1 - player.steps / max_steps)
        update(network, optimizer, collect_rollout(player, network), task)
        if len(player.returns) > episodes:
            episodes, elapsed_s = len(player.returns), time.perf_counter() - start_s
            curve.append((player.steps, elapsed_s, player.mean_return()))
            speed = f"{elapsed_s:6.1f} s  {player.steps:10,} steps  {player.steps / elapsed_s:7,.0f} a second"
            print(f"{speed}  mean return of the last {RETURN_WINDOW} episodes: {curve[-1][2]:6.2f}", flush=True)
    return curve


def measure_random_agent(env: VectorEnv, task: Task, seed: int) -> tuple[float, np.ndarray, float]:
    """Return the mean return of random actions, the mean frame, and the standard deviation of pixels from it."""
    player = Player(env, task, seed, "cpu")
    env.action_space.seed(seed)
    frame_channels = player.observations.shape[-1] // task.frame_stack
    sums, squares = np.zeros((2, *player.observations.shape[1:3], frame_channels))
    steps = 0
    while len(player.returns) < task.random_episodes:
        if steps == MAX_RANDOM_STEPS and not player.returns:
            raise SystemExit(f"no episode ended in {steps} actions: expected a task with shorter ones")
        is_first = not player.returns
        player.step(torch.from_numpy(env.action_space.sample()))
        if is_first and player.returns and player.steps > task.steps:
            raise SystemExit(f"--steps is {task.steps:,}: expected {player.steps:,} or more, so that episodes end")
        frames = player.observations[..., -frame_channels:].numpy().astype(np.float32)
        sums += frames.mean(axis=0)
        squares += (frames**2).mean(axis=0)
        steps += 1
    mean_frame = sums / steps
    deviation = float(np.sqrt((squares / steps - mean_frame**2).mean()))
    return float(np.mean(player.returns)), mean_frame.astype(np.float32), deviation


@torch.no_grad()
def record_video(path: Path, task: Task, address: str, network: Network, seed: int, frames: int, device: str) -> None:
    """Record the policy's most likely actions as a GIF.

    The policy sees the frames of one env. Another with larger frames has the same seed and gets the same actions, so
    the same happens there.
    """
    shown = replace(task, size=VIDEO_SIZE, observation="eye.rgb", frame_stack=1)
    with make_env(task, address, VIDEO_LANES) as env, make_env(shown, address, VIDEO_LANES) as shown_env:
        player, shown_player = Player(env, task, seed, device), Player(shown_env, shown, seed, device)
        images = [shown_env.render()]
        while len(images) < frames:
            actions = network(player.observations)[0].mode
            player.step(actions)
            shown_player.step(actions)
            images.append(shown_env.render())
        path.parent.mkdir(parents=True, exist_ok=True)
        write_gif(path, np.stack(images), 1 / env.metadata["render_fps"])


def parse_arguments() -> argparse.Namespace:
    """Parse the options of the command line."""
    parser = argparse.ArgumentParser(description="PPO learns a task from pixels, in PyTorch.")
    parser.add_argument("task", help=f"{', '.join(TASKS)}, or dmc-DOMAIN-TASK for a task of the dm_control suite")
    parser.add_argument("--address", default="local", help="server, HOST:PORT or unix:PATH; default: none")
    parser.add_argument("--seed", type=int, default=0, help="seed of the worlds, the network and its actions")
    parser.add_argument("--steps", type=int, help="steps of the world in all lanes together; default: by task")
    parser.add_argument("--minutes", type=float, default=60.0, help="longest time to train; default: 60")
    parser.add_argument("--lanes", type=int, help="simulations in parallel; default: by task")
    parser.add_argument("--device", default="cpu", help="of PyTorch: cpu or cuda; default: cpu")
    parser.add_argument("--out", type=Path, default=Path("out/ppo"), help="folder of TASK-SEED.csv and TASK-SEED.png")
    parser.add_argument("--video", type=Path, help="GIF file for a video of the trained policy; default: none")
    parser.add_argument("--frames", type=int, default=250, help="length of the video; default: 250")
    args = parser.parse_args()
    for name in ("steps", "lanes", "frames"):
        if (number := getattr(args, name)) is not None and number < 1:
            parser.error(f"--{name} is {number}: expected an integer from 1")
    try:
        torch.zeros(1, device=args.device).numpy(force=True)
    except (AssertionError, RuntimeError) as error:
        parser.error(f"--device is {args.device!r}, which cannot be used: {str(error).splitlines()[0]}")
    return args


def main() -> None:
    """Train a policy, write its learning curve, and record a video of it if asked to."""
    args = parse_arguments()
    task = find_task(args.task)
    task = replace(task, steps=args.steps or task.steps, lanes=args.lanes or task.lanes)
    torch.manual_seed(args.seed)
    Distribution.set_default_validate_args(False)  # saves a fifth of the time of a rollout
    with make_env(task, args.address, task.lanes) as env:
        random_return, mean_frame, deviation = measure_random_agent(env, task, args.seed)
        print(f"{env}\nmean return of random actions: {random_return:.2f}", flush=True)
        network = Network(env, task, mean_frame, deviation).to(args.device)
        curve = train(Player(env, task, args.seed, args.device), network, task.steps, 60 * args.minutes)
    if not curve:
        raise SystemExit("no episode ended: expected more --minutes")
    args.out.mkdir(parents=True, exist_ok=True)
    path, image_path = (args.out / f"{args.task}-{args.seed}.{suffix}" for suffix in ("csv", "png"))
    with path.open("w", newline="") as file:
        header = ("steps", "seconds", "mean_return", "random_return")
        csv.writer(file).writerows([header, *((*point, random_return) for point in curve)])
    returns = {"PPO": [(point[0], point[2]) for point in curve]}
    draw_learning_curves(image_path, returns, random_return, task.returns, f"{args.task}: mean return")
    print(f"mean return {curve[-1][2]:.2f}, random {random_return:.2f}. Learning curve: {path}, {image_path}")
    if args.video is not None:
        record_video(args.video, task, args.address, network, args.seed, args.frames, args.device)
        print(f"video: {args.video}")


if __name__ == "__main__":
    main()
