"""Parts of a fleet that need no Ray: decisions, leases, certificates, health, and arguments."""

import os
import pickle
import subprocess
import sys
import time
from pathlib import Path

import pytest
from cryptography import x509
from hypothesis import given
from hypothesis import strategies as st

from worldloom.fleet.certificates import make_authority, make_server_certificate
from worldloom.fleet.directory import CertificateFile
from worldloom.fleet.errors import QuotaExceeded
from worldloom.fleet.health import ServerHealth
from worldloom.fleet.leases import LEASE_S, Lease, Leases
from worldloom.fleet.plan import SURGE_WAIT_S, ServerPlan, ServerView, choose_processors, nodes_to_avoid, plan_servers
from worldloom.fleet.spec import FleetSpec, fit_cpus_per_server, make_secrets


def ready(*numbers: int, generation: int = 1) -> list[ServerView]:
    return [ServerView(number, generation, "ready") for number in numbers]


def test_missing_servers_are_created() -> None:
    assert plan_servers(4, 1, ready(1)) == ServerPlan(create=3)
    assert plan_servers(2, 1, [*ready(1), ServerView(2, 1, "draining")]) == ServerPlan(create=1)


def test_of_too_many_those_that_serve_nobody_leave_first_then_the_newest() -> None:
    servers = [*ready(1, 2, 3), ServerView(4, 1, "starting"), ServerView(5, 1, "placing")]
    assert plan_servers(2, 1, servers) == ServerPlan(drain=(3,), stop=(5, 4))


def simulate(wanted: int, room: int, generation: int, servers: dict[int, ServerView]) -> list[int]:
    """Follow plans until nothing changes; return how many servers were ready after each."""
    counts: list[int] = []
    number = max(servers, default=0)
    for _ in range(200):
        plan = plan_servers(wanted, generation, list(servers.values()))
        if plan == ServerPlan() and all(one.phase == "ready" for one in servers.values()):
            return counts
        for leaving in plan.stop:
            del servers[leaving]
        for leaving in plan.drain:
            servers[leaving] = ServerView(leaving, servers[leaving].generation, "draining")
        for _ in range(plan.create):
            number += 1
            servers[number] = ServerView(number, generation, "placing")
        counts.append(sum(one.phase == "ready" for one in servers.values()))
        for key, one in list(servers.items()):  # time passes: those that drain end, those that have room start
            if one.phase == "draining":
                del servers[key]
            elif one.phase == "placing":
                is_placed = sum(other.phase != "placing" for other in servers.values()) < room
                phase = "ready" if is_placed else "placing"
                servers[key] = ServerView(key, one.generation, phase, one.waiting_s + SURGE_WAIT_S)  # type: ignore[arg-type]
    raise AssertionError("the plans never end")


@given(st.integers(1, 6), st.integers(0, 3), st.integers(1, 8))
def test_an_upgrade_replaces_all_and_keeps_all_but_one(wanted: int, spare: int, before: int) -> None:
    servers = {number: ServerView(number, 1, "ready") for number in range(1, before + 1)}
    counts = simulate(wanted, max(wanted, before) + spare, 2, servers)
    assert [one.generation for one in servers.values()] == [2] * wanted
    assert min(counts) >= min(wanted, before) - (0 if spare else 1)


def test_processors_are_those_that_the_fewest_servers_have() -> None:
    assert choose_processors((0, 1, 2, 3), {}, 2) == (0, 1)
    assert choose_processors((0, 1, 2, 3), {0: 1, 1: 1}, 2) == (2, 3)
    assert choose_processors((0, 1), {0: 2, 1: 1}, 1) == (1,)
    assert choose_processors((4,), {4: 9}, 3) == (4,)


def test_nodes_with_more_servers_and_failed_ones_are_avoided_at_first() -> None:
    servers_on = {"a": 1, "b": 0, "c": 1}
    assert nodes_to_avoid("abc", servers_on, (), 0) == ("a", "c")
    assert nodes_to_avoid("abc", servers_on, (), 1) == ()
    assert nodes_to_avoid("abc", servers_on, ("b",), 0) == ("b",)
    assert nodes_to_avoid("abc", servers_on, ("b",), 2) == ()
    assert nodes_to_avoid("a", {"a": 3}, ("a",), 0) == (), "there is no other"


