"""A fleet on a real Ray cluster of three nodes: servers, nodes and the reconciler are killed, and everything ends."""

import os
import pickle
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from scripts.support.ray_cluster import RayCluster
from tests.fleet.conftest import TIMEOUT_S, find_processes, is_running, kill, wait_until
from worldloom.client import VectorEnv
from worldloom.fleet import Fleet, FleetError, FleetStatus, NoSuchFleet, QuotaExceeded

pytest.importorskip("ray")
LANES = 16
PROGRAMS = ("worldloom.fleet.serve_process", "worldloom.fleet.probe")
"""Programs that a fleet runs."""


@pytest.fixture(scope="module")
def fleet(three_nodes: RayCluster) -> Iterator[Fleet]:
    with Fleet(2, 1, drain_s=30, quotas={"small": 20, "*": 1000}, serve_arguments=["--max-lanes", "500"]) as made:
        yield made


@pytest.fixture
def settled(fleet: Fleet) -> FleetStatus:
    wait_until(lambda: fleet.status().is_settled, "settling")
    return fleet.status()


def pids(status: FleetStatus) -> set[int | None]:
    return {one.pid for one in status.servers}


def has_replaced(fleet: Fleet, pid: int | None) -> bool:
    status = fleet.status()
    return status.is_settled and pid not in pids(status)


def node_of(server: Any) -> str:
    return str(server.node.split()[1])


def paddles(value: int = 0) -> dict[str, np.ndarray]:
    return {"paddle": np.full(LANES, value)}


def test_servers_spread_over_nodes_and_processors(settled: FleetStatus) -> None:
    assert [one.server for one in settled.servers] == ["server-1", "server-2"]
    assert len({node_of(one) for one in settled.servers}) == 2
    for one in settled.servers:
        assert one.pid is not None
        assert os.sched_getaffinity(one.pid) == set(one.processors)
        assert len(one.processors) == 1
    if len(os.sched_getaffinity(0)) > 1:
        first, second = settled.servers
        assert not set(first.processors) & set(second.processors)


def test_secrets_are_in_no_command_line_file_or_status(fleet: Fleet, settled: FleetStatus) -> None:
    for one in settled.servers:
        command = Path(f"/proc/{one.pid}/cmdline").read_bytes()
        assert fleet.token.encode() not in command
        assert fleet.token.encode() not in Path(f"/proc/{one.pid}/environ").read_bytes()
    assert fleet.token not in repr(settled)
    assert fleet.token not in repr(fleet)
    assert "PRIVATE KEY" not in Path(fleet.tls_ca).read_text()


def test_clients_need_the_token_and_the_certificate(fleet: Fleet, settled: FleetStatus) -> None:
    address = fleet.addresses()[0]
    with VectorEnv(address, "catch", 1, token=fleet.token, tls_ca=fleet.tls_ca) as env:
        env.reset(seed=1)
    with pytest.raises(Exception, match="token"):
        VectorEnv(address, "catch", 1, token="another", tls_ca=fleet.tls_ca)
    with pytest.raises(Exception, match="tls_ca"):
        VectorEnv(address, "catch", 1, token=fleet.token)


def test_an_env_counts_against_its_quota_until_it_is_closed(fleet: Fleet, settled: FleetStatus) -> None:
    env = fleet.vector_env("catch", LANES, learner="small")
    with pytest.raises(QuotaExceeded, match=r"16 lanes for 'small': expected 4 at most, its quota is 20 and it has 16"):
        fleet.vector_env("catch", LANES, learner="small")
    wait_until(lambda: fleet.status().lanes == LANES, "the count of lanes")
    assert [(one.learner, one.lanes, one.quota) for one in fleet.status().learners] == [
        ("*", 0, 1000),
        ("small", LANES, 20),
    ]
    copy = pickle.dumps(env)
    env.close()
    again = pickle.loads(copy)
    again.reset(seed=1)
    again.close()
    wait_until(lambda: not any(one.lanes for one in fleet.status().learners), "the release")


