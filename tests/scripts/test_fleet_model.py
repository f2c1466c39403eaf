"""The capacity model against sums by hand, and costs read from a profile."""

import math
from pathlib import Path
from typing import Any

import pytest

from scripts import fleet_model
from scripts.fleet_model import Costs, Hardware, Load, Model, one_machine_rate, size_fleet


def test_a_server_draws_on_all_cores_and_sends_on_one() -> None:
    costs = Costs(draw_lane_s=4e-5, server_message_s=1e-3, server_byte_s=1e-9, server_tls_byte_s=2e-9)
    load = Load(100, frame_bytes=900, other_bytes=100, transport="tls")
    model = Model(costs, Hardware(server_cores=4, server_link_bits_per_s=80e9), load)
    assert model.server_step_s(100) == pytest.approx(1e-3 + 100 * 1e-5 + 100 * 1000 * 3e-9)
    slow_link = Model(costs, Hardware(server_cores=4, server_link_bits_per_s=8e8), load)
    assert slow_link.server_step_s(100) == pytest.approx(1e-3 + 100 * 1e-5 + 100 * 1000 * 1e-8)


def test_each_resource_of_a_client_has_its_bound() -> None:
    costs = Costs(client_byte_s=1e-9, client_tls_byte_s=1e-9, client_message_s=1e-4, copy_bytes_per_s=1e10)
    load = Load(100, frame_bytes=900, other_bytes=100, transport="tls")
    model = Model(costs, Hardware(receive_threads=4, client_link_bits_per_s=8e9), load)
    bounds = model.bounds(10)
    assert bounds["servers"] == pytest.approx(10 * model.server_rate)
    assert bounds["link"] == pytest.approx(1e9 / 1000)
    assert bounds["receive"] == pytest.approx(4 / 2e-9 / 1000)
    assert bounds["merge"] == pytest.approx(100 / (1e-4 + 1e5 / 1e10))
    assert model.bounds(1)["receive"] == pytest.approx(1 / 2e-9 / 1000)  # one server's replies are received by one


def test_shared_memory_costs_the_network_nothing() -> None:
    model = Model(load=Load(transport="shared"))
    bounds = model.bounds(1)
    assert bounds["link"] == bounds["receive"] == math.inf
    assert model.server_rate > Model().server_rate
    sizing = size_fleet(model, 1e6, 10**6)
    assert sizing.clients == sizing.servers
    assert sizing.network_bits_per_s == 0


def test_servers_on_one_machine_share_its_cores() -> None:
    costs = Costs(draw_lane_s=1e-5, server_message_s=1e-3, shared_message_s=1e-4, copy_bytes_per_s=math.inf)
    assert one_machine_rate(costs, 1, 1, cores=2, lanes=1000) == pytest.approx(1000 / 11.1e-3)
    assert one_machine_rate(costs, 2, 1, cores=2, lanes=1000) == pytest.approx(1000 / 6.2e-3)
    assert one_machine_rate(costs, 4, 1, cores=2, lanes=1000) == pytest.approx(1000 / (2 * 3.5e-3 + 0.4e-3))


@pytest.mark.parametrize("frames_per_s", [1e5, 1e6, 1e7])
def test_a_sizing_keeps_all_below_the_share_asked_for_and_is_the_least_that_does(frames_per_s: float) -> None:
    model = Model()
    sizing = size_fleet(model, frames_per_s, 10**6, use=0.5)
    assert frames_per_s / model.server_rate / sizing.servers <= 0.5
    assert frames_per_s / model.server_rate / max(sizing.servers - 1, 0.1) > 0.5
    bounds = model.bounds(max(sizing.servers, 2))
    slowest = min(rate for name, rate in bounds.items() if name != "servers")
    assert frames_per_s / sizing.clients / slowest <= 0.5
    assert bounds[sizing.client_limit] == slowest


def test_one_client_serves_as_many_servers_as_are_not_above_its_bounds() -> None:
    model = Model()
    count = model.servers_per_client
    assert min(model.bounds(count).values()) == model.bounds(count)["servers"]
    assert min(model.bounds(count + 1).values()) < model.bounds(count + 1)["servers"]


def profile_of(**us_per_lane: dict[str, float]) -> dict[str, Any]:
    return {
        "configurations": [{"width": 10, "height": 10, "outputs": ["rgb"]}],
        "cpu_fits": {
            side: [
                {"transport": name, "fixed_us": 100.0, "us_per_lane": value, "outputs": ["rgb"]}
                for name, value in lanes.items()
            ]
            for side, lanes in us_per_lane.items()
        },
    }


def test_costs_of_a_profile_are_differences_of_its_fits() -> None:
    profile = profile_of(
        client={"local": 20.0, "socket": 1.0, "tcp": 3.0, "tls": 9.0}, server={"tcp": 26.0, "tls": 35.0}
    )
    costs = Costs.from_profile(profile)
    assert costs.draw_lane_s == pytest.approx(20e-6)
    assert (costs.server_byte_s, costs.server_tls_byte_s) == pytest.approx((6e-6 / 300, 9e-6 / 300))
    assert (costs.client_byte_s, costs.client_tls_byte_s) == pytest.approx((3e-6 / 300, 6e-6 / 300))
    assert (costs.server_message_s, costs.client_message_s, costs.shared_message_s) == pytest.approx((1e-4,) * 3)


def test_a_profile_that_lacks_something_says_what() -> None:
    with pytest.raises(ValueError, match="of the client with tls, server with tls: expected a profile with three"):
        Costs.from_profile(profile_of(client={"local": 20.0, "socket": 1.0, "tcp": 3.0}, server={"tcp": 26.0}))
    several = profile_of(client={}, server={})
    several["configurations"].append({"width": 20, "height": 10, "outputs": ["rgb"]})
    with pytest.raises(ValueError, match="2 kinds of frames: expected one --size"):
        Costs.from_profile(several)


def test_the_command_prints_servers_and_clients(capsys: pytest.CaptureFixture[str]) -> None:
    assert fleet_model.main(["--frames-per-s", "1e6", "--lanes", "1000000", "--machine-cores", "2"]) == 0
    text = capsys.readouterr().out
    sizing = size_fleet(Model(), 1e6, 10**6)
    assert f"{sizing.servers} servers" in text
    assert f"to {sizing.clients} clients" in text
    assert f"4 servers of a thread: {one_machine_rate(Costs(), 4, 1, 2, 1024):,.0f} frames/s" in text


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--frames-per-s", "0"], "--frames-per-s is 0: expected a number above 0"),
        (["--frames-per-s", "nan"], "--frames-per-s is nan: expected a number above 0"),
        (["--lanes", "0"], "--lanes is 0: expected a number above 0"),
        (["--machine-cores", "0"], "--machine-cores is 0: expected a number above 0"),
        (["--profile", "nope.json"], "--profile nope.json: No such file or directory; expected the profile.json of"),
    ],
)
def test_wrong_arguments_are_told(words: list[str], problem: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        fleet_model.main(words)
    assert ended.value.code == 2
    assert problem in capsys.readouterr().err


@pytest.mark.parametrize("text", ["no JSON", "[]", "{}", '{"configurations": [], "cpu_fits": {}}'])
def test_a_file_that_is_no_profile_is_told(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "profile.json"
    path.write_text(text)
    with pytest.raises(SystemExit) as ended:
        fleet_model.main(["--profile", str(path)])
    assert ended.value.code == 2
    assert f"--profile {path} is no profile of the costs: " in capsys.readouterr().err
