"""Datasets against a plain loop over an env, and runs that were stopped against those that were not."""

import errno
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from worldloom.client import VectorEnv
from worldloom.data import collector
from worldloom.data.collection import Step, Stopped
from worldloom.data.collector import Collector
from worldloom.data.errors import DatasetError, PolicyError
from worldloom.data.index import read_index
from worldloom.data.layout import Description
from worldloom.data.shards import ShardReader

SMALL: dict[str, Any] = {"lanes": 6, "steps": 240, "width": 12, "height": 10, "seed": 11}


def read_all(directory: Path) -> tuple[Description, dict[str, np.ndarray]]:
    """Return the description of a dataset and its columns [steps, lanes, ...]."""
    path = directory / "dataset.json"
    description = Description.from_json(path.read_bytes(), path)
    names = [column.name for column in description.columns]
    found = ShardReader(directory, description).read(names, slice(0, description.lanes), slice(0, description.steps))
    return description, {name: array.swapaxes(0, 1) for name, array in found.items()}


def read_tree(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


class Alternating:
    """A policy with a state, that looks at the observations too."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, observations: Any, generator: np.random.Generator, is_first: np.ndarray) -> np.ndarray:
        self.count += 1
        brightness = observations["eye.rgb"].reshape(len(is_first), -1).sum(axis=1, dtype=np.int64)
        chosen = (brightness + self.count + generator.integers(0, 2, len(is_first))) % 3 - 1
        return np.where(is_first, 0, chosen)

    def get_state(self) -> bytes:
        return str(self.count).encode()

    def set_state(self, state: bytes) -> None:
        self.count = int(state)


def plain_rows(policy: Callable[..., Any], *, lanes: int, steps: int, seed: int, **arguments: Any) -> dict[str, Any]:
    """Return the rows of catch as a plain loop over an env finds them, with one episode after the other in Python."""
    generator = np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, 0])))
    rows: dict[str, list[Any]] = {}
    with VectorEnv("local", "catch", lanes, seed=seed, **arguments) as env:
        observations, _ = env.reset()
        number, step, ended = [0] * lanes, [0] * lanes, np.zeros(lanes, bool)
        is_first = np.ones(lanes, bool)
        for k in range(steps):
            is_last = ended | (k == steps - 1)
            row: dict[str, Any] = {name: array.copy() for name, array in observations.items()}
            row["episode"] = [lane + lanes * number[lane] for lane in range(lanes)]
            row["lane"], row["step"], row["seed"] = list(range(lanes)), list(step), [seed] * lanes
            row["last"] = is_last.copy()
            if k < steps - 1:
                actions = policy(observations, generator, is_first)
                observations, rewards, terminated, truncated, _ = env.step({"paddle": actions})
            row["action"] = np.where(is_last, 0, actions)
            row["reward"] = np.where(is_last, 0.0, rewards)
            row["terminated"], row["truncated"] = terminated & ~is_last, truncated & ~is_last
            is_first = is_last
            for lane in range(lanes):
                number[lane] += int(is_last[lane])
                step[lane] = 0 if is_last[lane] else step[lane] + 1
            ended = terminated | truncated
            for name, values in row.items():
                rows.setdefault(name, []).append(values)
    return {name: np.array(values) for name, values in rows.items()}


@pytest.mark.parametrize("format", ["parquet", "npy"])
def test_rows_are_those_of_a_plain_loop(tmp_path: Path, format: Any) -> None:
    names = ["eye.rgb", "eye.depth", "ball"]
    Collector(
        tmp_path / "d", "catch", policy=Alternating(), observations=names, format=format, shard_mb=0.02, **SMALL
    ).run()
    description, found = read_all(tmp_path / "d")
    assert description.shards > 3
    expected = plain_rows(Alternating(), observations=names, lanes=6, steps=40, seed=11, width=12, height=10)
    assert expected["last"][:-1].any()
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_array_equal(found[name], values, err_msg=name)
        assert found[name].dtype == description.column(name).dtype


def test_shadows_are_drawn_if_asked_for_also_after_a_stop(tmp_path: Path) -> None:
    arguments: dict[str, Any] = {**SMALL, "shadows": True, "policy": Alternating(), "shard_mb": 0.02}
    with pytest.raises(Stopped):
        Collector(tmp_path / "d", "catch", on_step=lambda step: step.number < 30, **arguments).run()
    with pytest.raises(DatasetError, match="shadows is False: expected True, as the collection began"):
        Collector(tmp_path / "d", resume=True, shadows=False).run()
    Collector(tmp_path / "d", resume=True, policy=Alternating()).run()
    expected = plain_rows(Alternating(), lanes=6, steps=40, seed=11, width=12, height=10, shadows=True)
    _, found = read_all(tmp_path / "d")
    for name, values in expected.items():
        np.testing.assert_array_equal(found[name], values, err_msg=name)
    plain = plain_rows(Alternating(), lanes=6, steps=40, seed=11, width=12, height=10)
    assert (plain["eye.rgb"][0] != expected["eye.rgb"][0]).any()


def test_datasets_from_before_there_were_shadows_go_on_without(tmp_path: Path) -> None:
    arguments: dict[str, Any] = {**SMALL, "policy": Alternating(), "shard_mb": 0.02}
    Collector(tmp_path / "whole", "catch", **arguments).run()
    with pytest.raises(Stopped):
        Collector(tmp_path / "d", "catch", on_step=lambda step: step.number < 30, **arguments).run()
    path = tmp_path / "d" / "dataset.json"
    description = Description.from_json(path.read_bytes(), path)
    older = {name: value for name, value in description.arguments.items() if name != "shadows"}
    path.write_bytes(replace(description, arguments=older).to_json())
    with pytest.raises(DatasetError, match="shadows is True: expected False, as the collection began"):
        Collector(tmp_path / "d", resume=True, shadows=True).run()
    Collector(tmp_path / "d", resume=True, shadows=False, policy=Alternating()).run()
    one, other = read_all(tmp_path / "d")[1], read_all(tmp_path / "whole")[1]
    for name, values in other.items():
        np.testing.assert_array_equal(one[name], values, err_msg=name)


def test_statistics_are_those_of_the_rows(tmp_path: Path) -> None:
    progress = Collector(tmp_path / "d", "catch", shard_mb=0.02, **SMALL).run()
    _, rows = read_all(tmp_path / "d")
    ended = rows["terminated"] | rows["truncated"]
    complete = set(rows["episode"][ended].tolist())
    returns = [rows["reward"][rows["episode"] == episode].sum() for episode in complete]
    assert progress.episodes == len(complete) > 0
    assert progress.return_sum == sum(returns)  # whole numbers: exact in any order
    assert read_index(tmp_path / "d").length_sum == sum(
        int((rows["episode"] == episode).sum()) - 1 for episode in complete
    )


@settings(max_examples=12)
@given(
    lanes=st.integers(1, 9),
    steps=st.integers(2, 40),
    shard_kb=st.integers(1, 40),
    format=st.sampled_from(["parquet", "npy"]),
    pictures=st.sampled_from(["raw", "zstd:3", "png", "jpeg", "webp"]),
    stops=st.lists(st.integers(0, 40), max_size=4),
)
def test_a_stopped_run_goes_on_to_the_same_bytes(
    tmp_path_factory: pytest.TempPathFactory,
    lanes: int,
    steps: int,
    shard_kb: int,
    format: Any,
    pictures: str,
    stops: list[int],
) -> None:
    folder = tmp_path_factory.mktemp("stopped")
    arguments: dict[str, Any] = {
        "lanes": lanes,
        "steps": lanes * steps,
        "shard_mb": shard_kb / 1024,
        "seed": 5,
        "width": 9,
        "height": 8,
    }
    arguments |= {"format": format} if format == "npy" else {"pictures": pictures}
    Collector(folder / "whole", "catch", policy=Alternating(), **arguments).run()
    for stop in sorted(stops):
        stopped = Collector(
            folder / "parts",
            "catch",
            policy=Alternating(),
            resume=True,
            on_step=lambda step, stop=stop: step.number < stop,  # type: ignore[misc]
            **arguments,
        )
        try:
            stopped.run()
        except Stopped:
            continue
    Collector(folder / "parts", policy=Alternating(), resume=True, **({} if stops else arguments), family="catch").run()
    assert read_tree(folder / "whole") == read_tree(folder / "parts")


def test_lanes_of_two_collectors_are_those_of_one(tmp_path: Path) -> None:
    """With a policy that draws no random numbers, which each collector draws for its own lanes."""

    def policy(observations: Any, _: Any) -> dict[str, np.ndarray]:
        return {
            "paddle": observations["eye.rgb"].reshape(len(observations["eye.rgb"]), -1).sum(axis=1, dtype=np.int64) % 3
            - 1
        }

    Collector(tmp_path / "all", "catch", policy=policy, **SMALL).run()
    for first, lanes in ((0, 2), (2, 4)):
        Collector(
            tmp_path / f"part{first}",
            "catch",
            policy=policy,
            first_lane=first,
            all_lanes=6,
            **{**SMALL, "lanes": lanes},
        ).run()
    _, whole = read_all(tmp_path / "all")
    parts = [read_all(tmp_path / f"part{first}")[1] for first in (0, 2)]
    for name, values in whole.items():
        np.testing.assert_array_equal(np.concatenate([part[name] for part in parts], axis=1), values, err_msg=name)


def test_callbacks_see_every_step_and_shard(tmp_path: Path) -> None:
    seen: list[tuple[int, np.ndarray]] = []
    shards: list[int] = []

    def note(step: Step) -> None:
        seen.append((step.number, step.rewards.copy()))

    arguments: dict[str, Any] = {**SMALL, "shard_mb": 0.02}
    Collector(
        tmp_path / "d", "catch", on_step=note, on_shard=lambda progress: shards.append(progress.rows), **arguments
    ).run()
    description, rows = read_all(tmp_path / "d")
    assert [number for number, _ in seen] == list(range(description.steps - 1))
    np.testing.assert_array_equal(np.array([rewards for _, rewards in seen]), rows["reward"][:-1])
    assert shards == sorted(shards)
    assert len(shards) == description.shards
    assert shards[-1] == description.rows


@pytest.mark.parametrize(
    ("policy", "text"),
    [
        (lambda observations, generator: {"paddle": np.full(6, 7)}, "returned wrong actions at step 0"),
        (lambda observations, generator: {"nothing": np.zeros(6)}, "returned wrong actions at step 0"),
        (lambda observations, generator: np.zeros(5, int), "returned wrong actions at step 0"),
        (lambda observations, generator: 1 / 0, "failed at step 0: ZeroDivisionError"),
        (lambda observations: {}, "failed at step 0: TypeError"),
        (lambda observations, generator: sys.exit(0), "failed at step 0: SystemExit"),
        ("nothing.like.this:act", "there is no module"),
        ("os:no_such_name", "has no 'no_such_name'"),
        ("os:sep", "expected a callable"),
        ("greedy", "expected random or idle, or MODULE:CALLABLE"),
        (17, "expected random or idle, or MODULE:CALLABLE, or a callable"),
    ],
)
def test_a_wrong_policy_is_explained(tmp_path: Path, policy: Any, text: str) -> None:
    with pytest.raises(PolicyError, match=text):
        Collector(tmp_path / "d", "catch", policy=policy, **SMALL).run()


def test_a_policy_that_fails_later_leaves_what_is_complete(tmp_path: Path) -> None:
    class Failing(Alternating):
        def __call__(self, observations: Any, generator: np.random.Generator, is_first: np.ndarray) -> np.ndarray:
            if self.count == 25:
                raise ValueError("the network is tired")
            return super().__call__(observations, generator, is_first)

    arguments: dict[str, Any] = {**SMALL, "shard_mb": 0.02}
    with pytest.raises(PolicyError, match=r"the network is tired; \d+ of 240 rows are complete; --resume goes on"):
        Collector(tmp_path / "d", "catch", policy=Failing(), **arguments).run()
    assert 0 < read_index(tmp_path / "d").rows < 240
    Collector(tmp_path / "d", policy=Alternating(), resume=True).run()
    Collector(tmp_path / "e", "catch", policy=Alternating(), **arguments).run()
    one, other = read_all(tmp_path / "d")[1], read_all(tmp_path / "e")[1]
    for name, values in other.items():
        np.testing.assert_array_equal(one[name], values, err_msg=name)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"lanes": 0}, "lanes is 0"),
        ({"steps": "many"}, "steps is 'many'"),
        ({"seed": 2**64}, "seed is"),
        ({"format": "hdf5"}, "expected one of parquet, npy"),
        ({"pictures": "gif"}, "expected one of raw, zstd"),
        ({"pictures": "png:99"}, r"png\[:0…9\]"),
        ({"pictures": "png", "format": "npy"}, "expected raw, or the format parquet"),
        ({"shard_mb": 0}, "expected a number of MiB above 0"),
        ({"writers": 0}, "writers is 0"),
        ({"shadows": "yes"}, "shadows is 'yes': expected True or False"),
        ({"settings": {"files": b"PK"}}, "setting 'files' has 2 bytes"),
        ({"settings": {"xml": "<" * 5000}}, "setting 'xml' has 5000 characters"),
        ({"observations": "eye.rgb"}, "expected a list of names"),
    ],
)
def test_wrong_arguments_are_explained_and_leave_nothing(tmp_path: Path, arguments: Any, text: str) -> None:
    with pytest.raises((ValueError, TypeError), match=text):
        Collector(tmp_path / "d", "catch", **arguments).run()
    assert not (tmp_path / "d").exists()


def test_a_dataset_is_never_overwritten(tmp_path: Path) -> None:
    Collector(tmp_path / "d", "catch", **SMALL).run()
    before = read_tree(tmp_path / "d")
    with pytest.raises(DatasetError, match="has a dataset: expected --resume"):
        Collector(tmp_path / "d", "catch", **SMALL).run()
    with pytest.raises(DatasetError, match="seed is 12: expected 11, as the collection began"):
        Collector(tmp_path / "d", "catch", resume=True, **{**SMALL, "seed": 12}).run()
    with pytest.raises(DatasetError, match="shadows is True: expected False, as the collection began"):
        Collector(tmp_path / "d", "catch", resume=True, shadows=True, **SMALL).run()
    Collector(tmp_path / "d", resume=True).run()  # which is complete
    assert read_tree(tmp_path / "d") == before
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "letter.txt").write_text("dear")
    with pytest.raises(DatasetError, match=r"has letter.txt: expected a directory that is new or empty"):
        Collector(tmp_path / "other", "catch", **SMALL).run()
    with pytest.raises(DatasetError, match="has no dataset to resume"):
        Collector(tmp_path / "nothing", resume=True).run()
    assert not (tmp_path / "nothing").exists()


def test_a_disk_that_is_full_at_the_end_is_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(collector, "finish_dataset", fail)
    with pytest.raises(DatasetError, match=r"cannot write to .*all rows are complete; --resume .*once there is room"):
        Collector(tmp_path / "d", "catch", **SMALL).run()
    monkeypatch.undo()
    Collector(tmp_path / "d", resume=True).run()
    Collector(tmp_path / "e", "catch", **SMALL).run()
    assert read_tree(tmp_path / "d") == read_tree(tmp_path / "e")


def test_a_stop_that_is_asked_for_is_heard_in_a_replay(tmp_path: Path) -> None:
    arguments: dict[str, Any] = {**SMALL, "shard_mb": 0.02}
    with pytest.raises(Stopped):
        Collector(tmp_path / "d", "catch", on_step=lambda step: step.number < 30, **arguments).run()
    before, polls = read_tree(tmp_path / "d"), iter(range(5))
    with pytest.raises(Stopped, match="stopped as asked for"):
        Collector(tmp_path / "d", resume=True, should_stop=lambda: next(polls, None) is None).run()
    assert read_tree(tmp_path / "d") == before


def test_two_collectors_do_not_share_a_directory(tmp_path: Path) -> None:
    def intrude(step: Step) -> None:
        if step.number == 3:
            with pytest.raises(DatasetError, match="another collector works on"):
                Collector(tmp_path / "d", resume=True).run()

    Collector(tmp_path / "d", "catch", on_step=intrude, **SMALL).run()


@pytest.fixture
def _readonly(tmp_path: Path) -> Iterator[None]:
    (tmp_path / "readonly").mkdir(mode=0o500)
    yield
    (tmp_path / "readonly").chmod(0o700)


@pytest.mark.usefixtures("_readonly")
def test_a_directory_without_permission_is_an_error(tmp_path: Path) -> None:
    path = Path("/proc/worldloom") if os.geteuid() == 0 else tmp_path / "readonly" / "d"  # root may write anywhere else
    with pytest.raises(DatasetError, match=r"cannot create .*; expected a directory that you may write to"):
        Collector(path, "catch", **SMALL).run()


def test_a_class_in_the_current_directory_is_a_policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_policy.py").write_text(
        "import numpy as np\n"
        "class Left:\n"
        "    def __call__(self, observations, generator):\n"
        "        return np.full(len(observations['eye.rgb']), -1)\n"
    )
    monkeypatch.chdir(tmp_path)
    Collector("d", "catch", policy="own_policy:Left", **SMALL).run()
    description, rows = read_all(tmp_path / "d")
    assert (rows["action"][~rows["last"]] == -1).all()
    assert description.policy == "own_policy:Left"
    assert description.policy_hash
    (tmp_path / "own_policy.py").write_text((tmp_path / "own_policy.py").read_text() + "# changed\n")
    (tmp_path / "d" / "index.jsonl").unlink()  # as if it had been stopped before the first shard
    with pytest.warns(UserWarning, match="the policy's file was"):
        Collector("d", resume=True).run()