def test_leases_end_when_they_are_released_or_not_renewed() -> None:
    now_s = 0.0
    leases = Leases(is_restarted=False, clock=lambda: now_s)
    first, second = Lease("1", "a", 60), Lease("2", "a", 40)
    leases.acquire(first, 100)
    leases.acquire(second, 100)
    with pytest.raises(QuotaExceeded, match="1 lanes for 'a': expected 0 at most, its quota is 100 and it has 100"):
        leases.acquire(Lease("3", "a", 1), 100)
    leases.acquire(Lease("4", "b", 1000), None)
    leases.release("4")
    now_s = LEASE_S - 1
    leases.renew(first)
    now_s = LEASE_S + 1
    assert leases.list_held() == [first]


def test_after_a_restart_new_leases_wait_for_old_ones() -> None:
    now_s = 0.0
    leases = Leases(is_restarted=True, clock=lambda: now_s)
    assert leases.opens_in_s > 1
    leases.renew(Lease("1", "a", 60))
    now_s = 60.0
    assert leases.opens_in_s == 0


def test_certificates_name_the_node_and_are_signed_by_the_authority() -> None:
    authority = make_authority()
    made = make_server_certificate(authority, "192.0.2.7")
    certificate = x509.load_pem_x509_certificate(made.certificate_pem.encode())
    certificate.verify_directly_issued_by(x509.load_pem_x509_certificate(authority.certificate_pem.encode()))
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [str(name) for name in names.get_values_for_type(x509.IPAddress)] == ["192.0.2.7"]
    assert "PRIVATE" not in repr(authority) + repr(made)


def test_a_certificate_file_is_written_where_it_is_used_and_removed() -> None:
    file = pickle.loads(pickle.dumps(CertificateFile("text")))
    path = Path(os.fspath(file))
    assert path.read_text() == "text"
    assert os.fspath(file) == str(path)
    file.close()
    assert not path.parent.exists()


def test_secrets_are_not_shown() -> None:
    secrets = make_secrets()
    spec = FleetSpec("x", 1, 1.0, 0.0, secrets)
    assert secrets.token not in repr(spec)
    assert "PRIVATE" not in repr(spec)
    assert spec.upgrade(drain_s=5.0).version == 2


@pytest.mark.parametrize(
    ("servers", "nodes", "cpus"),
    [(4, [8.0], 2.0), (4, [2.0], 0.5), (3, [4.0, 4.0], 2.0), (2, [1.0, 1.0, 1.0], 1.0), (7, [2.0], 0.25), (1, [], 1.0)],
)
def test_processors_of_a_server_fit_the_nodes(servers: int, nodes: list[float], cpus: float) -> None:
    assert fit_cpus_per_server(servers, nodes or [1.0]) == cpus


def test_rates_and_silence() -> None:
    health = ServerHealth(began_s=0.0, answered_s=1.0)
    health.count(1.0, lanes=4, lane_steps=0, frames=0)
    for second in range(2, 12):
        health.count(float(second), lanes=4, lane_steps=100 * (second - 1), frames=200 * (second - 1))
    assert health.lane_steps_per_s == pytest.approx(100, rel=0.01)
    assert health.frames_per_s == pytest.approx(200, rel=0.01)
    health.failures = 2
    assert health.silent_s(9.0) == 0
    health.failures = 3
    assert health.silent_s(9.0) == 8


def test_a_server_ends_with_the_thread_that_started_it() -> None:
    """The parent is killed: its child, which would run for an hour, ends at once."""
    child = (
        "import os, sys, time; from worldloom.fleet.serve_process import die_with_parent;"
        "die_with_parent(os.getppid()); print(os.getpid(), flush=True); time.sleep(3600)"
    )
    parent = f"import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', {child!r}]); time.sleep(3600)"
    process = subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    pid = int(process.stdout.readline())
    process.kill()
    process.wait()
    deadline_s = time.monotonic() + 30
    while Path(f"/proc/{pid}").exists():
        assert time.monotonic() < deadline_s
        time.sleep(0.01)
    process.stdout.close()
