"""An env over several servers: the same bytes as one engine in this process, whatever happens to the servers.

The engine in this process is the reference: lanes whose server was never lost have its observations, rewards and ends,
to the byte. Lanes that were lost are reported, and begin episodes with seeds that the reference can be given, too.
"""

import os
import pickle
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import pytest

from scripts.support.proxy import Proxy
from scripts.support.server_process import ServerProcess
from scripts.support.splitmix import mix
from worldloom.client import CannotConnect, ClientError, LostConnection, ServerError, VectorEnv

pytestmark = pytest.mark.slow

LANES = 24
MODES: list[Any] = ["next_step", "same_step", "disabled"]
# A push to one side ends an episode at the end of the rail, others end by their time limit: at different times.
GIVEN: dict[str, Any] = {
    "width": 8,
    "height": 6,
    "settings": {"rail": 2.0, "max_steps": 22},
    "observations": ["eye.rgb", "pose", "reward"],
}
NOTICED_S = 2.0
"""Time within which a lost server is noticed, as the documentation says."""
SLACK_S = 3.0
"""Time more that a busy machine may take in tests."""


class Seen(NamedTuple):
    """The results of a step or a reset, in arrays of their own."""

    observations: dict[str, np.ndarray]
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    final: dict[int, dict[str, np.ndarray]]
    lost: np.ndarray
    took_s: float


def force(step: int, lanes: int = LANES) -> dict[str, np.ndarray]:
    """Return the actions of a step: others for each lane, whatever happened before."""
    rng = np.random.default_rng(1000 + step)
    return {"force": np.clip(rng.normal(0.4, 1.0, lanes), -1, 1).astype(np.float32)}


class Player:
    """Plays an env with the actions of `force`, and resets ended lanes by itself if the mode is `disabled`."""

    def __init__(self, env: VectorEnv, seed: int | list[int] | None = 5) -> None:
        self.env = env
        self.count = 0
        self._is_disabled = env.metadata["autoreset_mode"] is gymnasium.vector.AutoresetMode.DISABLED
        self.seen: list[Seen] = []
        began_s = time.monotonic()
        observations, info = env.reset(seed=seed)
        self._note(observations, None, info, began_s)

    def step(self, count: int = 1) -> Seen:
        for _ in range(count):
            began_s = time.monotonic()
            last = self.seen[-1]
            is_over = last.terminated | last.truncated
            if self._is_disabled and is_over.any():
                self.env.reset(options={"reset_mask": is_over})
            observations, *outcome, info = self.env.step(force(self.count, self.env.num_envs))
            self._note(observations, outcome, info, began_s)
            self.count += 1
        return self.seen[-1]

    def _note(
        self, observations: Mapping[str, np.ndarray], outcome: Any, info: Mapping[str, Any], began_s: float
    ) -> None:
        lanes = self.env.num_envs
        reward, terminated, truncated = outcome or (np.zeros(lanes), np.zeros(lanes, bool), np.zeros(lanes, bool))
        lost = info.get("lost", np.zeros(lanes, bool))
        final = {}
        if "_final_obs" in info:
            for lane in np.flatnonzero(info["_final_obs"]).tolist():
                final[lane] = {name: array.copy() for name, array in info["final_obs"][lane].items()}
        self.seen.append(
            Seen(
                {name: array.copy() for name, array in observations.items()},
                np.array(reward),
                np.array(terminated),
                np.array(truncated),
                final,
                np.array(lost),
                time.monotonic() - began_s,
            )
        )

    @property
    def lost(self) -> np.ndarray:
        """Mask of the lanes that were ever lost."""
        lost: np.ndarray = np.any([seen.lost for seen in self.seen], axis=0)
        return lost


