"""The simulation against closed forms: without disturbances, with one kind of them, and that no lane is ever lost."""

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scripts import fleet_simulation
from scripts.fleet_events import ClientSimulation, Mode, Totals
from scripts.fleet_model import Costs, Disturbances, Hardware, Load, Model
from scripts.fleet_simulation import list_arrangements, simulate
from scripts.fleet_steps import Share, asynchronous_steps, synchronous_steps

NONE = Disturbances(losses_per_s=0, freezes_per_s=0, upgrades_per_s=0, slow_share=0, step_sigma=0)
HOUR_S = 3600.0


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def equal_shares(servers: int, lanes: int = 1024) -> list[Share]:
    return [Share(lanes, lanes, 1.0)] * servers


def run(disturbances: Disturbances, servers: int, mode: Mode, hours: float, model: Model | None = None) -> Totals:
    return ClientSimulation(model or Model(), disturbances, servers, mode, rng()).run(hours * HOUR_S)


# Steps without disturbances


def test_a_step_with_one_server_takes_the_sum_of_all_its_parts() -> None:
    model = Model()
    steps = synchronous_steps(model, equal_shares(1), 5, 0.0, rng())
    expected_s = model.server_step_s(1024) + 2 * model.hardware.latency_s + sum(model.client_times(1024, 1))
    assert steps.seconds == pytest.approx(5 * expected_s, rel=1e-12)
    assert asynchronous_steps(model, equal_shares(1), 6, 0.0, rng(), 1).rate == pytest.approx(steps.rate, rel=1e-9)