def test_an_env_goes_on_when_a_server_is_killed(fleet: Fleet, settled: FleetStatus) -> None:
    with fleet.vector_env("catch", LANES, seed=7) as env:
        env.reset()
        kill(settled.servers[0].pid)
        lost: set[int] = set()

        def step() -> bool:
            info = env.step(paddles())[4]
            lost.update(np.flatnonzero(info.get("lost", ())).tolist())
            return has_replaced(fleet, settled.servers[0].pid)

        wait_until(step, "the replacement")
        assert 0 < len(lost) < LANES
        loss = fleet.status().last_loss
        assert loss is not None
        assert (loss.server, loss.reason) == (settled.servers[0].server, "it was ended by SIGKILL")
        assert loss.replaced_after_s is not None


def test_a_frozen_server_is_replaced(fleet: Fleet, settled: FleetStatus) -> None:
    frozen = settled.servers[0].pid
    kill(frozen, signal.SIGSTOP)
    wait_until(lambda: has_replaced(fleet, frozen), "the replacement")
    assert not is_running(frozen)
    loss = fleet.status().last_loss
    assert loss is not None
    assert loss.server == settled.servers[0].server
    assert "stopped by a signal" in loss.reason or "health checks" in loss.reason


def test_servers_that_do_not_start_are_reported(fleet: Fleet) -> None:
    with pytest.raises(FleetError, match=r"server-3 on .* did not start: it ended with exit code 1: .*no-such-module"):
        Fleet(1, 1, name="bad", serve_arguments=["--family", "no-such-module:Thing"], wait_s=TIMEOUT_S)
    with pytest.raises(NoSuchFleet, match="there are default"):
        Fleet.connect("bad")


def test_a_lost_node_leaves_no_server_and_is_replaced(
    fleet: Fleet, settled: FleetStatus, three_nodes: RayCluster
) -> None:
    nodes = {node.node_id[:6]: node for node in three_nodes.workers}
    victim = next(one for one in settled.servers if node_of(one) in nodes)
    three_nodes.kill_node(nodes[node_of(victim)])
    wait_until(lambda: not is_running(victim.pid), "the end of its server")
    wait_until(lambda: has_replaced(fleet, victim.pid), "the replacement")
    assert node_of(victim) not in {node_of(one) for one in fleet.status().servers}
    loss = fleet.status().last_loss
    assert loss is not None
    assert (loss.server, loss.replaced_after_s is None) == (victim.server, False)
    three_nodes.workers.append(three_nodes.add_node())


def test_the_reconciler_is_killed_and_knows_everything_again(fleet: Fleet, settled: FleetStatus) -> None:
    fleet.scale(3)
    [reconciler] = find_processes("ray::Reconciler")
    kill(reconciler)
    wait_until(lambda: fleet.status().is_settled, "the third server")
    status = fleet.status()
    assert status.wanted == 3
    assert pids(settled) < pids(status), "servers that were there went on"
    assert len({node_of(one) for one in status.servers}) == 3
    assert fleet.token == Fleet.connect().token


def test_drain_replaces_a_server_and_scale_removes_one(fleet: Fleet, settled: FleetStatus) -> None:
    with fleet.vector_env("catch", LANES, seed=7) as env:
        env.reset()
        drained = settled.servers[0]
        fleet.drain(drained.server)
        lost = 0

        def step() -> bool:
            nonlocal lost
            lost += int(np.sum(env.step(paddles())[4].get("lost", 0)))
            return fleet.status().is_settled

        wait_until(step, "draining")
        assert drained.pid not in pids(fleet.status())
        fleet.scale(2)
        wait_until(step, "shrinking")
        assert lost == 0
    with pytest.raises(ValueError, match=r"server is 'server-99': expected one of server-\d+, server-\d+$"):
        fleet.drain("server-99")