def check_same(player: Player, reference: Player, lanes: np.ndarray) -> None:
    """Compare all that was seen in some lanes, to the byte."""
    for step, (seen, expected) in enumerate(zip(player.seen, reference.seen, strict=True)):
        for name, array in expected.observations.items():
            assert np.array_equal(seen.observations[name][lanes], array[lanes]), (step, name)
        for field in ("reward", "terminated", "truncated"):
            assert np.array_equal(getattr(seen, field)[lanes], getattr(expected, field)[lanes]), (step, field)
        for lane in np.flatnonzero(lanes) if lanes.dtype == bool else lanes:
            mine, theirs = seen.final.get(int(lane)), expected.final.get(int(lane))
            assert (mine is None) == (theirs is None), (step, lane)
            if mine is not None and theirs is not None:
                assert all(np.array_equal(mine[name], theirs[name]) for name in theirs), (step, lane)


@contextmanager
def started_servers(count: int, *arguments: str) -> Iterator[list[ServerProcess]]:
    """Run servers, which are started at the same time."""
    with ExitStack() as stack, ThreadPoolExecutor(count) as pool:
        futures = [pool.submit(ServerProcess, *arguments) for _ in range(count)]
        yield [stack.enter_context(future.result()) for future in futures]


@pytest.fixture(scope="module")
def three() -> Iterator[list[ServerProcess]]:
    with started_servers(3) as started:
        yield started


def addresses(processes: list[ServerProcess]) -> list[str]:
    return [process.address for process in processes]


def reference(steps: int, mode: Any = "next_step", family: str = "cartpole", **more: Any) -> Player:
    """Play the same in this process."""
    with VectorEnv("local", family, LANES, renderer="cpu", autoreset=mode, **{**GIVEN, **more}) as env:
        player = Player(env)
        player.step(steps)
        return player


def wait_for(condition: Callable[[], Any], timeout_s: float = 30.0) -> None:
    until_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < until_s, "it takes too long"
        time.sleep(0.02)


def freeze(process: ServerProcess) -> None:
    """Stop a server, and wait until all its threads stand still."""
    os.kill(process.pid, signal.SIGSTOP)
    tasks = Path(f"/proc/{process.pid}/task")
    wait_for(lambda: all(task.read_text().rpartition(") ")[2][0] == "T" for task in tasks.glob("*/stat")))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("transport", ["auto", "grpc"])
def test_lanes_have_the_bytes_of_one_world_wherever_they_are(
    three: list[ServerProcess], mode: Any, transport: Any
) -> None:
    with VectorEnv(addresses(three), "cartpole", LANES, autoreset=mode, transport=transport, **GIVEN) as env:
        assert sorted(server.lanes for server in env.servers) == [8, 8, 8]
        player = Player(env)
        player.step(60)
    assert not player.lost.any()
    check_same(player, reference(60, mode), np.arange(LANES))


@pytest.mark.parametrize("mode", MODES)
def test_a_killed_server_costs_its_lanes_one_episode_and_nobody_else_anything(mode: Any) -> None:
    with (
        started_servers(3) as started,
        VectorEnv(addresses(started), "cartpole", LANES, autoreset=mode, **GIVEN) as env,
    ):
        player = Player(env)
        player.step(30)
        held = [server.lanes for server in env.servers]
        started[1].kill()
        wait_for(lambda: player.step().lost.any())
        wait_for(lambda: not player.step().lost.any())
        player.step(30)
        found = {server.address: server for server in env.servers}
        assert found[started[1].address].lanes == 0
        assert sum(server.lanes for server in env.servers) == LANES
    lost = player.lost
    assert lost.sum() == held[1]
    check_same(player, reference(player.count, mode), ~lost)
    check_losses(player, lost, mode)


def check_losses(player: Player, lost: np.ndarray, mode: Any) -> None:
    """Check the reports of lost lanes: truncated without reward, as last observed, then a new episode."""
    for before, seen in zip(player.seen, player.seen[1:], strict=False):
        rows = np.flatnonzero(seen.lost)
        assert seen.truncated[rows].all()
        assert not seen.terminated[rows].any()
        assert not seen.reward[rows].any()
        if mode == "same_step":
            assert all(row in seen.final for row in rows)
        else:
            for row in rows:
                assert np.array_equal(seen.observations["pose"][row], before.observations["pose"][row])