@pytest.mark.parametrize(
    "model",
    [
        Model(),
        Model(load=Load(transport="tcp", frame_bytes=4096)),
        Model(hardware=Hardware(client_link_bits_per_s=400e9)),
        Model(hardware=Hardware(client_link_bits_per_s=400e9, receive_threads=64)),
    ],
    ids=["link", "gray", "receive", "merge"],
)
def test_with_many_servers_the_slowest_resource_of_the_client_is_the_bound(model: Model) -> None:
    bounds = model.bounds(400)
    least = min(bounds.values())
    assert least < bounds["servers"] / 5
    for streams in (1, 2):
        steps = asynchronous_steps(model, equal_shares(400), 9, 0.1, rng(), 100 * 1024, streams)
        of_a_stream = replace(model, load=replace(model.load, lanes_per_server=1024 // streams))
        assert steps.rate == pytest.approx(min(of_a_stream.bounds(400).values()), rel=0.01)
    synchronous = synchronous_steps(model, equal_shares(400), 20, 0.1, rng())
    assert 0.8 * least < synchronous.rate <= least * (1 + 1e-9)


def test_with_slow_servers_and_a_fast_client_the_servers_are_the_bound() -> None:
    model = Model(Costs(draw_lane_s=5e-3))
    for servers in (2, 8):
        rates = [
            synchronous_steps(model, equal_shares(servers), 9, 0.0, rng()).rate,
            asynchronous_steps(model, equal_shares(servers), 9, 0.0, rng(), 1).rate,
        ]
        assert rates == pytest.approx([servers * model.server_rate] * 2, rel=0.05)


def test_a_step_waits_for_a_slow_server_and_recv_does_not() -> None:
    model = Model(Costs(draw_lane_s=5e-3))
    shares = [*equal_shares(7), Share(1024, 1024, 2.0)]
    step = synchronous_steps(model, shares, 9, 0.0, rng())
    assert step.rate == pytest.approx(8 * model.server_rate / 2, rel=0.05)
    recv = asynchronous_steps(model, shares, 60, 0.0, rng(), 1)
    assert recv.rate == pytest.approx(7.5 * model.server_rate, rel=0.05)


@given(servers=st.integers(1, 12), lanes=st.integers(1, 300), sigma=st.floats(0, 0.5), seed=st.integers(0, 99))
@settings(max_examples=40, deadline=None)
def test_no_resource_is_busy_for_more_than_all_the_time(servers: int, lanes: int, sigma: float, seed: int) -> None:
    model, generator = Model(), np.random.default_rng(seed)
    for steps in (
        synchronous_steps(model, equal_shares(servers, lanes), 4, sigma, generator),
        asynchronous_steps(model, equal_shares(servers, lanes), 12, sigma, generator, servers * lanes / 4),
    ):
        # Messages that are under way when counting begins or ends count as a whole.
        slack = 1 + 3 * servers / steps.messages
        assert max(*steps.busy_s, steps.server_busy_s) <= slack * steps.seconds
        assert steps.lane_steps == pytest.approx(lanes * steps.messages)


# Fleets over hours


@pytest.mark.parametrize("mode", ["step", "recv"])
def test_without_disturbances_nothing_is_lost(mode: Mode) -> None:
    totals = run(NONE, 3, mode, 10)
    assert (totals.parked_lane_s, totals.stalled_lane_s, totals.losses) == (0, 0, 0)
    steps = synchronous_steps(Model(), equal_shares(3), 1, 0.0, rng())
    if mode == "step":
        assert totals.lane_steps == pytest.approx(10 * HOUR_S * steps.rate)
    assert totals.lane_steps >= 10 * HOUR_S * steps.rate * (1 - 1e-9)


def lossy(rate: float) -> Disturbances:
    """Losses alone. Lanes are even again at once, since episodes are short."""
    return replace(NONE, losses_per_s=rate, new_machine_share=0, episode_steps=1, drain_parts=1)


def test_the_share_that_losses_cost_is_their_rate_times_the_time_of_each() -> None:
    """Losses are a Poisson process. With `step` all lanes wait for each to be detected; its own lanes are then made."""
    servers, rate, hours = 20, 1 / HOUR_S, 50.0
    disturbances = lossy(rate)
    totals = run(disturbances, servers, "step", hours)
    down_s = disturbances.notice_s + disturbances.start_s
    expected = servers * rate * hours * HOUR_S / (1 + rate * down_s)
    assert totals.losses == pytest.approx(expected, abs=4 * math.sqrt(expected))
    stalled = servers * rate * sum(disturbances.detection_s) / 2
    # The number of losses varies as above; those within two seconds of each other are waited for together.
    assert totals.stalled_lane_s / totals.lane_s == pytest.approx(stalled, rel=4 / math.sqrt(expected))
    per_loss_s = totals.stalled_lane_s / totals.losses / (servers * 1024)
    assert per_loss_s == pytest.approx(sum(disturbances.detection_s) / 2, rel=0.03)
    # Lost lanes are made on the 19 others, as many on each.
    make_s = Model().make_s(1024 / (servers - 1))
    assert totals.parked_lane_s / totals.lost_lanes == pytest.approx(make_s, rel=0.05)
    assert np.median(totals.recovery_s) == pytest.approx(sum(disturbances.detection_s) / 2 + make_s, rel=0.05)


def test_recv_waits_for_the_lanes_of_a_lost_server_alone() -> None:
    disturbances = lossy(1 / HOUR_S)
    totals = run(disturbances, 10, "recv", 50)
    assert totals.stalled_lane_s / totals.lost_lanes == pytest.approx(sum(disturbances.detection_s) / 2, rel=0.03)


def test_lanes_of_a_client_with_one_server_are_parked_until_it_is_replaced() -> None:
    disturbances = replace(NONE, losses_per_s=1 / HOUR_S)
    totals = run(disturbances, 1, "step", 2000)
    assert totals.losses == pytest.approx(2000, abs=4 * math.sqrt(2000))
    down_s = disturbances.notice_s + disturbances.start_s + disturbances.compile_s * disturbances.new_machine_share
    assert np.mean(totals.recovery_s) == pytest.approx(down_s + Model().make_s(1024), rel=0.1)
    lost_s = totals.parked_lane_s + totals.stalled_lane_s
    assert lost_s / 1024 == pytest.approx(sum(totals.recovery_s), rel=1e-2)


def test_short_freezes_cost_their_time_and_no_episode() -> None:
    disturbances = replace(NONE, freezes_per_s=1 / HOUR_S, freeze_s=0.05)
    totals = run(disturbances, 10, "step", 500)
    assert totals.lost_lanes == 0
    assert totals.stalled_lane_s / totals.lane_s == pytest.approx(10 * 0.05 / HOUR_S, rel=0.1)


@pytest.mark.parametrize("mode", ["step", "recv"])
def test_drains_cost_no_lane_and_no_time_of_one(mode: Mode) -> None:
    totals = run(replace(NONE, upgrades_per_s=1 / HOUR_S), 8, mode, 5)
    assert totals.drains >= 32
    assert (totals.parked_lane_s, totals.stalled_lane_s, totals.lost_lanes) == (0, 0, 0)


def test_servers_that_came_back_are_given_lanes_again() -> None:
    disturbances = replace(NONE, upgrades_per_s=1 / HOUR_S)
    even, uneven = (run(replace(disturbances, rebalances=one), 3, "step", 20) for one in (True, False))
    undisturbed = run(NONE, 3, "step", 20)
    assert uneven.lane_steps < 0.9 * even.lane_steps < undisturbed.lane_steps


@given(
    servers=st.integers(1, 7),
    lanes=st.integers(1, 200),
    room=st.sampled_from([0.0, 0.1, 0.5, 2.0]),
    mode=st.sampled_from(["step", "recv", "recv, 2 streams"]),
    seed=st.integers(0, 999),
    rebalances=st.booleans(),
)
@settings(max_examples=40, deadline=None)
def test_every_lane_is_on_one_server_or_parked_at_each_moment(
    servers: int, lanes: int, room: float, mode: Mode, seed: int, rebalances: bool
) -> None:
    moments = []

    def check(simulation: ClientSimulation) -> None:
        moments.append(simulation.now_s)
        on_servers = sum(server.lanes for server in simulation.servers)
        assert on_servers + simulation.parked_lanes == servers * lanes
        for server in simulation.servers:
            assert 0 <= server.lanes <= server.held <= simulation.room
            assert server.drawn == server.lanes or (server.is_draining and server.drawn > server.lanes)
            assert server.is_up or server.held == 0
            is_able = server.is_up and not (server.is_silent or server.is_draining)
            assert not (simulation.parked and is_able and server.held < simulation.room)

    often = Disturbances(
        losses_per_s=1 / 200, freezes_per_s=1 / 200, upgrades_per_s=1 / 500, episode_steps=50, room_share=room,
        rebalances=rebalances,
    )  # fmt: skip
    model = Model(load=Load(lanes))
    totals = ClientSimulation(model, often, servers, mode, np.random.default_rng(seed), check).run(600)
    assert totals.seconds == pytest.approx(600)
    assert moments == sorted(moments)
    assert totals.parked_lane_s + totals.stalled_lane_s <= totals.lane_s * (1 + 1e-9)


def test_the_same_seed_gives_the_same_figures_and_another_others() -> None:
    model = Model()
    for arrangement in list_arrangements(model):
        first, again, other = (simulate(model, Disturbances(), arrangement, 7, 24, seed) for seed in (3, 3, 4))
        assert first == again
        assert first.lane_steps_per_s != other.lane_steps_per_s


def test_the_script_writes_figures_table_and_plot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)  # a narrow window folds long figures
    names = {"--json": "a.json", "--table": "a.md", "--plot": "a.png"}
    files = [word for option, name in names.items() for word in (option, str(tmp_path / name))]
    assert fleet_simulation.main(["--servers", "2", "4", "--hours", "1", "--loss-days", "0.5", *files]) == 0
    told = json.loads((tmp_path / "a.json").read_text())
    arrangements = len(list_arrangements(Model()))
    assert [one["servers"] for one in told["results"]] == [2, 4] * arrangements
    assert [one["hours"] for one in told["results"]] == [2.0, 1.0] * arrangements
    assert len((tmp_path / "a.md").read_text().splitlines()) == 2 + 2 * arrangements
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    assert f"{told['results'][0]['lane_steps_per_s']:,.0f}" in capsys.readouterr().out


def test_files_are_checked_before_the_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    args = fleet_simulation.parse_arguments(["--json", str(tmp_path / "new/a.json")])
    assert args.json.parent.is_dir()
    assert not args.json.exists()
    (tmp_path / "file").touch()
    for path in (tmp_path, tmp_path / "file/a.md"):
        with pytest.raises(SystemExit) as ended:
            fleet_simulation.main(["--table", str(path)])
        assert ended.value.code == 2
        assert f"{path} cannot be written: " in capsys.readouterr().err
