"""TorchRL's checks, rollouts, transforms and collectors, and each entry against single envs."""

import contextlib
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tensordict.nn import TensorDictModule
from torchrl.collectors import Collector
from torchrl.envs import RewardSum, StepCounter, TransformedEnv
from torchrl.envs.transforms import ToTensorImage
from torchrl.envs.utils import check_env_specs

from worldloom.client import BadAction, VectorEnv
from worldloom.client.adaptors.torchrl import TorchRLEnv

LANES = 4
SIZE: dict[str, Any] = {"width": 12, "height": 12}
MODES = ["same_step", "disabled"]
FAMILIES = ["catch", "cartpole", "maze"]
# TorchRL and tensordict warn of their own future.
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]


def make(family: str = "catch", lanes: int = LANES, **arguments: Any) -> TorchRLEnv:
    return TorchRLEnv("local", family, lanes, **{**SIZE, **arguments})


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("family", "arguments"),
    [
        ("catch", {}),
        ("cartpole", {"channels": "first", "frame_stack": 2}),
        ("maze", {"flat": False, "observations": ["eye.rgb", "eye.depth", "heading"]}),
    ],
)
def test_specs(family: str, mode: str, arguments: dict[str, Any]) -> None:
    env = make(family, autoreset=mode, **arguments)
    assert env.batch_size == torch.Size([LANES])
    check_env_specs(env)
    env.close()


class Model:
    """Single envs, stepped one by one, with the entries that TorchRL's rules want."""

    def __init__(self, family: str, **arguments: Any) -> None:
        env_id = f"worldloom/{family.capitalize()}-v0"
        self.envs = [gymnasium.make(env_id, **SIZE, **arguments).unwrapped for _ in range(LANES)]
        self.current = np.zeros(0)

    def reset(self, seeds: list[int] | None) -> None:
        each = [None] * LANES if seeds is None else seeds
        self.current = np.stack([env.reset(seed=seed)[0] for env, seed in zip(self.envs, each, strict=True)])

    def step(self, actions: np.ndarray, cut: np.ndarray) -> dict[str, np.ndarray]:
        """Step all; then reset what has ended, and what is cut short."""
        results = [env.step(action) for env, action in zip(self.envs, actions, strict=True)]
        found = {
            "observation": np.stack([result[0] for result in results]),
            "reward": np.array([[result[1]] for result in results], np.float32),
            "terminated": np.array([[result[2]] for result in results]),
            "truncated": np.array([[result[3]] for result in results]),
        }
        found["done"] = found["terminated"] | found["truncated"]
        self.current = found["observation"].copy()
        for lane, env in enumerate(self.envs):
            if found["done"][lane, 0] or cut[lane]:
                self.current[lane] = env.reset()[0]
        return found

    def close(self) -> None:
        for env in self.envs:
            env.close()


@settings(max_examples=12)
@given(
    family=st.sampled_from(FAMILIES),
    mode=st.sampled_from(MODES),
    seed=st.integers(0, 2**31),
    max_steps=st.integers(1, 8),
    steps=st.integers(1, 25),
    cut_rate=st.sampled_from([0.0, 0.2]),
    is_direct=st.booleans(),
)
def test_the_same_as_single_envs(
    family: str, mode: str, seed: int, max_steps: int, steps: int, cut_rate: float, is_direct: bool
) -> None:
    """Byte for byte, whether TorchRL resets by itself or a program does, also in the middle of episodes."""
    own: dict[str, Any] = {"settings": {"max_steps": max_steps}} if family != "catch" else {}
    env, model = make(family, autoreset=mode, **own), Model(family, **own)
    random = np.random.default_rng(seed)
    seeds = random.integers(0, 2**31, LANES).tolist()
    model.reset(seeds)
    env.set_seed(seeds)  # a seed for each lane, as VectorEnv.reset takes it
    current = env.reset()
    for _ in range(steps):
        np.testing.assert_array_equal(current["observation"].numpy(), model.current)
        assert not current["done"].any()
        action = env.full_action_spec.rand()
        cut = random.random(LANES) < cut_rate
        expected = model.step(action["action"].numpy(), cut)
        current.update(action)
        if is_direct and not cut.any():
            stepped, current = env.step_and_maybe_reset(current)
        else:
            stepped = env.step(current)
            current = env.step_mdp(stepped) if hasattr(env, "step_mdp") else stepped["next"].clone()
            reset = stepped["next", "done"] | torch.from_numpy(cut)[:, None]
            if reset.any():
                current.set("_reset", reset)
                current = env.reset(current)
        for name, array in expected.items():
            np.testing.assert_array_equal(stepped["next", name].numpy(), array, err_msg=name)
    np.testing.assert_array_equal(current["observation"].numpy(), model.current)
    env.close()
    model.close()