@pytest.mark.parametrize("seed", [5, list(range(100, 100 + LANES))])
def test_seeds_after_a_loss_follow_from_the_lane_and_the_count_of_losses(seed: int | list[int]) -> None:
    with started_servers(3) as started, VectorEnv(addresses(started), "cartpole", LANES, **GIVEN) as env:
        player = Player(env, seed=seed)
        player.step(5)
        for killed in (0, 1):
            started[killed].kill()
            wait_for(lambda: player.step().lost.any())
            wait_for(lambda: not player.step().lost.any())
    losses = np.sum(
        [
            [seen.lost[lane] and not before.lost[lane] for lane in range(LANES)]
            for before, seen in zip(player.seen, player.seen[1:], strict=False)
        ],
        axis=0,
    )
    assert losses.max() == 2
    assert losses.min() == 0
    for lane in np.flatnonzero(losses):
        returned = max(step for step, seen in enumerate(player.seen) if seen.lost[lane]) + 1
        own = seed[lane] if isinstance(seed, list) else mix(seed, int(lane))
        with VectorEnv("local", "cartpole", 1, renderer="cpu", seed=[mix(own, int(losses[lane]))], **GIVEN) as one:
            expected = one.reset()[0]
        seen = player.seen[returned]
        assert all(np.array_equal(seen.observations[name][lane], expected[name][0]) for name in expected)


