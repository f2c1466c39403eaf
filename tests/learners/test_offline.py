"""Offline learning with TorchRL from datasets that were exported to Minari.

Minari's episodes are put into a replay buffer here: MinariExperienceReplay of TorchRL 0.14.1 opens these datasets, but
has zeros for all values of any dataset, as it copies its structure alone (`memmap_like`).
"""

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import minari
import numpy as np
import pytest
import torch
from tensordict import TensorDict
from tensordict.nn import TensorDictModule
from torch import nn
from torchrl.data import Categorical, LazyTensorStorage, TensorDictReplayBuffer
from torchrl.modules import QValueActor
from torchrl.objectives import DiscreteCQLLoss, SoftUpdate

from worldloom.data import Collector, Dataset
from worldloom.data.minari_export import export_minari

SIZE = 24


def point_at_ball(observations: Mapping[str, np.ndarray], _: np.random.Generator) -> np.ndarray:
    """Move the paddle of catch to the side that the ball is seen at, which is red; the paddle is yellow."""
    frames = observations["eye.rgb"].astype(int)
    red, green = frames[..., 0] - frames[..., 2], frames[..., 1] - frames[..., 2]
    column = np.where(green > 40, -255, red).max(axis=1).argmax(axis=1)
    side: np.ndarray = np.sign(2 * column // 3 - SIZE // 3)
    return side


@pytest.fixture
def replay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Any:
    """A replay buffer of TorchRL with a dataset of Minari, and the dataset that this was exported from."""
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    arguments: dict[str, Any] = {"lanes": 16, "steps": 16 * 61, "width": SIZE, "height": SIZE, "seed": 1}
    Collector(tmp_path / "dataset", **{**arguments, **request.param}).run()
    export_minari(tmp_path / "dataset", "offline-v0")
    episodes = minari.load_dataset("offline-v0")
    buffer = TensorDictReplayBuffer(storage=LazyTensorStorage(episodes.total_steps), batch_size=64)
    for episode in episodes:
        buffer.extend(make_transitions(episode))
    return buffer, Dataset(tmp_path / "dataset")


def make_transitions(episode: Any) -> TensorDict:
    """Return the steps of an episode of Minari as TorchRL has them."""
    observations = torch.from_numpy(episode.observations)
    terminated, truncated = torch.from_numpy(episode.terminations), torch.from_numpy(episode.truncations)
    after = {
        "observation": observations[1:],
        "reward": torch.from_numpy(episode.rewards)[:, None].float(),
        "terminated": terminated[:, None],
        "truncated": truncated[:, None],
        "done": (terminated | truncated)[:, None],
    }
    now = {"observation": observations[:-1], "action": torch.from_numpy(episode.actions)}
    return TensorDict({**now, "next": TensorDict(after, [len(episode)])}, [len(episode)])


CATCH = {"family": "catch", "policy": point_at_ball}
CARTPOLE = {"family": "cartpole", "settings": {"max_steps": 15}, "observations": ["eye.rgb"]}


@pytest.mark.parametrize("replay", [CATCH, CARTPOLE], indirect=True, ids=["catch", "cartpole"])
def test_torchrl_has_the_transitions_of_the_rows(replay: Any) -> None:
    buffer, dataset = replay
    episodes = list(dataset.episodes(whole_only=True))
    assert len(buffer) == sum(one.length for one in episodes) > 500
    found = sorted(transition_key(one) for one in buffer[:])
    expected = []
    for episode in episodes:
        frames = episode.observations["eye.rgb"]
        action = episode.actions["action"]
        action = action + 1 if action.dtype == np.int64 else action.reshape(episode.length, -1)
        for k in range(episode.length):
            outcome = (np.float32(episode.rewards[k]).item(), bool(episode.terminated[k]), bool(episode.truncated[k]))
            expected.append((frames[k].tobytes(), action[k].tobytes(), frames[k + 1].tobytes(), *outcome))
    assert found == sorted(expected)


def transition_key(one: TensorDict) -> tuple[Any, ...]:
    after = one["next"]
    arrays = (one["observation"], one["action"], after["observation"])
    outcome = (after["reward"].item(), after["terminated"].item(), after["truncated"].item())
    return (*(array.numpy().tobytes() for array in arrays), *outcome)


def make_network(outputs: int) -> Any:
    """Return a small network from frames as floats [..., height, width, 3] to some numbers."""
    return nn.Sequential(nn.Flatten(-3), nn.Linear(SIZE * SIZE * 3, 64), nn.ReLU(), nn.Linear(64, outputs))


def to_floats(batch: TensorDict) -> TensorDict:
    """Return transitions with frames as floats."""
    for key in ("observation", ("next", "observation")):
        batch[key] = batch[key].float() / 255 - 0.5
    return batch


@pytest.mark.parametrize("replay", [CATCH], indirect=True, ids=["catch"])
def test_a_scripted_policy_is_cloned_from_its_frames(replay: Any) -> None:
    torch.manual_seed(0)
    buffer, _ = replay
    network = make_network(3)
    optimizer = torch.optim.Adam(network.parameters(), 3e-3)
    losses = []
    for _ in range(200):
        batch = to_floats(buffer.sample())
        loss = nn.functional.cross_entropy(network(batch["observation"]), batch["action"])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert np.isfinite(losses).all()
    assert np.mean(losses[-20:]) < 0.5 * np.mean(losses[:20])
    everything = to_floats(buffer[:].clone())
    chosen = network(everything["observation"]).argmax(dim=-1)
    shares = torch.bincount(everything["action"]) / len(everything)
    assert shares.max() < 0.6  # so that no action alone would do
    assert (chosen == everything["action"]).float().mean() > 0.85


@pytest.mark.parametrize("replay", [CATCH], indirect=True, ids=["catch"])
def test_conservative_q_learning_takes_steps(replay: Any) -> None:
    torch.manual_seed(0)
    buffer, _ = replay
    actor = QValueActor(
        TensorDictModule(make_network(3), in_keys=["observation"], out_keys=["action_value"]),
        spec=Categorical(3),
        action_space="categorical",
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns of its own future
        objective = DiscreteCQLLoss(actor, action_space="categorical", loss_function="l2")
        objective.make_value_estimator(gamma=0.9)
        target = SoftUpdate(objective, eps=0.9)
    optimizer = torch.optim.Adam(objective.parameters(), 3e-3)
    losses = []
    for _ in range(200):
        found = objective(to_floats(buffer.sample()))
        loss = found["loss_cql"] + found["loss_qvalue"]
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        target.step()
        losses.append(loss.item())
    assert np.isfinite(losses).all()
    assert np.mean(losses[-10:]) < 0.8 * np.mean(losses[:10])