@pytest.mark.parametrize("mode", MODES)
def test_rollouts_go_on_across_episodes(mode: str) -> None:
    env = make(autoreset=mode, width=32, height=32)  # large enough that no two pictures are the same by chance
    env.set_seed(3)
    rollout = env.rollout(40, break_when_any_done=False)
    assert rollout.batch_size == torch.Size([LANES, 40])
    done = rollout["next", "done"][..., 0]
    assert (done.sum(1) >= 3).all()
    # Where an episode has ended, the next step begins with another picture; elsewhere with the same one.
    same = (rollout["next", "observation"][:, :-1] == rollout["observation"][:, 1:]).flatten(2).all(2)
    assert same[~done[:, :-1]].all()
    assert not same[done[:, :-1]].any()
    assert not rollout["done"].any()
    stopped = env.rollout(40)
    assert stopped["next", "done"][:, -1].any()
    assert not stopped["next", "done"][:, :-1].any()
    env.close()


@pytest.mark.parametrize("family", ["catch", "cartpole"])  # lanes end together, and at different times
def test_modes_have_the_same_episodes(family: str) -> None:
    """A rollout stops at the first end, and the next begins with a reset of all lanes."""
    size = {"width": 32, "height": 32}
    rollouts = []
    for mode in MODES:
        env = make(family, autoreset=mode, **size)
        env.set_seed(3)
        torch.manual_seed(2)
        rollouts.append([env.rollout(200) for _ in range(4)])
        env.close()
    for same_step, disabled in zip(*rollouts, strict=True):
        assert same_step.shape == disabled.shape
        assert same_step["next", "done"][:, -1].any()
        assert (same_step == disabled).all()


@pytest.mark.parametrize("mode", MODES)
def test_transforms_cut_episodes_short(mode: str) -> None:
    env = TransformedEnv(make(autoreset=mode), StepCounter(max_steps=3))
    env.append_transform(RewardSum())
    check_env_specs(env)
    rollout = env.rollout(12, break_when_any_done=False)
    np.testing.assert_array_equal(rollout["next", "step_count"][0, :, 0].numpy(), [1, 2, 3] * 4)
    np.testing.assert_array_equal(rollout["next", "truncated"][0, :, 0].numpy(), [False, False, True] * 4)
    env.close()


@pytest.mark.parametrize("mode", MODES)
def test_rollouts_until_all_are_done(mode: str) -> None:
    env = make("maze", autoreset=mode, settings={"max_steps": 6})
    rollout = env.rollout(20, break_when_any_done=False, break_when_all_done=True)
    assert rollout.shape[1] == 6
    env.close()


@pytest.mark.parametrize("mode", MODES)
def test_a_collector(mode: str) -> None:
    env = TransformedEnv(make(autoreset=mode), ToTensorImage(in_keys=["observation"], out_keys=["pixels"]))
    network = torch.nn.Sequential(torch.nn.Flatten(-3), torch.nn.Linear(12 * 12 * 3, 3))

    class Greedy(torch.nn.Module):  # type: ignore[misc]  # there is no torch where types are checked
        def forward(self, pixels: torch.Tensor) -> torch.Tensor:
            return network(pixels).argmax(-1)

    policy = TensorDictModule(Greedy(), in_keys=["pixels"], out_keys=["action"])
    collector = Collector(env, policy, frames_per_batch=LANES * 16, total_frames=LANES * 48)
    batches = list(collector)
    assert len(batches) == 3
    assert all(batch.shape == torch.Size([LANES, 16]) for batch in batches)
    assert sum(int(batch["next", "done"].sum()) for batch in batches) > LANES
    with contextlib.suppress(RuntimeError):
        collector.shutdown()