def test_upgrade_replaces_every_server_and_loses_no_lane(fleet: Fleet, settled: FleetStatus) -> None:
    with fleet.vector_env("catch", LANES, seed=7) as env:
        env.reset()
        fleet.upgrade(serve_arguments=["--max-lanes", "400"])
        lost = 0

        def step() -> bool:
            nonlocal lost
            lost += int(np.sum(env.step(paddles())[4].get("lost", 0)))
            return fleet.status().is_settled

        wait_until(step, "the upgrade")
        assert lost == 0
    status = fleet.status()
    assert status.generation == settled.generation + 1
    assert not pids(status) & pids(settled)
    for one in status.servers:
        assert b"--max-lanes\x00400" in Path(f"/proc/{one.pid}/cmdline").read_bytes()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"servers": 0}, "servers is 0: expected a whole number of 1 to 10000"),
        ({"name": "Large"}, "name is 'Large': expected 1 to 40 small letters"),
        ({"cpus_per_server": -1}, "cpus_per_server is -1: expected a number above 0"),
        ({"quotas": {"a": -1}}, "the quota of 'a' is -1: expected a whole number of 0"),
        ({"serve_arguments": ["--max-lanes", "none"]}, "serve_arguments: .*max-lanes.*expected a whole number"),
        ({"serve_arguments": ["--listen", "x:1"]}, "serve_arguments has '--listen': expected none of"),
        ({"serve_arguments": "--max-lanes"}, "expected a list of texts"),
        ({"cache_dir": "here"}, "cache_dir is 'here': expected an absolute path"),
    ],
)
def test_wrong_arguments_change_nothing(
    arguments: dict[str, Any], message: str, fleet: Fleet, settled: FleetStatus
) -> None:
    with pytest.raises(ValueError, match=message):
        Fleet(**{"name": "wrong", **arguments})
    with pytest.raises(NoSuchFleet, match="no fleet is called 'wrong': there are default"):
        Fleet.connect("wrong")


def test_wrong_changes_change_nothing(fleet: Fleet, settled: FleetStatus) -> None:
    with pytest.raises(ValueError, match="upgrade has 'colour': expected some of serve_arguments, python"):
        fleet.upgrade(colour="blue")
    with pytest.raises(ValueError, match="serve_arguments: "):
        fleet.upgrade(serve_arguments=["--max-lanes", "0"])
    with pytest.raises(ValueError, match="servers is 0"):
        fleet.scale(0)
    with pytest.raises(ValueError, match="token is given: expected none"):
        fleet.vector_env("catch", 1, token="x")
    with pytest.raises(FleetError, match="there is a fleet called 'default'"):
        Fleet()
    assert fleet.status().generation == settled.generation
    assert pids(fleet.status()) == pids(settled)


def test_nothing_is_left_after_down(fleet: Fleet, settled: FleetStatus) -> None:
    """The last test: it ends the fleet."""
    import ray

    addresses, certificate = fleet.addresses(), Path(fleet.tls_ca)
    assert {pid for program in PROGRAMS for pid in find_processes(program)} >= pids(settled)
    fleet.down()
    mine = {one.pid for one in settled.servers} | find_processes("ray::Reconciler") | find_processes("ray::ServerActor")
    wait_until(lambda: not any(map(is_running, filter(None, mine))), "the end of the processes")
    assert not find_processes("worldloom.fleet.probe")
    for address in addresses:
        host, _, port = address.rpartition(":")
        with pytest.raises(OSError, match="refused"):
            socket.create_connection((host, int(port)), 5)
    assert not certificate.parent.exists()
    assert [one for one in ray.util.list_named_actors(all_namespaces=True) if one["namespace"] == "worldloom"] == []
    groups = ray.util.placement_group_table().values()
    assert {one["state"] for one in groups} == {"REMOVED"}
    with pytest.raises(FleetError, match="the fleet 'default' is down"):
        fleet.vector_env("catch", 1)