@pytest.mark.parametrize("transport", ["auto", "grpc"])
def test_a_frozen_server_is_noticed_and_may_come_back(transport: Any) -> None:
    with started_servers(2) as started:
        with VectorEnv(addresses(started), "cartpole", LANES, transport=transport, **GIVEN) as env:
            player = Player(env)
            player.step(10)
            freeze(started[0])
            try:
                seen = player.step()
                assert seen.lost.any()
                assert seen.took_s < NOTICED_S + SLACK_S
                wait_for(lambda: not player.step().lost.any())
            finally:
                os.kill(started[0].pid, signal.SIGCONT)
            wait_for(lambda: all(server.state == "up" for server in env.servers))
            # Its lanes come back at the ends of episodes, and nobody loses one.
            wait_for(lambda: player.step() is not None and min(server.lanes for server in env.servers) >= LANES // 3)
            player.step(30)
            lost = player.lost
            assert lost.sum() == LANES // 2
        check_same(player, reference(player.count), ~lost)


def test_a_server_that_is_cut_off_is_noticed(three: list[ServerProcess]) -> None:
    with Proxy(three[0].address) as proxy:
        with VectorEnv([proxy.address, three[1].address], "cartpole", LANES, transport="grpc", **GIVEN) as env:
            player = Player(env)
            player.step(10)
            proxy.stop_forwarding()
            seen = player.step()
            assert seen.lost.sum() == LANES // 2
            assert seen.took_s < NOTICED_S + SLACK_S
            wait_for(lambda: not player.step().lost.any())
            lost = player.lost
        check_same(player, reference(player.count), ~lost)


@pytest.mark.parametrize("mode", MODES)
def test_a_drained_server_hands_its_lanes_over_and_none_is_lost(mode: Any) -> None:
    with started_servers(2, "--drain-s", "100") as started:
        with VectorEnv(addresses(started), "cartpole", LANES, autoreset=mode, frame_stack=2, **GIVEN) as env:
            player = Player(env)
            player.step(10)
            os.kill(started[0].pid, signal.SIGTERM)
            wait_for(lambda: player.step() is not None and env.servers[0].lanes == 0)
            assert started[0].wait() == 0  # it ends when nobody needs it any more
            player.step(50)
            assert env.servers[-1].lanes == LANES
        assert not player.lost.any()
        check_same(player, reference(player.count, mode, frame_stack=2), np.arange(LANES))


@pytest.mark.parametrize("family", ["maze", "catch"])
def test_other_families_are_handed_over_too(family: str) -> None:
    steps = {"maze": {"max_steps": 30}, "catch": {}}[family]
    given: dict[str, Any] = {"width": 8, "height": 8, "settings": steps}
    with (
        started_servers(2, "--drain-s", "100") as started,
        VectorEnv(addresses(started), family, LANES, **given) as env,
        VectorEnv("local", family, LANES, renderer="cpu", **given) as local,
    ):
        found, expected = env.reset(seed=1)[0], local.reset(seed=1)[0]
        local.action_space.seed(0)
        count = moved_at = 0
        while count < moved_at + 60:
            assert np.array_equal(found["eye.rgb"], expected["eye.rgb"]), count
            actions = local.action_space.sample()
            (found, *outcome, info), (expected, *theirs, _) = env.step(actions), local.step(actions)
            assert not info["lost"].any()
            for mine, other in zip(outcome, theirs, strict=True):
                assert np.array_equal(mine, other), count
            count += 1
            if count == 10:
                os.kill(started[0].pid, signal.SIGTERM)
            if count < 10 or env.servers[0].lanes == LANES // 2:
                moved_at = count
            assert count < 2000


def test_lanes_are_parked_while_there_is_no_room() -> None:
    with started_servers(2, "--max-lanes", str(LANES // 2)) as started:
        with VectorEnv(addresses(started), "cartpole", LANES, **GIVEN) as env:
            player = Player(env)
            player.step(5)
            started[0].kill()
            wait_for(lambda: player.step().lost.any())
            for _ in range(50):
                seen = player.step()
                assert seen.lost.sum() == LANES // 2
                assert seen.truncated[seen.lost].all()
            with ServerProcess("--listen", started[0].address):
                wait_for(lambda: not player.step().lost.any())
                player.step(30)
                lost = player.lost
        assert lost.sum() == LANES // 2
        check_same(player, reference(player.count), ~lost)


def test_nothing_hangs_when_all_servers_are_gone() -> None:
    with started_servers(2) as started:
        env = VectorEnv(addresses(started), "cartpole", LANES, timeout_s=3, **GIVEN)
        player = Player(env)
        for process in started:
            process.kill()
        seen = player.step()
        assert seen.lost.all()
        began_s = time.monotonic()
        with pytest.raises(LostConnection, match=r"no server of .* has taken a lane for 3 s"):
            player.step(100)
        assert time.monotonic() - began_s < 3 + 2 + SLACK_S
        with ServerProcess("--listen", started[0].address):
            player = Player(env)
            assert not player.seen[0].lost.any()
            player.step(40)
            check_same(player, reference(40), np.arange(LANES))
            env.close()


def test_recv_gives_the_lanes_that_are_ready_and_waits_for_no_slow_server(three: list[ServerProcess]) -> None:
    expected = reference(12)
    with VectorEnv(addresses(three), "cartpole", LANES, **GIVEN) as env:
        env.reset(seed=5)
        steps = np.zeros(LANES, int)
        freeze(three[0])
        try:
            env.send(force(0))
            for _ in range(12):
                found, reward, *_, info = env.recv(min_lanes=4)
                lanes = info["env_id"]
                if info["lost"].any():  # on a busy machine: it was frozen for too long
                    break
                steps[lanes] += 1
                for row, lane in enumerate(lanes.tolist()):
                    seen = expected.seen[steps[lane]]
                    assert reward[row] == seen.reward[lane]
                    assert np.array_equal(found["eye.rgb"][row], seen.observations["eye.rgb"][lane])
                env.send({"force": np.array([force(steps[lane])["force"][lane] for lane in lanes])}, lanes)
        finally:
            os.kill(three[0].pid, signal.SIGCONT)
        assert steps.min() == 0
        assert steps.max() > 3


def test_an_env_over_servers_takes_memory_for_results_and_can_be_pickled(three: list[ServerProcess]) -> None:
    with VectorEnv(addresses(three), "cartpole", LANES, seed=5, **GIVEN) as env:
        env.reset()
        rollout = env.rollout(10)
        for step, _ in enumerate(rollout):
            env.step(force(step), out=rollout)
        again = pickle.loads(pickle.dumps(env))
    expected = reference(10)
    for step, seen in enumerate(expected.seen[:10]):
        assert np.array_equal(rollout.observations["eye.rgb"][step], seen.observations["eye.rgb"])
        assert np.array_equal(rollout.rewards[step], expected.seen[step + 1].reward)
    with again:
        assert np.array_equal(again.reset()[0]["eye.rgb"], expected.seen[0].observations["eye.rgb"])
        arrays = {name: array.copy() for name, array in again.step(force(0))[0].items()}
        found, *_ = again.step(force(1), out=arrays)
        assert found["eye.rgb"] is arrays["eye.rgb"]
        assert np.array_equal(found["eye.rgb"], expected.seen[2].observations["eye.rgb"])
        assert again.render().shape == (5 * 6, 5 * 8, 3)


def test_arrays_belong_to_the_caller(three: list[ServerProcess]) -> None:
    with VectorEnv(addresses(three), "cartpole", LANES, **GIVEN) as env:
        kept = [env.reset(seed=5)[0]]
        kept += [env.step(force(step))[0] for step in range(10)]
        for seen, array in zip(reference(10).seen, kept, strict=True):
            assert np.array_equal(array["eye.rgb"], seen.observations["eye.rgb"])


def test_errors_say_what_to_do(three: list[ServerProcess]) -> None:
    with pytest.raises(ValueError, match="empty list"):
        VectorEnv([], "cartpole", 4)
    with pytest.raises(ValueError, match="twice"):
        VectorEnv([three[0].address] * 2, "cartpole", 4)
    with pytest.raises(TypeError, match="expected HOST:PORT"):
        VectorEnv([9000], "cartpole", 4)  # type: ignore[list-item]
    with pytest.raises(TypeError, match="a list of them"):
        VectorEnv(9000, "cartpole", 4)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="streams is 2 with a list of servers"):
        VectorEnv(addresses(three), "cartpole", 4, streams=2)
    with pytest.raises(CannotConnect, match=r"no server answers at 127\.0\.0\.1:1, 127\.0\.0\.1:2"):
        VectorEnv(["127.0.0.1:1", "127.0.0.1:2"], "cartpole", 4)
    with pytest.raises(ServerError, match=r"INVALID_ARGUMENT.*speed"):
        VectorEnv(addresses(three), "cartpole", 4, settings={"speed": 3})
    with pytest.raises(ServerError, match="RESOURCE_EXHAUSTED: 200000 lanes on 3 servers with room for"):
        VectorEnv(addresses(three), "cartpole", 200_000, width=1, height=1)
    with VectorEnv(addresses(three), "cartpole", LANES, **GIVEN) as env:
        with pytest.raises(gymnasium.error.ResetNeeded):
            env.step(force(0))
        env.reset()
        with pytest.raises(ClientError, match="nothing to receive"):
            env.recv()
        env.send(force(0))
        with pytest.raises(ClientError, match="while another is under way"):
            env.send(force(0))
        env.recv(min_lanes=4)
        with pytest.raises(ClientError, match=r"min_lanes is 24 with|nothing to receive"):
            env.recv(min_lanes=24)


def test_a_server_that_is_not_there_at_first_is_used_when_it_comes() -> None:
    with started_servers(2) as started:
        address = started[1].address
        started[1].kill()
        with VectorEnv(addresses(started), "cartpole", LANES, **GIVEN) as env:
            assert [server.lanes for server in env.servers] == [LANES, 0]
            player = Player(env)
            player.step(3)
            with ServerProcess("--listen", address):
                wait_for(lambda: player.step() is not None and env.servers[1].lanes == LANES // 2)
                player.step(30)
                assert not player.lost.any()
                env.close()
    check_same(player, reference(player.count), np.arange(LANES))


def test_nothing_is_left_on_the_servers(three: list[ServerProcess]) -> None:
    def lanes() -> int:
        with VectorEnv(three[0].address, "catch", 1) as probe:
            return int(probe._streams.first_world.read_property("counters.lanes")) - 1

    before = lanes()  # worlds of clients that were cut off stay for a while
    env = VectorEnv(addresses(three), "cartpole", LANES, **GIVEN)
    env.reset()
    assert lanes() > before
    env.close()
    wait_for(lambda: lanes() <= before)


SQUARE: dict[str, Any] = {**GIVEN, "width": 64, "height": 64, "observations": ["eye.rgb", "eye.depth", "pose"]}
"""Frames of 64 × 64: whole pages, which are mapped as one array."""


def test_servers_on_this_machine_draw_into_one_array(three: list[ServerProcess]) -> None:
    expected = reference(40, **SQUARE)
    with VectorEnv(addresses(three), "cartpole", LANES, **SQUARE) as env:
        kept = [env.reset(seed=5)[0]]
        kept += [env.step(force(step))[0] for step in range(3)]
        assert env.has_shared_frames
        rows = [kept[-1]["eye.rgb"][lane] for lane in (3, 20)]
        del kept[2:]
        env.step(force(3))
        for step in range(4, 40):
            found = env.step(force(step))[0]
            for name in found:
                assert np.array_equal(found[name], expected.seen[step + 1].observations[name]), (step, name)
        found["eye.rgb"][:] = 7  # it belongs to the caller
        assert env.unshared_steps == 0
        # Those that the program has kept have not changed, though the servers draw into the same memory.
        for row, lane in zip(rows, (3, 20), strict=True):
            assert np.array_equal(row, expected.seen[3].observations["eye.rgb"][lane])
        for array, seen in zip(kept, expected.seen, strict=False):
            assert np.array_equal(array["eye.rgb"], seen.observations["eye.rgb"])


def test_keeping_many_steps_is_slower_and_right(three: list[ServerProcess], caplog: pytest.LogCaptureFixture) -> None:
    with VectorEnv(addresses(three), "cartpole", LANES, **SQUARE) as env:
        kept = [env.reset(seed=5)[0], *(env.step(force(step))[0] for step in range(20))]
        assert env.unshared_steps > 0
    assert "instead of shared memory" in caplog.text
    for array, seen in zip(kept, reference(20, **SQUARE).seen, strict=True):
        assert all(np.array_equal(array[name], seen.observations[name]) for name in array)


def test_a_server_that_wakes_up_does_not_draw_into_arrays_of_the_program() -> None:
    with started_servers(2) as started, VectorEnv(addresses(started), "cartpole", LANES, **SQUARE) as env:
        env.reset(seed=5)
        last = env.step(force(0))[0]["eye.rgb"].copy()
        freeze(started[1])
        found, *_, info = env.step(force(1))
        os.kill(started[1].pid, signal.SIGCONT)
        lost = info["lost"]
        assert lost.sum() == LANES // 2
        before = found["eye.rgb"].copy()
        assert np.array_equal(before[lost], last[lost])
        wait_for(lambda: all(server.state == "up" for server in env.servers))
        time.sleep(0.2)  # it has answered a health check: its engine draws what it was asked to
        assert np.array_equal(found["eye.rgb"], before)


def test_transports_can_be_mixed(three: list[ServerProcess]) -> None:
    with Proxy(three[0].address) as proxy:  # of which the local socket is another one's
        given = [proxy.address, three[1].address]
        with VectorEnv(given, "cartpole", LANES, transport="grpc", **SQUARE) as env:
            player = Player(env)
            player.step(30)
    check_same(player, reference(30, **SQUARE), np.arange(LANES))


def test_a_camera_is_known_in_all_lanes_wherever_they_are(three: list[ServerProcess]) -> None:
    given: dict[str, Any] = {**GIVEN, "settings": {}, "observations": ["eye.depth"], "seed": 2}
    with VectorEnv(addresses(three), "maze", 7, **given) as env, VectorEnv("local", "maze", 7, **given) as local:
        for each in (env, local):
            each.reset()
            each.step({"move": np.ones((7, 2), np.float32), "turn": np.ones(7, np.float32)})
        found, expected = env.camera(), local.camera()
        assert found.half_height.tolist() == expected.half_height.tolist()
        assert (found.near, found.far, found.is_orthographic) == (expected.near, expected.far, False)
        assert np.array_equal(found.pose, expected.pose)