def test_tensors_are_our_arrays() -> None:
    env = VectorEnv("local", "catch", LANES, flat=True, autoreset="same_step", **SIZE)
    received: list[np.ndarray] = []
    step = env.step

    def record(actions: Any, out: Any = None) -> Any:
        result = step(actions, out)
        received.append(result[0])
        return result

    env.step = record  # type: ignore[method-assign]
    adaptor = TorchRLEnv(env)
    current = adaptor.reset()
    for _ in range(12):
        stepped, current = adaptor.step_and_maybe_reset(current.update(adaptor.full_action_spec.rand()))
        ours = torch.from_numpy(received[-1]).data_ptr()
        assert current["observation"].data_ptr() == ours
        if not stepped["next", "done"].any():
            assert stepped["next", "observation"].data_ptr() == ours
    assert len(received) == 12
    adaptor.close()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"channels": "first"},
        {"frame_stack": 2},
        {"streams": 2},
        {"flat": False, "observations": ["eye.rgb", "ball"]},
    ],
)
def test_frames_that_are_kept_leave_shared_memory_free(
    server_address: str, mode: str, arguments: dict[str, Any]
) -> None:
    """Shared memory has room for a few steps, and a rollout keeps the frames of all."""
    options: dict[str, Any] = {"flat": True, **SIZE, "seed": 4, "autoreset": mode, **arguments}
    env = VectorEnv(server_address, "catch", LANES, transport="shm", **options)
    adaptors = TorchRLEnv(env), make(**options)
    rollouts = []
    for adaptor in adaptors:
        torch.manual_seed(2)
        rollouts.append(adaptor.rollout(40, break_when_any_done=False, return_contiguous=False))
    assert env.transport == "shm"
    assert env.unshared_steps == 0
    assert (rollouts[0] == rollouts[1]).all()
    for adaptor in adaptors:
        adaptor.close()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "masks", [[[1, 1, 1, 1]], [[1, 1, 0, 0], [0, 0, 1, 1]], [[0, 1, 0, 0], [1, 0, 0, 0], [0, 0, 1, 1]], [[0, 1, 1, 1]]]
)
def test_lanes_are_reset_in_parts(mode: str, masks: list[list[int]]) -> None:
    """Also lanes that still run, with those that have ended; then there is nothing left to reset."""
    own = {**SIZE, "width": 32, "height": 32}
    env, model = make(autoreset=mode, **own), VectorEnv("local", "catch", LANES, flat=True, autoreset="disabled", **own)
    env.set_seed(3)
    current, expected = env.reset(), model.reset(seed=3)[0]

    def reset(mask: np.ndarray) -> None:
        nonlocal current, expected
        current = env.reset(current.set("_reset", torch.from_numpy(mask)[:, None]))
        expected = model.reset(options={"reset_mask": mask})[0]

    def step() -> np.ndarray:
        nonlocal current, expected
        current = env.step(current.set("action", torch.zeros(LANES, dtype=torch.int64)))["next"]
        expected, _, terminated, truncated, _ = model.step(np.zeros(LANES, np.int64))
        np.testing.assert_array_equal(current["observation"].numpy(), expected)
        return terminated | truncated

    step()
    reset(np.arange(LANES) == 0)  # so that this lane runs when the others end
    while not (done := step()).any():
        pass
    np.testing.assert_array_equal(done, [False, True, True, True])
    for mask in np.array(masks, bool):
        reset(mask)
    np.testing.assert_array_equal(current["observation"].numpy(), expected)
    current = env.maybe_reset(current)
    np.testing.assert_array_equal(current["observation"].numpy(), expected)
    step()
    env.close()
    model.close()


@pytest.mark.parametrize("mode", MODES)
def test_a_server_is_the_same_as_local(server_address: str, mode: str) -> None:
    options = {**SIZE, "seed": 4, "autoreset": mode, "settings": {"max_steps": 7}}
    envs = [TorchRLEnv(address, "maze", LANES, **options) for address in ("local", server_address)]
    rollouts = []
    for env in envs:
        torch.manual_seed(2)
        rollouts.append(env.rollout(20, break_when_any_done=False))
        env.close()
    assert (rollouts[0] == rollouts[1]).all()


def test_seeds() -> None:
    env = make("maze")
    rollouts = []
    for seed in (5, 5, 6):
        assert env.set_seed(seed) != seed
        torch.manual_seed(0)
        rollouts.append(env.rollout(5)["observation"])
    assert torch.equal(rollouts[0], rollouts[1])
    env.set_seed(5)
    everything = env.reset().set("_reset", torch.ones(LANES, 1, dtype=torch.bool))
    env.set_seed(5)
    assert torch.equal(env.reset(everything)["observation"], rollouts[0][:, 0])
    assert not torch.equal(rollouts[0], rollouts[2])
    env.close()


def test_wrong_arguments() -> None:
    with pytest.raises(ValueError, match=r"expected autoreset='same_step' or 'disabled'"):
        make(autoreset="next_step")
    env = VectorEnv("local", "catch", 2, flat=True)
    with env, pytest.raises(ValueError, match=r"expected autoreset='same_step' or 'disabled'"):
        TorchRLEnv(env)
    other = make()
    current = other.reset()
    current["action"] = torch.full((LANES,), 7)
    with pytest.raises(BadAction):
        other.step(current)
    other.close()
